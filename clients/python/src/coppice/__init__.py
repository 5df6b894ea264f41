"""Client of Coppice, a self-hosted service of microVM sandboxes.

    from coppice import Coppice

    with Coppice() as client, client.sandboxes.create(image="python:3.12-slim") as sandbox:
        print(sandbox.exec("python --version").stdout)

`Coppice` blocks; `AsyncCoppice` is for asyncio. Both have the same methods.
"""

from coppice import models
from coppice._async.byte_stream import AsyncByteStream
from coppice._async.client import AsyncCoppice
from coppice._async.command_reader import AsyncCommandReader
from coppice._async.command_stream import AsyncCommandStream
from coppice._async.commands import AsyncCommand
from coppice._async.forks import AsyncForkError
from coppice._async.paged_list import AsyncPagedList
from coppice._async.sandbox import AsyncSandbox
from coppice._core.base_url import DEFAULT_BASE_URL
from coppice._core.builds import BuildProgress
from coppice._core.frames import CommandChunk, CommandExit, CommandOutput, DroppedOutput, OutputChunk
from coppice._sync.byte_stream import ByteStream
from coppice._sync.client import Coppice
from coppice._sync.command_reader import CommandReader
from coppice._sync.command_stream import CommandStream
from coppice._sync.commands import Command
from coppice._sync.forks import ForkError
from coppice._sync.paged_list import PagedList
from coppice._sync.sandbox import Sandbox
from coppice._sync.sandboxes import DEFAULT_IMAGE
from coppice.audit import AuditEntry, AuditProblem, AuditVerdict, parse_audit_line, verify_audit
from coppice.errors import CoppiceError
from coppice.models import *  # noqa: F403

__all__ = [
    "DEFAULT_BASE_URL",
    "DEFAULT_IMAGE",
    "AsyncByteStream",
    "AsyncCommand",
    "AsyncCommandReader",
    "AsyncCommandStream",
    "AsyncCoppice",
    "AsyncForkError",
    "AsyncPagedList",
    "AsyncSandbox",
    "AuditEntry",
    "AuditProblem",
    "AuditVerdict",
    "BuildProgress",
    "ByteStream",
    "Command",
    "CommandChunk",
    "CommandExit",
    "CommandOutput",
    "CommandReader",
    "CommandStream",
    "Coppice",
    "CoppiceError",
    "DroppedOutput",
    "ForkError",
    "OutputChunk",
    "PagedList",
    "Sandbox",
    "parse_audit_line",
    "verify_audit",
]
__all__ += models.__all__

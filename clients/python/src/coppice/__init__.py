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
from coppice._async.command_stream import AsyncCommandByteStream, AsyncCommandStream
from coppice._async.commands import AsyncCommand
from coppice._async.events.event_stream import AsyncEventStream
from coppice._async.file_watch import AsyncFileWatch
from coppice._async.files import AsyncSandboxFiles
from coppice._async.forks import AsyncForkError
from coppice._async.interactive.command_stdin import AsyncCommandStdin
from coppice._async.interactive.shell import AsyncShell
from coppice._async.interactive.spawned_command import AsyncSpawnedCommand
from coppice._async.interactive.terminal import AsyncTerminal
from coppice._async.paged_list import AsyncPagedList
from coppice._async.sandbox import AsyncSandbox
from coppice._core.audit_chain import AuditProblem, AuditVerdict
from coppice._core.base_url import DEFAULT_BASE_URL
from coppice._core.builds import BuildProgress
from coppice._core.events import LostEvents
from coppice._core.file_events import FileChange, FileEvent, FileRename, LostFileEvents
from coppice._core.frames import (
    CommandChunk,
    CommandExit,
    CommandOutput,
    DroppedOutput,
    OutputBytes,
    OutputChunk,
    ShellResult,
)
from coppice._core.image_builds import BuildEvent, BuildStep, CopyStep
from coppice._streams.messages import TerminalExit
from coppice._sync.byte_stream import ByteStream
from coppice._sync.client import Coppice
from coppice._sync.command_reader import CommandReader
from coppice._sync.command_stream import CommandByteStream, CommandStream
from coppice._sync.commands import Command
from coppice._sync.events.event_stream import EventStream
from coppice._sync.file_watch import FileWatch
from coppice._sync.files import SandboxFiles
from coppice._sync.forks import ForkError
from coppice._sync.interactive.command_stdin import CommandStdin
from coppice._sync.interactive.shell import Shell
from coppice._sync.interactive.spawned_command import SpawnedCommand
from coppice._sync.interactive.terminal import Terminal
from coppice._sync.paged_list import PagedList
from coppice._sync.sandbox import Sandbox
from coppice._sync.sandboxes import DEFAULT_IMAGE
from coppice.audit import AuditEntry, parse_audit_line, verify_audit
from coppice.errors import CoppiceError
from coppice.models import *  # noqa: F403
from coppice.organization_audit import (
    OrganizationAuditEntry,
    parse_organization_audit_line,
    verify_organization_audit,
)
from coppice.webhooks import WebhookHeaders, WebhookMessage, WebhookVerificationError, verify_webhook

__all__ = [
    "DEFAULT_BASE_URL",
    "DEFAULT_IMAGE",
    "AsyncByteStream",
    "AsyncCommand",
    "AsyncCommandByteStream",
    "AsyncCommandReader",
    "AsyncCommandStdin",
    "AsyncCommandStream",
    "AsyncCoppice",
    "AsyncEventStream",
    "AsyncFileWatch",
    "AsyncForkError",
    "AsyncPagedList",
    "AsyncSandbox",
    "AsyncSandboxFiles",
    "AsyncShell",
    "AsyncSpawnedCommand",
    "AsyncTerminal",
    "AuditEntry",
    "AuditProblem",
    "AuditVerdict",
    "BuildEvent",
    "BuildProgress",
    "BuildStep",
    "ByteStream",
    "Command",
    "CommandByteStream",
    "CommandChunk",
    "CommandExit",
    "CommandOutput",
    "CommandReader",
    "CommandStdin",
    "CommandStream",
    "Coppice",
    "CoppiceError",
    "CopyStep",
    "DroppedOutput",
    "EventStream",
    "FileChange",
    "FileEvent",
    "FileRename",
    "FileWatch",
    "ForkError",
    "LostEvents",
    "LostFileEvents",
    "OrganizationAuditEntry",
    "OutputBytes",
    "OutputChunk",
    "PagedList",
    "Sandbox",
    "SandboxFiles",
    "Shell",
    "ShellResult",
    "SpawnedCommand",
    "Terminal",
    "TerminalExit",
    "WebhookHeaders",
    "WebhookMessage",
    "WebhookVerificationError",
    "parse_audit_line",
    "parse_organization_audit_line",
    "verify_audit",
    "verify_organization_audit",
    "verify_webhook",
]
__all__ += models.__all__

"""Calls that create sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coppice._async.runtime import INTERRUPTS, shielded
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call
from coppice._core.paths import sandbox_path
from coppice._core.records import parse_record
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo

parse_sandbox = parse_record(SandboxInfo)

# For each of the two requests that end the sandbox of an interrupted create.
_CLEANUP_S = 60.0


async def create_sandbox(transport: AsyncTransport, path: str, body: Mapping[str, Any], key: str | None) -> SandboxInfo:
    """Creates a sandbox.

    The caller of an interrupted create never learns the id, so the sandbox is destroyed: the service answers the same
    request with the same key with the same sandbox. A caller with a key of its own can do so itself, and may want to.
    """
    call = create_call(path, body, key=key, timeout_s=transport.slow_timeout_s)
    try:
        return await transport.call_json(call, parse_sandbox)
    except INTERRUPTS:
        if key is None:
            await shielded(lambda: _destroy_unseen(transport, call))
        raise


async def _destroy_unseen(transport: AsyncTransport, call: Call) -> None:
    try:
        record = await transport.call_json(replace(call, timeout_s=_CLEANUP_S), parse_sandbox)
        path = sandbox_path(record.id)
        await transport.call_empty(Call(method="DELETE", path=path, idempotent=True, timeout_s=_CLEANUP_S))
    except CoppiceError:
        # There is no sandbox, or the service is not reachable: the idle timeout then ends the sandbox.
        return

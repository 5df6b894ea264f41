"""Calls that create sandboxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from coppice._async.runtime import INTERRUPTS, shielded
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call
from coppice._core.paths import sandbox_path
from coppice._core.records import parse_record
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo

Value = TypeVar("Value")

parse_sandbox = parse_record(SandboxInfo)

ENDED = ("destroyed", "failed")
"""States that a sandbox does not leave."""

# For each request that ends the sandboxes of an interrupted call.
_CLEANUP_S = 60.0


async def create_sandbox(transport: AsyncTransport, path: str, body: Mapping[str, Any], key: str | None) -> SandboxInfo:
    """Creates a sandbox. If the call is interrupted, the sandbox is destroyed, as `call_once` says."""
    call = create_call(path, body, key=key, timeout_s=transport.slow_timeout_s)
    return await call_once(transport, call, parse_sandbox, lambda record: [record], is_ours=key is None)


async def call_once(
    transport: AsyncTransport,
    call: Call,
    parse: Callable[[Any], Value],
    list_records: Callable[[Value], list[SandboxInfo]],
    *,
    is_ours: bool,
) -> Value:
    """Makes a call that creates sandboxes.

    The caller of an interrupted call never learns their ids, so they are destroyed: the service answers the same
    request with the same key with the same sandboxes. A caller with a key of its own can do so itself, and may want to.
    """
    try:
        return await transport.call_json(call, parse)
    except INTERRUPTS:
        if is_ours:
            await shielded(lambda: _destroy_unseen(transport, call, parse, list_records))
        raise


async def _destroy_unseen(
    transport: AsyncTransport,
    call: Call,
    parse: Callable[[Any], Value],
    list_records: Callable[[Value], list[SandboxInfo]],
) -> None:
    try:
        created = await transport.call_json(replace(call, timeout_s=_CLEANUP_S), parse)
    except CoppiceError:
        # There is no sandbox, or the service is not reachable: the idle timeout then ends the sandbox.
        return
    for record in list_records(created):
        path = sandbox_path(record.id)
        # The same holds for each.
        with suppress(CoppiceError):
            await transport.call_empty(Call(method="DELETE", path=path, idempotent=True, timeout_s=_CLEANUP_S))

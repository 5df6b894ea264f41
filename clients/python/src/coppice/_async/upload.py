"""Sends content of any kind as the body of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from coppice._async.runtime import Content, read_chunks
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call

Value = TypeVar("Value")

# Bounds the time of an upload of known size. Every usable link is faster.
_SLOWEST_BYTES_PER_SECOND = 32_768


async def send_content(transport: AsyncTransport, call: Call, content: Content, parse: Callable[[Any], Value]) -> Value:
    """Sends the request with the content as its body."""
    timeout_s = transport.timeout_s if call.timeout_s is None else call.timeout_s
    call = replace(call, headers={"content-type": "application/octet-stream"})
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        total_s = timeout_s + len(content) / _SLOWEST_BYTES_PER_SECOND
        return await transport.call_json(replace(call, content=bytes(content), timeout_s=total_s), parse)
    # A stream can be read only once, so the request cannot be retried.
    once = replace(call, content=read_chunks(content), idempotent=False, stall_s=timeout_s)
    return await transport.call_json(once, parse)

"""What differs between the two clients beyond `async` and `await`. The synchronous one has a module of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, BinaryIO, TypeVar

import httpx

Value = TypeVar("Value")

Listener = Callable[[str], object]
"""Called with a piece of output. It may be a coroutine function; the command then waits for it."""
ByteSource = BinaryIO | Iterable[bytes] | AsyncIterable[bytes]

INTERRUPTS: tuple[type[BaseException], ...] = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""What ends a call from outside. On Ctrl-C, `asyncio.run` cancels the task."""
Content = str | bytes | bytearray | memoryview | ByteSource
"""Content of an upload. A text is written as UTF-8."""
READ_BYTES = 65_536
StreamTransport = httpx.AsyncBaseTransport
"""Of WebSockets, which have an event loop in both clients."""

sleep = asyncio.sleep
Lock = asyncio.Lock


async def shielded(work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
    """Does work that a cancellation of the caller does not interrupt. A second cancellation stops the wait for it."""
    task = asyncio.ensure_future(work())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The connections of the work must not be closed before its end.
        await asyncio.wait([task])
        raise


async def call_listener(listener: Listener | None, text: str) -> None:
    result = listener(text) if listener is not None else None
    if inspect.isawaitable(result):
        await result


async def read_chunks(source: ByteSource) -> AsyncIterator[bytes]:
    """Yields the bytes of a file or an iterable. A file is read in a thread, so that it does not block the loop."""
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield require_bytes(chunk)
    elif hasattr(source, "read"):
        while chunk := await asyncio.to_thread(source.read, READ_BYTES):
            yield require_bytes(chunk)
    else:
        for chunk in source:
            yield require_bytes(chunk)


def require_bytes(chunk: object) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError("content must yield bytes: open the file in binary mode")

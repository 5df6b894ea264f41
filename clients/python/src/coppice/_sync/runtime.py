"""What differs between the two clients beyond `async` and `await`. Written by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

import httpx

Value = TypeVar("Value")

Listener = Callable[[str], object]
"""Called with a piece of output. The command waits for it."""
ByteSource = BinaryIO | Iterable[bytes]

INTERRUPTS: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)
"""What ends a call from outside: Ctrl-C, or a signal handler that exits."""
Content = str | bytes | bytearray | memoryview | ByteSource
"""Content of an upload. A text is written as UTF-8."""
READ_BYTES = 65_536
StreamTransport = httpx.AsyncBaseTransport
"""Of WebSockets, which have an event loop in both clients."""

sleep = time.sleep
Lock = threading.Lock


def shielded(work: Callable[[], Value]) -> Value:
    """Does work. A second Ctrl-C interrupts it."""
    return work()


def call_listener(listener: Listener | None, text: str) -> None:
    if listener is not None:
        listener(text)


def read_chunks(source: ByteSource) -> Iterator[bytes]:
    """Yields the bytes of a file or an iterable."""
    if hasattr(source, "read"):
        while chunk := source.read(READ_BYTES):
            yield require_bytes(chunk)
    else:
        for chunk in source:
            yield require_bytes(chunk)


def require_bytes(chunk: object) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    raise TypeError("content must yield bytes: open the file in binary mode")

"""One WebSocket of a sandbox. Received items are queued for a reader, sent messages wait for room, and the connection
ends with one reason.

    connect ─► open ─┬─ final frame ─────────► final() returns; queued items can be read, then the loop ends
                     ├─ error frame, close ──► final() raises; queued items can be read, then the loop raises
                     └─ silence, aclose() ───► final() raises; after aclose() the queue is dropped
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import httpcore
import httpx

from coppice._streams.stream_errors import broken_error, close_error, slow_error, stream_error
from coppice._streams.unread_queue import UnreadQueue
from coppice._streams.web_socket import Closed, WebSocket
from coppice.errors import CoppiceError

Item = TypeVar("Item")
Final = TypeVar("Final")

MAX_MESSAGE_BYTES = 2**20
"""Largest message that the service accepts. It closes the connection on a larger one."""
_MAX_OUTGOING_BYTES = 2**20
# The service sends a ping every 20 s.
SILENCE_S = 90.0
# For the answer to a close.
CLOSE_S = 3.0


@dataclass(frozen=True, slots=True)
class Ended(Generic[Final]):
    """The message that ends a stream."""

    final: Final


@dataclass(frozen=True, kw_only=True)
class StreamRequest(Generic[Item, Final]):
    """A WebSocket to open, and the format of its messages."""

    path: str
    """Below the base URL."""
    query: str = ""
    parse: Callable[[str | bytes, str], Item | Ended[Final] | None]
    """Parses a message; the second argument is the label. Returns None for a message to ignore."""
    stall_s: float | None = None
    """Seconds after which sending fails if the service accepts no data. Default: the timeout of the client."""
    first: str | None = field(default=None, repr=False)
    """The message that begins it. Not shown, because it may hold secrets."""

    @property
    def label(self) -> str:
        return f"GET {self.path}"


class StreamConnection(Generic[Item, Final]):
    """One WebSocket with a queue of received items. See the comment at the top of this file."""

    def __init__(self, socket: WebSocket, request: StreamRequest[Item, Final], *, timeout_s: float) -> None:
        self.label = request.label
        self._socket = socket
        self._parse = request.parse
        self._stall_s = timeout_s if request.stall_s is None else request.stall_s
        self._silence_s = max(SILENCE_S, timeout_s)
        self._unread: UnreadQueue[Item] = UnreadQueue()
        self._sending = asyncio.Lock()
        self._outcome: Ended[Final] | CoppiceError | None = None
        self._ended = asyncio.Event()
        if request.first is not None:
            self._socket.send(request.first)
        self._life = asyncio.create_task(self._live())

    @property
    def has_ended(self) -> bool:
        """True after the final frame, a failure or `aclose()`."""
        return self._outcome is not None

    @property
    def result(self) -> Final | None:
        """What the final frame held. None before it."""
        return self._outcome.final if isinstance(self._outcome, Ended) else None

    async def final(self) -> Final:
        """Waits for the final frame. It needs no reader: unread items are dropped once they exceed the limit."""
        self._unread.expect_end()
        await self._ended.wait()
        self._raise_failure()
        return cast(Ended[Final], self._outcome).final

    async def begin_reading(self) -> None:
        """Registers a reader. Raises code `reader_too_slow` when items were dropped."""
        if self._unread.has_let_go:
            raise slow_error(self.label)
        self._unread.begin_reading()

    async def take(self) -> Item | None:
        """Waits for the next item. Returns None after the final frame. Raises the reason of another end."""
        item = await self._unread.take()
        if item is None:
            self._raise_failure()
        return item

    async def put_back(self, item: Item | None) -> None:
        """Undoes `take()`, for a reader that was interrupted."""
        if item is not None:
            self._unread.put_back(item)

    async def end_reading(self) -> None:
        """Undoes `begin_reading()`."""
        self._unread.end_reading()

    async def items(self) -> AsyncIterator[Item]:
        """Yields the received items. There may be one reader at a time; the next one continues where it stopped."""
        await self.begin_reading()
        try:
            while (item := await self.take()) is not None:
                yield item
        finally:
            self._unread.end_reading()

    async def send(self, data: str | bytes) -> None:
        """Sends a message after the earlier ones, when there is room.

        Raises code `closed`, or the reason of the end, once the connection has ended; code `timeout` when the service
        accepts no data; and `ValueError` for a message over 1 MiB.
        """
        require_message_size(data)
        async with self._sending:
            while self._outcome is None and self._socket.outgoing_bytes > _MAX_OUTGOING_BYTES:
                self._socket.progress.clear()
                try:
                    await asyncio.wait_for(self._socket.progress.wait(), self._stall_s)
                except asyncio.TimeoutError:
                    what = f"the service accepted no input for {self._stall_s:.0f} s"
                    raise stream_error(self.label, "timeout", what) from None
            await self.send_now(data)

    async def send_now(self, data: str | bytes) -> None:
        """Sends a small message without waiting for room. Raises as `send` does once the connection has ended."""
        if self._outcome is not None:
            self._raise_failure()
            raise stream_error(self.label, "closed", "it has ended")
        self._socket.send(data)

    async def aclose(self, code: str = "closed") -> None:
        """Closes the connection. Pending waits and reads raise an error of this code."""
        self._end(stream_error(self.label, code, "this client closed the connection"), drop=True)
        # A cancelled caller must not leave the connection open, so the task ends by itself.
        await asyncio.wait([self._life], timeout=CLOSE_S)
        if not self._life.done():
            self._life.cancel()
            await asyncio.wait([self._life], timeout=CLOSE_S)

    async def _live(self) -> None:
        writing = asyncio.create_task(self._write())
        try:
            await self._read()
            self._socket.start_close()
            with suppress(asyncio.TimeoutError, OSError):
                await asyncio.wait_for(self._wait_for_close(), CLOSE_S)
        finally:
            # Only a loop that ends cancels this task.
            self._end(stream_error(self.label, "closed", "the event loop ended"), drop=True)
            writing.cancel()
            with suppress(Exception):
                await self._socket.aclose()

    async def _read(self) -> None:
        try:
            while self._outcome is None:
                await self._unread.wait_for_room()
                if self._outcome is None:
                    self._receive(await self._socket.receive(self._silence_s))
        except CoppiceError as error:
            self._end(error, drop=False)
        except (httpcore.TimeoutException, httpx.TimeoutException):
            what = f"nothing arrived for {self._silence_s:.0f} s, not even a ping"
            self._end(stream_error(self.label, "timeout", what), drop=False)
        except UnicodeDecodeError:
            self._end(stream_error(self.label, "invalid_response", "a message is not UTF-8"), drop=False)
        except Exception as error:
            # A transport of the caller may raise anything.
            self._end(broken_error(self.label, error), drop=False)

    def _receive(self, message: str | bytes | Closed) -> None:
        if self._outcome is not None:
            return
        if isinstance(message, Closed):
            raise close_error(self.label, message)
        parsed = self._parse(message, self.label)
        if isinstance(parsed, Ended):
            self._end(parsed, drop=False)
        elif parsed is not None:
            self._unread.push(parsed, len(message))

    async def _wait_for_close(self) -> None:
        with suppress(Exception):
            while not isinstance(await self._socket.receive(CLOSE_S), Closed):
                pass
            # The answer to the service's close.
            while self._socket.outgoing_bytes > 0:
                self._socket.progress.clear()
                await self._socket.progress.wait()

    async def _write(self) -> None:
        try:
            await self._socket.write()
        except Exception as error:
            self._end(broken_error(self.label, error), drop=False)

    def _end(self, outcome: Ended[Final] | CoppiceError, *, drop: bool) -> None:
        """Ends the connection. It has no effect once it has ended."""
        if self._outcome is not None:
            return
        self._outcome = outcome
        self._unread.end(drop=drop)
        self._ended.set()
        # Those that wait for room learn of the end.
        self._socket.progress.set()
        # The task may be waiting for a message: the service answers the close.
        with suppress(OSError):
            self._socket.start_close()

    def _raise_failure(self) -> None:
        if isinstance(self._outcome, CoppiceError):
            raise self._outcome.with_traceback(None)


def require_message_size(data: str | bytes) -> None:
    """Raises `ValueError` for a message that is too large: the service would close the connection and its command."""
    size_bytes = len(data.encode()) if isinstance(data, str) else len(data)
    if size_bytes > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message of {size_bytes} bytes exceeds the service's limit of {MAX_MESSAGE_BYTES} bytes; "
            "upload a file instead"
        )

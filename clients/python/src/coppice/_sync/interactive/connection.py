"""WebSockets of a client, which a thread serves. Written by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import httpx

from coppice._async.transport import AsyncTransport
from coppice._core.frames import OutputChunk
from coppice._core.settings import Settings
from coppice._streams.loop_thread import LoopThread
from coppice._streams.shell_runs import ShellFrame
from coppice._streams.shell_runs import ShellRuns as AsyncShellRuns
from coppice._streams.stream_connection import StreamConnection, StreamRequest
from coppice.errors import CoppiceError

Item = TypeVar("Item")
Final = TypeVar("Final")


class Connection(Generic[Item, Final]):
    """One WebSocket. Its methods are those of `StreamConnection`."""

    def __init__(self, thread: LoopThread, inner: StreamConnection[Item, Final]) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def has_ended(self) -> bool:
        return self._inner.has_ended

    @property
    def result(self) -> Final | None:
        return self._inner.result

    def final(self) -> Final:
        return self._thread.call(self._inner.final)

    def items(self) -> Iterator[Item]:
        self._thread.call(self._inner.begin_reading)
        try:
            while (item := self._thread.call(self._inner.take, self._inner.put_back)) is not None:
                yield item
        finally:
            if self._thread.is_usable:
                self._thread.call(self._inner.end_reading)

    def send(self, data: str | bytes) -> None:
        self._thread.call(lambda: self._inner.send(data))

    def send_now(self, data: str | bytes) -> None:
        self._thread.call(lambda: self._inner.send_now(data))

    def close(self) -> None:
        # The client closes its connections when it is closed itself.
        if self._thread.is_usable:
            self._thread.call(self._inner.aclose)


class ShellRuns:
    """The runs of one shell. Its methods are those of the asynchronous `ShellRuns`."""

    def __init__(self, thread: LoopThread, inner: AsyncShellRuns) -> None:
        self._thread = thread
        self._inner = inner

    def begin(self, command: str) -> str:
        return self._thread.call(lambda: self._inner.begin(command), self._inner.leave)

    def take(self, run_id: str) -> OutputChunk | int:
        return self._thread.call(lambda: self._inner.take(run_id))

    def leave(self, run_id: str) -> None:
        if self._thread.is_usable:
            self._thread.call(lambda: self._inner.leave(run_id))

    def wait_closed(self) -> None:
        self._thread.call(self._inner.wait_closed)

    def close(self) -> None:
        if self._thread.is_usable:
            self._thread.call(self._inner.aclose)


class Streams:
    """Opens WebSockets, and closes them with the client. The thread starts with the first one."""

    def __init__(
        self,
        transport: Any,
        settings: Settings,
        http_transport: httpx.BaseTransport | None,
        stream_transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._settings = settings
        self._stream_transport = stream_transport
        self._is_replaced = http_transport is not None and stream_transport is None
        self._is_closed = False
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._transport: AsyncTransport | None = None

    def open(self, request: StreamRequest[Item, Final]) -> Connection[Item, Final]:
        """Opens a WebSocket."""
        thread, transport = self._start()
        inner = thread.call(lambda: transport.streams.open(request), StreamConnection.aclose)
        return Connection(thread, inner)

    def open_shell(self, request: StreamRequest[ShellFrame, bool]) -> ShellRuns:
        """Opens a shell."""
        thread, transport = self._start()
        inner = thread.call(lambda: transport.streams.open_shell(request), AsyncShellRuns.aclose)
        return ShellRuns(thread, inner)

    def close(self) -> None:
        """Closes all WebSockets, and ends the thread."""
        with self._lock:
            self._is_closed = True
            thread, transport = self._thread, self._transport
            self._thread = self._transport = None
        if thread is None or transport is None or not thread.is_usable:
            return
        try:
            thread.call(transport.aclose)
        finally:
            thread.close()

    def _start(self) -> tuple[LoopThread, AsyncTransport]:
        if self._is_replaced:
            raise CoppiceError(
                "http_transport of this client cannot open WebSockets: also pass stream_transport, an asynchronous one",
                status=0,
                code="no_websocket",
            )
        with self._lock:
            if self._is_closed:
                raise RuntimeError("Cannot open a WebSocket, as the client has been closed.")
            if self._thread is None or self._transport is None or not self._thread.is_usable:
                self._thread = LoopThread()
                self._transport = AsyncTransport(self._settings, self._stream_transport)
            return self._thread, self._transport

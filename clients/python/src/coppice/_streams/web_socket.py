"""One WebSocket on a connection that httpx has upgraded.

    send() ─► outgoing bytes ─► write() ──► network ──► receive() ─► whole messages
                  ▲                                         │
                  └───────────── pongs, close ──────────────┘

Reading never waits for writing: the service may wait until its output is read before it reads input. The frames are
those of the package `websockets`, without its connections: these follow redirects with the headers of the first
request, and answer no ping while a reader is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import httpx
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

NORMAL_CLOSE = 1000
READ_BYTES = 65_536
# A frame holds at most 1 MiB of output, which JSON can make six times as long.
_MAX_MESSAGE_BYTES = 8 * 2**20
# Far above what `send` lets wait. Only a peer that sends pings and reads no pongs gets there.
_MAX_OUTGOING_BYTES = 8 * 2**20


# The package would log the frames, which hold environment variables and input.
_SILENT = logging.Logger("coppice.websocket", logging.CRITICAL + 1)


class Closed:
    """The end of a WebSocket."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason


class WebSocket:
    """Sends and receives messages. One task calls `receive`, another one `write`."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._network: Any = response.extensions["network_stream"]
        self._protocol = Protocol(Side.CLIENT, max_size=_MAX_MESSAGE_BYTES, logger=_SILENT)
        self._messages: deque[tuple[bytes, bool]] = deque()
        self._parts: list[bytes] = []
        self._is_text = False
        self._outgoing: deque[bytes] = deque()
        self._has_outgoing = asyncio.Event()
        self.progress = asyncio.Event()
        """Set when bytes were written."""
        self.outgoing_bytes = 0
        """Bytes that wait to be written."""

    async def receive(self, timeout_s: float) -> str | bytes | Closed:
        """Returns the next message. Raises if the connection breaks, or no byte arrives in time."""
        while not self._messages and not self._is_closed:
            data = await self._network.read(READ_BYTES, timeout=timeout_s)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._take(event)
            self._queue()
        if not self._messages:
            return self._closed()
        data, is_text = self._messages.popleft()
        return data.decode() if is_text else data

    def send(self, data: str | bytes) -> None:
        """Queues a message. It does nothing once the connection closes."""
        if self._protocol.state is not State.OPEN:
            return
        if isinstance(data, str):
            self._protocol.send_text(data.encode())
        else:
            self._protocol.send_binary(data)
        self._queue()

    def start_close(self) -> None:
        """Queues a close frame, unless there is one."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(NORMAL_CLOSE)
            self._queue()

    async def write(self) -> None:
        """Writes what is queued, until it is cancelled. Raises an error of httpcore."""
        while True:
            while self._outgoing:
                data = self._outgoing.popleft()
                await self._network.write(data)
                self.outgoing_bytes -= len(data)
                self.progress.set()
            self._has_outgoing.clear()
            await self._has_outgoing.wait()

    async def aclose(self) -> None:
        """Closes the connection at once."""
        await self._response.aclose()

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        self._messages.append((b"".join(self._parts), self._is_text))
        self._parts = []

    def _queue(self) -> None:
        for data in self._protocol.data_to_send():
            # An empty text stands for the end of the stream, which `aclose` makes.
            for start in range(0, len(data), READ_BYTES):
                self._outgoing.append(data[start : start + READ_BYTES])
            self.outgoing_bytes += len(data)
        self._has_outgoing.set()
        if self.outgoing_bytes > _MAX_OUTGOING_BYTES:
            raise OSError("the service reads nothing")

    @property
    def _is_closed(self) -> bool:
        protocol = self._protocol
        return protocol.state is State.CLOSED or protocol.close_rcvd is not None or protocol.parser_exc is not None

    def _closed(self) -> Closed:
        received = self._protocol.close_rcvd
        if received is not None:
            return Closed(int(received.code), received.reason)
        problem = self._protocol.parser_exc
        # Its end without a close frame is an EOFError.
        reason = "" if problem is None or isinstance(problem, EOFError) else str(problem)
        return Closed(1006, reason)

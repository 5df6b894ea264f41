"""The service's end of a WebSocket on loopback."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

DEADLINE_S = 10.0


class ClientLeftError(Exception):
    """The client closed the connection."""


class SocketPeer:
    """Sends and receives messages. A text is JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._protocol = Protocol(Side.SERVER, max_size=2**20)
        self._messages: deque[Any] = deque()
        self._pongs: deque[bytes] = deque()

    def next(self, deadline_s: float = DEADLINE_S) -> Any:
        """Returns the next message: the parsed JSON of a text, else bytes. Raises `ClientLeftError` at the end."""
        self.connection.settimeout(deadline_s)
        while not self._messages:
            self._receive()
        return self._messages.popleft()

    def pong(self) -> bytes:
        """Returns the content of the next pong."""
        self.connection.settimeout(DEADLINE_S)
        while not self._pongs:
            self._receive()
        return self._pongs.popleft()

    def left(self) -> int | None:
        """Waits until the client closes the connection. Returns its close code, or None without a close frame."""
        try:
            while True:
                self.next()
        except (ClientLeftError, ConnectionError):
            return None if self._protocol.close_rcvd is None else int(self._protocol.close_rcvd.code)

    def send(self, *frames: Any) -> None:
        for frame in frames:
            if isinstance(frame, bytes):
                self._protocol.send_binary(frame)
            else:
                self._protocol.send_text(json.dumps(frame, ensure_ascii=False).encode())
            self._flush()

    def send_parts(self, text: str, *more: str) -> None:
        """Sends one message in several frames, with a ping between them."""
        self._protocol.send_text(text.encode(), fin=False)
        for number, part in enumerate(more, start=1):
            self._protocol.send_ping(b"between")
            self._protocol.send_continuation(part.encode(), fin=number == len(more))
        self._flush()

    def send_raw(self, data: bytes) -> None:
        self.connection.sendall(data)

    def ping(self, data: bytes) -> None:
        self._protocol.send_ping(data)
        self._flush()

    def end(self, *frames: Any, code: int = 1000, reason: str = "") -> None:
        """Sends the frames, then closes as the service does."""
        self.send(*frames)
        self._protocol.send_close(code, reason)
        self._flush()
        self.left()

    def _receive(self) -> None:
        if self._protocol.close_rcvd is not None:
            raise ClientLeftError
        data = self.connection.recv(65_536)
        if not data:
            raise ClientLeftError
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            assert isinstance(event, Frame)
            if event.opcode is Opcode.TEXT:
                self._messages.append(json.loads(bytes(event.data)))
            elif event.opcode is Opcode.BINARY:
                self._messages.append(bytes(event.data))
            elif event.opcode is Opcode.PONG:
                self._pongs.append(bytes(event.data))
        self._flush()

    def _flush(self) -> None:
        self.connection.settimeout(DEADLINE_S)
        for data in self._protocol.data_to_send():
            self.connection.sendall(data)


def script(*steps: Callable[[SocketPeer], object]) -> Callable[[SocketPeer], None]:
    """Returns a service that reads the first message, and then takes the steps."""

    def serve(peer: SocketPeer) -> None:
        peer.next()
        for step in steps:
            step(peer)

    return serve

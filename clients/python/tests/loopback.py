"""A real HTTP server on loopback, and clients of it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.utils import accept_key

from coppice import AsyncCoppice, Coppice
from socket_peer import ClientLeftError, SocketPeer

TEST_KEY = "cop_live_us_" + "k" * 40
SANDBOX_ID = "run0123456789abcdef0123"
COMMAND_ID = "cmd0123456789abcdef0123"
DEADLINE_S = 10.0
# An authority, and a certificate of 127.0.0.1. The key of the authority was deleted.
TLS = Path(__file__).parent / "tls"


@dataclass
class Seen:
    """A request that the server received."""

    method: str
    url: str
    """Path and query as sent."""
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """Answers one request."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler

    def json(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.body(json.dumps(body).encode(), status, {"content-type": "application/json", **(headers or {})})

    def body(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.begin(status, {**(headers or {}), "content-length": str(len(content))})
        self._handler.wfile.write(content)

    def error(self, status: int, code: str, message: str = "no", headers: dict[str, str] | None = None) -> None:
        self.json({"error": {"code": code, "message": message, "request_id": "req0a1b"}}, status, headers)

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self._handler.send_response_only(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def events(self, frames: Iterable[Any], *, cut: bool = False) -> None:
        """Sends server-sent events. With `cut` the connection breaks after them."""
        self.begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for frame in frames:
            self.chunk(f": a comment\n\ndata: {json.dumps(frame)}\n\n".encode())
        if cut:
            self.cut()
        else:
            self._handler.wfile.write(b"0\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self._handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def cut(self) -> None:
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def upgrade(self, key: str) -> SocketPeer:
        """Accepts a WebSocket."""
        accept = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept_key(key)}
        self.begin(101, accept)
        self._handler.wfile.flush()
        self._handler.close_connection = True
        return SocketPeer(self._handler.connection)

    def wait_for_end(self) -> bool:
        """Returns true when the client has closed the connection."""
        self._handler.connection.settimeout(DEADLINE_S)
        return not self._handler.connection.recv(1)


Answer = Callable[[Seen, Reply], None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    answer: Answer
    seen: list[Seen]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        seen = Seen(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self._read_body())
        self.server.seen.append(seen)
        self.server.answer(seen, Reply(self))
        self.wfile.flush()

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class LoopbackServer:
    """Passes each request to `answer`."""

    def __init__(self, *, tls: bool = False) -> None:
        self._scheme = "https" if tls else "http"
        self._server = _Server(("127.0.0.1", 0), _Handler)
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(TLS / "server.pem")
            # The thread of a connection does the handshake.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.seen = []
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> LoopbackServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(DEADLINE_S)
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    @property
    def seen(self) -> list[Seen]:
        return self._server.seen

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    @property
    def lines(self) -> list[str]:
        """Method and address of each request."""
        return [f"{one.method} {one.url}" for one in self.seen]

    def on_request(self, answer: Answer) -> None:
        self._server.answer = answer

    def on_socket(self, serve: Callable[[SocketPeer], object]) -> None:
        """Accepts WebSockets, and gives other requests the record of a sandbox."""

        def answer(seen: Seen, reply: Reply) -> None:
            key = seen.headers.get("sec-websocket-key")
            if key is None:
                reply.json(wire_record())
                return
            try:
                serve(reply.upgrade(key))
            except (ClientLeftError, ConnectionError):
                # A test may leave its connection.
                return

        self.on_request(answer)

    def answer_json(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Gives the same answer to every request."""
        self.on_request(lambda _, reply: reply.json(body, status, headers))

    def client(self, **options: Any) -> Coppice:
        return Coppice(api_key=TEST_KEY, base_url=self.url, **options)

    def async_client(self, **options: Any) -> AsyncCoppice:
        return AsyncCoppice(api_key=TEST_KEY, base_url=self.url, **options)


def in_turn(*answers: Answer) -> Answer:
    """Gives each answer once, and the last one to all later requests."""
    left = list(answers)
    return lambda seen, reply: (left.pop(0) if len(left) > 1 else left[0])(seen, reply)


def wire_record(**changes: Any) -> dict[str, Any]:
    """Returns a sandbox record in its wire form."""
    return {
        "id": SANDBOX_ID,
        "status": "running",
        "status_reason": None,
        "operation": None,
        "team_id": "team01",
        "image": "docker.io/library/node:22-slim@sha256:00",
        "region": "us",
        "vcpus": 2,
        "mem_mib": 2048,
        "disk_mib": 4096,
        "timeout": 300,
        "max_lifetime": None,
        "expires_at": "2026-11-21T06:35:00.000Z",
        "auto_hibernate": False,
        "disk": None,
        "labels": {},
        "parent_id": None,
        "audit_key_id": None,
        "create_ms": 81.5,
        "created_at": "2026-11-21T06:30:00.000Z",
        "hibernated_at": None,
        "billed_ms": 0,
        "running_since": None,
        "ended_at": None,
        **changes,
    }


def wire_command(**changes: Any) -> dict[str, Any]:
    """Returns a command record in its wire form."""
    return {
        "id": COMMAND_ID,
        "run_id": SANDBOX_ID,
        "command": "make",
        "tag": None,
        "state": "running",
        "exit_code": None,
        "timed_out": False,
        "started_at": "2026-11-21T06:30:00.000Z",
        "ended_at": None,
        "output_bytes": 0,
        "dropped_bytes": 0,
        **changes,
    }


DESTROYED = {"status": "destroyed", "cpu_ms": 1.5, "mem_peak_bytes": 2, "uptime_ms": 3, "cost_cents": 0.25}


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that a thread of the server fulfils."""
    ends_at_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at_s, "the condition is not fulfilled"
        time.sleep(0.01)


def refusing_url() -> str:
    """Returns the URL of a loopback port on which no process listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"

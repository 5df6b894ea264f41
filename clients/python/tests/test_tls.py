"""Certificates are verified, also those of WebSockets."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from coppice import Coppice, CoppiceError
from loopback import SANDBOX_ID, TEST_KEY, TLS, LoopbackServer
from socket_peer import SocketPeer

PIECES = 200


def echo(peer: SocketPeer) -> None:
    peer.next()
    for _ in range(PIECES):
        peer.send({"type": "stdout", "data": peer.next()["data"]})
    peer.end({"type": "exit", "data": "0", "timed_out": False})


def test_an_unknown_certificate_is_refused() -> None:
    with LoopbackServer(tls=True) as server, server.client(max_retries=0) as client:
        server.answer_json([])
        with pytest.raises(CoppiceError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            client.network_profiles()
    assert caught.value.code == "connection_failed"
    assert server.seen == []


def test_an_authority_of_the_environment_is_trusted_by_both_kinds_of_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
    with LoopbackServer(tls=True) as server, server.client() as client:
        server.on_socket(echo)
        sandbox = client.sandboxes.get(SANDBOX_ID)
        assert sandbox is not None
        text = "x" * (PIECES * 65_536)
        with sandbox.spawn("cat") as command:
            writing = threading.Thread(target=command.stdin.write, args=(text,))
            writing.start()
            assert "".join(chunk.data for chunk in command) == text
            writing.join()


async def test_the_asynchronous_client_trusts_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
    with LoopbackServer(tls=True) as server:
        server.on_socket(echo)
        async with server.async_client() as client:
            sandbox = await client.sandboxes.get(SANDBOX_ID)
            assert sandbox is not None
            async with await sandbox.spawn("cat") as command:
                writing = asyncio.create_task(command.stdin.write("a" * (PIECES * 65_536)))
                received = 0
                async for chunk in command:
                    received += len(chunk.data)
                await writing
    assert received == PIECES * 65_536


def test_a_certificate_of_another_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))
    with LoopbackServer(tls=True) as server:
        server.answer_json([])
        address = server.url.replace("127.0.0.1", "another.example")
        with Coppice(api_key=TEST_KEY, base_url=address, max_retries=0) as client:
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolve(server))
            with pytest.raises(CoppiceError, match="CERTIFICATE_VERIFY_FAILED"):
                client.network_profiles()
        assert server.seen == []


def resolve(server: LoopbackServer) -> list[tuple[object, ...]]:
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)]

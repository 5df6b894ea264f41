"""Spawned commands and terminals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from coppice import AsyncSandbox, AsyncSpawnedCommand, CommandExit, CoppiceError, OutputChunk, TerminalExit
from coppice._async.client import AsyncCoppice
from coppice._async.runtime import sleep
from loopback import SANDBOX_ID, TEST_KEY, LoopbackServer, in_turn
from socket_peer import SocketPeer, script

RUN = f"/v1/runs/{SANDBOX_ID}"


def out(data: str) -> dict[str, Any]:
    return {"type": "stdout", "data": data}


def end(code: str = "0") -> dict[str, Any]:
    return {"type": "exit", "data": code, "timed_out": False}


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits for a condition. The loop has to run meanwhile."""
    ends_at_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_at_s, "the condition is not fulfilled"
        await sleep(0.01)


async def the_sandbox(client: AsyncCoppice) -> AsyncSandbox:
    sandbox = await client.sandboxes.get(SANDBOX_ID)
    assert sandbox is not None
    return sandbox


async def read(command: AsyncSpawnedCommand, pieces: list[str]) -> None:
    async for chunk in command:
        pieces.append(chunk.data)


async def test_a_spawned_command_yields_its_output_and_its_end(server: LoopbackServer) -> None:
    requests: list[Any] = []

    def serve(peer: SocketPeer) -> None:
        requests.append(peer.next())
        peer.send_parts('{"type": "stdout", "da', 'ta": "', 'ä"}')
        peer.end({"type": "news", "data": "of a later service"}, {"type": "stderr", "data": "b"}, end("3"))

    server.on_socket(serve)
    async with server.async_client() as client:
        sandbox = await the_sandbox(client)
        async with await sandbox.spawn("make", timeout=5, cwd="/tmp", env={"A": "1"}, user="node") as command:
            assert [chunk async for chunk in command] == [OutputChunk("stdout", "ä"), OutputChunk("stderr", "b")]
            assert await command.wait() == command.exit == CommandExit(3, timed_out=False)
            await command.kill()
            await command.stdin.end()
            with pytest.raises(CoppiceError) as caught:
                await command.stdin.write("late")
            assert caught.value.code == "closed"
    assert requests == [{"command": "make", "timeout": 5, "cwd": "/tmp", "env": {"A": "1"}, "user": "node"}]
    assert server.last.url == f"{RUN}/exec/ws"
    assert server.last.headers["authorization"] == f"Bearer {TEST_KEY}"


async def test_a_later_loop_continues_where_the_last_one_stopped(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.end(out("a"), out("b"), end())))
    async with server.async_client() as client:
        command = await (await the_sandbox(client)).spawn("make")
        async for chunk in command:
            assert chunk.data == "a"
            break
        assert [chunk.data async for chunk in command] == ["b"]


async def test_input_is_sent_in_pieces_between_characters(server: LoopbackServer) -> None:
    messages: list[Any] = []

    def serve(peer: SocketPeer) -> None:
        peer.next()
        while not messages or messages[-1]["type"] != "stdin_eof":
            messages.append(peer.next())
        peer.end(end())

    server.on_socket(serve)
    text = "😀" * 70_000 + "end"
    async with server.async_client() as client:
        command = await (await the_sandbox(client)).spawn("cat")
        await command.stdin.write(text.encode()[:5])
        await command.stdin.write(text.encode()[5:])
        await command.stdin.write("x" + text)
        await command.stdin.end()
        await command.stdin.end()
        await command.wait()
    assert "".join(one.get("data", "") for one in messages) == text + "x" + text


async def test_wrong_input_is_refused_without_showing_it(server: LoopbackServer) -> None:
    messages: list[Any] = []
    server.on_socket(script(lambda peer: messages.append(peer.next()), lambda peer: peer.left()))
    async with server.async_client() as client:
        async with await (await the_sandbox(client)).spawn("cat") as command:
            with pytest.raises(ValueError, match="UTF-8") as caught:
                await command.stdin.write(b"secret\xff")
            assert "secret" not in repr(caught.value)
            assert caught.value.__cause__ is None
            await command.stdin.write("é".encode()[:1])
            with pytest.raises(ValueError, match="UTF-8"):
                await command.stdin.end()
            await command.stdin.end()
            with pytest.raises(ValueError, match="after end"):
                await command.stdin.write("more")
            with pytest.raises(ValueError, match="signal"):
                await command.kill("term")
            await eventually(lambda: messages == [{"type": "stdin_eof"}])


async def test_writing_waits_for_the_service_and_fails_after_the_time_limit(server: LoopbackServer) -> None:
    done = threading.Event()
    server.on_socket(script(lambda _: done.wait(30)))
    async with server.async_client(timeout_ms=1000) as client:
        async with await (await the_sandbox(client)).spawn("cat", timeout=0) as command:
            with pytest.raises(CoppiceError) as caught:
                await command.stdin.write("x" * (32 * 2**20))
            assert caught.value.code == "timeout"
            assert command._connection.has_ended is False
            with pytest.raises(ValueError, match="gap"):
                await command.stdin.write("after the gap")
            done.set()


async def test_the_end_of_a_block_closes_and_pending_reads_fail(server: LoopbackServer) -> None:
    codes: list[int | None] = []
    server.on_socket(script(lambda peer: peer.send(out("x")), lambda peer: codes.append(peer.left())))
    async with server.async_client() as client:
        async with await (await the_sandbox(client)).spawn("sleep 60") as command:
            async for _ in command:
                break
        for wait in (command.wait, command.__aiter__().__anext__):
            with pytest.raises(CoppiceError) as caught:
                await wait()
            assert caught.value.code == "closed"
        await eventually(lambda: codes == [1000])


async def test_the_client_closes_its_connections(server: LoopbackServer) -> None:
    codes: list[int | None] = []
    server.on_socket(script(lambda peer: codes.append(peer.left())))
    async with server.async_client() as client:
        command = await (await the_sandbox(client)).spawn("sleep 60")
        assert not command._connection.has_ended
    await eventually(lambda: codes == [1000])
    with pytest.raises(CoppiceError) as caught:
        await command.wait()
    assert caught.value.code == "closed"


async def test_ends_of_connections_are_errors_after_the_output(server: LoopbackServer) -> None:
    error = {"type": "error", "error": {"code": "guest_unreachable", "message": "gone", "request_id": "req1"}}

    def one(peer: SocketPeer) -> None:
        peer.send(out("a"))

    cases: list[list[Any]] = [
        [lambda peer: peer.end(out("a"), error), "guest_unreachable"],
        [lambda peer: peer.end(out("a"), code=1012, reason="restart"), "unavailable"],
        [lambda peer: peer.end(out("a"), code=1011), "connection_failed"],
        [one, lambda peer: peer.connection.shutdown(2), "connection_failed"],
        [one, lambda peer: peer.send_raw(b"\xff\xff"), "connection_failed"],
        [lambda peer: peer.end(out("a"), {"type": "stdout"}), "invalid_response"],
        [one, lambda peer: peer.send_raw(b"\x81\x01\xff"), "invalid_response"],
    ]
    server.on_socket(lambda _: None)
    async with server.async_client() as client:
        sandbox = await the_sandbox(client)
        for *steps, code in cases:
            server.on_socket(script(*steps))
            command = await sandbox.spawn("make")
            pieces: list[str] = []
            with pytest.raises(CoppiceError) as caught:
                await read(command, pieces)
            assert (pieces, caught.value.code) == (["a"], code)
            with pytest.raises(CoppiceError) as again:
                await command.wait()
            assert again.value.code == code
            await command.aclose()


async def test_a_refused_handshake_is_the_error_of_the_service_and_is_retried(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_socket(lambda _: None)
        sandbox = await the_sandbox(client)
        server.on_request(lambda _, reply: reply.error(409, "invalid_state", "it is hibernating"))
        with pytest.raises(CoppiceError) as caught:
            await sandbox.spawn("make")
        assert (caught.value.code, caught.value.status, caught.value.detail) == (
            "invalid_state",
            409,
            "it is hibernating",
        )
        assert len(server.lines) == 2
        busy = in_turn(
            lambda _, reply: reply.error(503, "unavailable", headers={"retry-after": "0"}),
            lambda _, reply: reply.error(404, "not_found"),
        )
        server.on_request(busy)
        with pytest.raises(CoppiceError) as missing:
            await sandbox.terminal()
        assert missing.value.code == "not_found"
        assert len(server.lines) == 4


async def test_an_answer_that_is_no_web_socket_is_refused(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_socket(lambda _: None)
        sandbox = await the_sandbox(client)
        server.on_request(lambda _, reply: reply.json({}, 101))
        with pytest.raises(CoppiceError) as caught:
            await sandbox.shell()
        assert caught.value.code == "invalid_response"
        server.answer_json({})
        with pytest.raises(CoppiceError) as plain:
            await sandbox.shell()
        assert plain.value.code == "http_200"
        headers = {"location": "https://elsewhere.example/"}
        server.on_request(lambda _, reply: reply.body(b"", 302, headers))
        with pytest.raises(CoppiceError, match="redirects are not followed"):
            await sandbox.shell()


async def test_a_command_that_is_too_large_is_refused_before_it_is_sent(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_socket(lambda _: None)
        sandbox = await the_sandbox(client)
        with pytest.raises(ValueError, match="exceeds"):
            await sandbox.spawn("x" * 2**20)
    assert len(server.lines) == 1


async def test_pings_are_answered_while_nothing_is_read(server: LoopbackServer) -> None:
    def serve(peer: SocketPeer) -> None:
        peer.next()
        peer.ping(b"there?")
        assert peer.pong() == b"there?"
        peer.end(end())

    server.on_socket(serve)
    async with server.async_client() as client:
        command = await (await the_sandbox(client)).spawn("cat")
        await eventually(lambda: command.exit is not None)


async def test_a_terminal_sends_bytes_and_sizes(server: LoopbackServer) -> None:
    received: list[Any] = []
    wrong_sizes: list[Any] = [(0, 1), (1, 1001), (1.5, 1)]

    def serve(peer: SocketPeer) -> None:
        peer.send(b"\xe2\x82")
        for _ in range(4):
            received.append(peer.next())
        peer.end(b"\xac", {"type": "exit", "code": 130})

    server.on_socket(serve)
    async with server.async_client() as client:
        sandbox = await the_sandbox(client)
        async with await sandbox.terminal(cols=120, rows=40, command="top -b", cwd="/w", user="me") as terminal:
            await terminal.write("é")
            await terminal.write(b"\x03" * 70_000)
            await terminal.resize(100, 30)
            assert b"".join([data async for data in terminal]) == "€".encode()
            assert await terminal.wait() == terminal.exit == TerminalExit(130)
            await terminal.resize(1, 1)
            for wrong in wrong_sizes:
                with pytest.raises(ValueError, match="must be an integer"):
                    await terminal.resize(*wrong)
        with pytest.raises(ValueError, match="cols"):
            await sandbox.terminal(cols=0)
    assert received == [
        "é".encode(),
        b"\x03" * 65_536,
        b"\x03" * (70_000 - 65_536),
        {"type": "resize", "cols": 100, "rows": 30},
    ]
    assert server.last.url == f"{RUN}/terminal?cols=120&rows=40&command=top%20-b&cwd=%2Fw&user=me"

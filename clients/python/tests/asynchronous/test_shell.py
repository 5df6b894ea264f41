"""Shells."""

from __future__ import annotations

from typing import Any

import pytest

from coppice import AsyncSandbox, CoppiceError, ShellResult
from coppice._async.client import AsyncCoppice
from loopback import SANDBOX_ID, LoopbackServer
from socket_peer import SocketPeer


async def the_sandbox(client: AsyncCoppice) -> AsyncSandbox:
    sandbox = await client.sandboxes.get(SANDBOX_ID)
    assert sandbox is not None
    return sandbox


def frames(run_id: str, code: int) -> list[dict[str, Any]]:
    return [
        {"type": "shell_out", "id": run_id, "data": f"out {run_id}"},
        {"type": "of_a_newer_service"},
        {"type": "shell_err", "id": run_id, "data": "err"},
        {"type": "shell_exit", "id": run_id, "code": code},
    ]


async def test_a_shell_runs_commands_one_after_the_other(server: LoopbackServer) -> None:
    commands: list[Any] = []

    def serve(peer: SocketPeer) -> None:
        for code in (0, 7):
            commands.append(peer.next())
            peer.send(
                *frames(commands[-1]["id"], code), {"type": "shell_out", "id": "1", "data": "of a background job"}
            )
        peer.end({"type": "shell_closed"})

    heard: list[str] = []
    server.on_socket(serve)
    async with server.async_client() as client:
        async with await (await the_sandbox(client)).shell(cwd="/w", user="me") as shell:
            first = await shell.run("cd /tmp", on_stdout=heard.append)
            assert first == ShellResult(exit_code=0, stdout="out 1", stderr="err", truncated=False)
            assert (await shell.run("exit 7")).exit_code == 7
            await shell.wait_closed()
            with pytest.raises(CoppiceError) as caught:
                await shell.run("true")
            assert caught.value.code == "shell_closed"
    assert commands == [
        {"type": "shell_run", "id": "1", "command": "cd /tmp"},
        {"type": "shell_run", "id": "2", "command": "exit 7"},
    ]
    assert heard == ["out 1"]
    assert server.last.url == f"/v1/runs/{SANDBOX_ID}/shell?cwd=%2Fw&user=me"


async def test_a_listener_that_raises_ends_its_call_only(server: LoopbackServer) -> None:
    def serve(peer: SocketPeer) -> None:
        first = peer.next()["id"]
        peer.send(*[{"type": "shell_out", "id": first, "data": "x"} for _ in range(100)])
        peer.send(*frames(first, 1), *frames(peer.next()["id"], 0))
        peer.left()

    def fail(text: str) -> None:
        raise KeyError(text)

    server.on_socket(serve)
    async with server.async_client() as client:
        async with await (await the_sandbox(client)).shell() as shell:
            with pytest.raises(KeyError):
                await shell.run("yes", on_stdout=fail)
            assert (await shell.run("true")).exit_code == 0


async def test_a_lost_connection_ends_the_runs_after_their_output(server: LoopbackServer) -> None:
    def serve(peer: SocketPeer) -> None:
        peer.send({"type": "shell_out", "id": peer.next()["id"], "data": "x"})
        peer.connection.shutdown(2)

    heard: list[str] = []
    server.on_socket(serve)
    async with server.async_client() as client:
        shell = await (await the_sandbox(client)).shell()
        with pytest.raises(CoppiceError) as caught:
            await shell.run("make", on_stdout=heard.append)
        assert (heard, caught.value.code) == (["x"], "connection_failed")
        with pytest.raises(CoppiceError) as closed:
            await shell.wait_closed()
        assert closed.value.code == "connection_failed"
        with pytest.raises(CoppiceError):
            await shell.run("true")


async def test_commands_that_the_service_refuses_do_not_end_the_shell(server: LoopbackServer) -> None:
    def serve(peer: SocketPeer) -> None:
        peer.send(*frames(peer.next()["id"], 0))
        peer.left()

    server.on_socket(serve)
    async with server.async_client() as client:
        async with await (await the_sandbox(client)).shell() as shell:
            for wrong, message in (("", "non-empty"), ("a\0b", "NUL"), ("x" * 2**20, "exceeds")):
                with pytest.raises(ValueError, match=message):
                    await shell.run(wrong)
            assert (await shell.run("true")).exit_code == 0

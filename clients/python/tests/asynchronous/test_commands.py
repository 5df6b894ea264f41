"""Commands that outlive their client."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from coppice import AsyncCommand, CommandChunk, CommandExit, CoppiceError, DroppedOutput
from coppice._async.client import AsyncCoppice
from loopback import COMMAND_ID, SANDBOX_ID, LoopbackServer, Reply, Seen, in_turn, wire_command, wire_record

PATH = f"/v1/runs/{SANDBOX_ID}/commands/{COMMAND_ID}"
EXIT = {"type": "exit", "data": "7", "timed_out": False}


def output(offset: int, data: bytes, kind: str = "stdout") -> dict[str, Any]:
    return {"type": kind, "data": base64.b64encode(data).decode(), "offset": offset}


async def a_command(server: LoopbackServer, client: AsyncCoppice) -> AsyncCommand:
    server.on_request(
        in_turn(lambda _, reply: reply.json(wire_record(), 201), lambda _, reply: reply.json(wire_command(), 201))
    )
    sandbox = await client.sandboxes.create()
    command = await sandbox.commands.start("make", stdin=True, tag="job")
    server.seen.pop(0)
    return command


async def test_a_command_is_started_once_found_and_listed(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        command = await a_command(server, client)
        assert (command.id, command.state) == (COMMAND_ID, "running")
        assert server.last.json == {"command": "make", "stdin": True, "tag": "job"}
        assert "idempotency-key" in server.last.headers
        server.on_request(lambda _, reply: reply.json(wire_record()))
        sandbox = await client.sandboxes.get(SANDBOX_ID)
        assert sandbox is not None
        server.answer_json([wire_command()])
        assert [one.id async for one in sandbox.commands.list(state="running", tag="a b")] == [COMMAND_ID]
        assert server.last.url.endswith("/commands?state=running&tag=a%20b")
        server.on_request(lambda _, reply: reply.error(404, "not_found"))
        assert await sandbox.commands.get(COMMAND_ID) is None


async def test_output_continues_after_lost_connections_without_repetition(server: LoopbackServer) -> None:
    snowman = "☃".encode()
    async with server.async_client() as client:
        command = await a_command(server, client)
        server.on_request(
            in_turn(
                # The first connection ends within a character.
                lambda _, reply: reply.events([output(0, b"one " + snowman[:1])], cut=True),
                lambda _, reply: reply.error(503, "unavailable"),
                lambda _, reply: reply.events([output(5, snowman[1:]), output(7, b"bad", "stderr")]),
                lambda _, reply: reply.events([{"type": "dropped", "offset": 10, "next_offset": 20}]),
                lambda _, reply: reply.events([output(20, b"end\xe2"), EXIT]),
            )
        )
        reader = command.output()
        pieces = [piece async for piece in reader]
    assert pieces == [
        CommandChunk("stdout", "one ", 4),
        CommandChunk("stdout", "☃", 7),
        CommandChunk("stderr", "bad", 10),
        DroppedOutput(10, 20),
        CommandChunk("stdout", "end", 23),
        CommandChunk("stdout", "\ufffd", 24),
    ]
    assert reader.exit == CommandExit(7, timed_out=False)
    offsets = [one.url.removeprefix(f"{PATH}/output?offset=") for one in server.seen[1:]]
    assert offsets == [f"{offset}&encoding=base64" for offset in (0, 5, 5, 10, 20)]


async def test_a_later_loop_continues_where_the_last_one_stopped(server: LoopbackServer) -> None:
    frames = [output(0, b"a\xe2"), {"type": "dropped", "offset": 2, "next_offset": 5}, output(5, b"b"), EXIT]
    async with server.async_client() as client:
        command = await a_command(server, client)
        server.on_request(in_turn(lambda _, reply: reply.events(frames), lambda _, reply: reply.events(frames[2:])))
        reader = command.output(stream="stdout")
        # The event of the gap also ends a character: it has two pieces, and the loop is left between them.
        before = []
        async for piece in reader:
            before.append(piece)
            if len(before) == 2:
                break
        assert before == [CommandChunk("stdout", "a", 1), CommandChunk("stdout", "\ufffd", 5)]
        after = [piece async for piece in reader]
        assert after == [DroppedOutput(3, 5), CommandChunk("stdout", "b", 6)]
    assert server.lines[1] == f"GET {PATH}/output?offset=0&stream=stdout&encoding=base64"


async def test_output_ends_with_an_error_that_no_connection_repairs(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        command = await a_command(server, client)
        server.on_request(lambda _, reply: reply.error(409, "invalid_state"))
        with pytest.raises(CoppiceError) as caught:
            [piece async for piece in command.output()]
    assert (caught.value.code, len(server.seen)) == ("invalid_state", 2)


async def test_wait_repeats_until_the_end_also_after_a_lost_connection(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        command = await a_command(server, client)
        server.on_request(
            in_turn(
                lambda _, reply: reply.json(wire_command()),
                lambda _, reply: reply.cut(),
                lambda _, reply: reply.json(wire_command(state="exited", exit_code=7)),
            )
        )
        record = await command.wait()
    assert (record.exit_code, command.state) == (7, "exited")
    assert [one.url for one in server.seen[1:]] == [f"{PATH}/wait?timeout=30"] * 3


async def test_input_and_signals_are_sent_once(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        command = await a_command(server, client)
        await command.write("yes\n")
        assert (server.last.url, server.last.body) == (f"{PATH}/stdin?end=false", b"yes\n")
        await command.write(b"\xff", end=True)
        assert (server.last.url, server.last.body) == (f"{PATH}/stdin?end=true", b"\xff")
        await command.signal("TERM")
        assert server.last.json == {"signal": "TERM"}

        def busy(_: Seen, reply: Reply) -> None:
            reply.error(503, "unavailable", headers={"retry-after": "0"})

        server.on_request(busy)
        before = len(server.seen)
        with pytest.raises(CoppiceError):
            await command.write("more")
        assert len(server.seen) == before + 1

"""Commands, files and ports."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from coppice import AsyncSandbox, CommandExit, CoppiceError, OutputBytes, OutputChunk
from coppice._async.client import AsyncCoppice
from loopback import SANDBOX_ID, LoopbackServer, Reply, Seen, wait_until, wire_record

RESULT = {"exit_code": 3, "stdout": "out", "stderr": "", "timed_out": False, "truncated": False}
FRAMES = [
    {"type": "stdout", "data": "a"},
    {"type": "of_a_newer_service"},
    {"type": "stderr", "data": "b"},
    {"type": "exit", "data": "7", "timed_out": False},
]


async def a_sandbox(server: LoopbackServer, client: AsyncCoppice) -> AsyncSandbox:
    server.answer_json(wire_record(), 201)
    return await client.sandboxes.create()


async def test_exec_sends_the_options_and_an_exit_code_is_no_error(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.answer_json(RESULT)
        result = await sandbox.exec("make", cwd="/w", env={"A": "b"}, user="me", stdin="in")
    assert (result.exit_code, result.stdout, result.timed_out) == (3, "out", False)
    assert server.last.json == {
        "command": "make",
        "timeout": 30,
        "cwd": "/w",
        "env": {"A": "b"},
        "user": "me",
        "stdin": "in",
    }


async def test_stream_yields_output_and_says_how_the_command_ended(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(lambda _, reply: reply.events(FRAMES))
        async with sandbox.stream("make", timeout=5) as output:
            assert [chunk async for chunk in output] == [OutputChunk("stdout", "a"), OutputChunk("stderr", "b")]
        assert output.exit == CommandExit(7, timed_out=False)
        with pytest.raises(RuntimeError, match="already read"):
            [chunk async for chunk in output]
    assert server.last.url == f"/v1/runs/{SANDBOX_ID}/exec/stream"
    assert server.last.json == {"command": "make", "timeout": 5}


async def test_a_stream_that_breaks_or_fails_is_an_error(server: LoopbackServer) -> None:
    error = {"type": "error", "error": {"code": "guest_unreachable", "message": "gone", "request_id": "r"}}
    cases: list[tuple[list[Any], bool, str]] = [
        (FRAMES[:1], True, "connection_failed"),
        (FRAMES[:1], False, "connection_failed"),
        ([error], False, "guest_unreachable"),
        ([{"type": "stdout"}], False, "invalid_response"),
        ([{"type": "exit", "data": "x"}], False, "invalid_response"),
        ([5], False, "invalid_response"),
    ]
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        for frames, cut, code in cases:
            server.on_request(lambda _, reply, frames=frames, cut=cut: reply.events(frames, cut=cut))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                async for _ in sandbox.stream("make"):
                    pass
            assert caught.value.code == code


async def test_stream_bytes_yields_what_is_not_text_and_says_how_the_command_ended(server: LoopbackServer) -> None:
    frames = [
        {"type": "stdout", "data": "/wAK"},
        {"type": "of_a_newer_service", "data": "?"},
        {"type": "stderr", "data": ""},
        FRAMES[3],
    ]
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(lambda _, reply: reply.events(frames))
        async with sandbox.stream_bytes("make", timeout=5) as output:
            assert [chunk async for chunk in output] == [OutputBytes("stdout", b"\xff\0\n"), OutputBytes("stderr", b"")]
        assert output.exit == CommandExit(7, timed_out=False)
        assert server.last.url == f"/v1/runs/{SANDBOX_ID}/exec/stream?encoding=base64"
        assert server.last.json == {"command": "make", "timeout": 5}
        for frame in ({"type": "stdout", "data": "%"}, {"type": "stdout", "data": "é"}, {"type": "stdout"}):
            server.on_request(lambda _, reply, frame=frame: reply.events([frame]))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                async for _ in sandbox.stream_bytes("make"):
                    pass
            assert caught.value.code == "invalid_response"


async def test_listeners_get_output_and_the_result_is_complete(server: LoopbackServer) -> None:
    heard: list[str] = []
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(lambda _, reply: reply.events(FRAMES))
        result = await sandbox.exec("make", on_stdout=heard.append)
    assert heard == ["a"]
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (7, "a", "b", False)


async def test_leaving_the_block_of_a_stream_closes_the_connection(server: LoopbackServer) -> None:
    closed: list[bool] = []
    data = "x"

    def endless(_: Seen, reply: Reply) -> None:
        reply.begin(200, {"transfer-encoding": "chunked"})
        reply.chunk(f'data: {{"type": "stdout", "data": "{data}"}}\n\n'.encode())
        closed.append(reply.wait_for_end())

    def fail(text: str) -> None:
        raise KeyError(text)

    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(endless)
        async with sandbox.stream("yes") as output:
            async for chunk in output:
                assert chunk.data == "x"
                break
        with pytest.raises(KeyError):
            await sandbox.exec("yes", on_stdout=fail)
        wait_until(lambda: closed == [True, True])
        data = "eHg="
        async with sandbox.stream_bytes("yes") as bytes_output:
            async for piece in bytes_output:
                assert piece.data == b"xx"
                break
        wait_until(lambda: closed == [True, True, True])


async def test_a_line_without_an_end_is_refused(server: LoopbackServer) -> None:
    def endless(_: Seen, reply: Reply) -> None:
        reply.begin(200, {"transfer-encoding": "chunked"})
        for _number in range(20):
            reply.chunk(b"x" * 2**20)

    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(endless)
        with pytest.raises(CoppiceError) as caught:
            async for _ in sandbox.stream("yes"):
                pass
    assert caught.value.code == "invalid_response"


async def test_uploads_take_texts_bytes_files_and_iterables(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.answer_json({"path": "/w/f", "size": 3})
        for content in ("añb", "añb".encode(), io.BytesIO("añb".encode()), [b"a", "ñb".encode()]):
            result = await sandbox.upload("/w/f &", content, mode=0o755, user="me")
            assert (result.path, result.size) == ("/w/f", 3)
            assert server.last.body == "añb".encode()
            assert server.last.url == f"/v1/runs/{SANDBOX_ID}/files/upload?path=%2Fw%2Ff%20%26&mode=755&user=me"
        for wrong in (io.StringIO("text"), ["text"]):
            with pytest.raises(TypeError, match="binary"):
                await sandbox.upload("/w/f", wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="mode"):
            await sandbox.upload("/w/f", b"", mode=0o10000)


async def test_an_error_of_the_source_of_an_upload_is_the_callers(server: LoopbackServer) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("the disk is gone")

    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.answer_json({"path": "/w/f", "size": 3})
        with pytest.raises(OSError, match="the disk is gone"):
            await sandbox.upload("/w/f", Broken())


async def test_downloads_are_texts_bytes_and_streams(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(lambda _, reply: reply.body("añb".encode() + b"\xff"))
        assert await sandbox.download("/w/f") == "añb\ufffd"
        assert await sandbox.download_bytes("/w/f") == "añb".encode() + b"\xff"
        async with await sandbox.download_stream("/w/f") as stream:
            assert b"".join([chunk async for chunk in stream]) == "añb".encode() + b"\xff"
        with pytest.raises(CoppiceError) as caught:
            await sandbox.download("/w/f", max_bytes=4)
    assert caught.value.code == "response_too_large"


@pytest.mark.parametrize("honours", [True, False], ids=["sent_as_a_range", "cut_out_of_the_whole_file"])
async def test_a_stream_has_the_part_that_is_asked_for(server: LoopbackServer, honours: bool) -> None:
    content = b"0123456789"

    def answer(seen: Seen, reply: Reply) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", seen.headers.get("range", ""))
        if honours and wanted is not None:
            end = int(wanted[2]) + 1 if wanted[2] else len(content)
            reply.body(content[int(wanted[1]) : end], 206)
            return
        reply.begin(200, {"transfer-encoding": "chunked"})
        for part in (content[:3], content[3:]):
            reply.chunk(part)
        reply._handler.wfile.write(b"0\r\n\r\n")

    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(answer)

        async def read(**part: Any) -> bytes:
            async with await sandbox.download_stream("/w/f", **part) as stream:
                return b"".join([chunk async for chunk in stream])

        assert [await read(), await read(offset=0), await read(offset=4)] == [content, content, b"456789"]
        parts = [await read(offset=2, length=3), await read(length=4), await read(offset=8, length=9)]
        assert parts == [b"234", b"0123", b"89"]
        ranges = [one.headers.get("range") for one in server.seen[1:]]
        assert ranges == [None, None, "bytes=4-", "bytes=2-4", "bytes=0-3", "bytes=8-16"]
        for wrong in ({"offset": -1}, {"offset": 1.5}, {"length": 0}, {"length": 1.5}, {"offset": True}):
            with pytest.raises(ValueError, match="must be an integer"):
                await read(**wrong)
        assert len(server.seen) == 7


async def test_a_part_behind_the_end_of_a_file_is_an_error_of_the_service(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(lambda _, reply: reply.error(416, "range_not_satisfiable"))
        with pytest.raises(CoppiceError) as caught:
            await sandbox.download_stream("/w/f", offset=9)
    assert (caught.value.code, caught.value.status) == ("range_not_satisfiable", 416)


async def test_a_download_that_breaks_off_is_an_error(server: LoopbackServer) -> None:
    def answer(_: Seen, reply: Reply) -> None:
        reply.begin(200, {"content-length": "100"})
        reply._handler.wfile.write(b"half")
        reply.cut()

    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.on_request(answer)
        with pytest.raises(CoppiceError) as caught:
            await sandbox.download("/w/f")
    assert caught.value.code == "connection_failed"


async def test_ports_have_urls_previews_and_tickets(server: LoopbackServer) -> None:
    times = {"created_at": "2026-11-21T06:30:00.000Z", "expires_at": "2026-11-21T06:40:00.000Z"}
    preview = {"id": "pre1", "port": 3000, **times, "url": "https://secret.example/"}
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        assert sandbox.url(3000, "/health?x=1") == f"{server.url}/v1/runs/{SANDBOX_ID}/proxy/3000/health?x=1"
        for wrong in (0, 65_536):
            with pytest.raises(ValueError, match="port"):
                sandbox.url(wrong)
        server.answer_json(preview, 201)
        made = await sandbox.preview(3000, expires_in=600)
        assert (made.url, server.last.json) == ("https://secret.example/", {"expires_in": 600})
        assert "secret" not in repr(made)
        server.answer_json([preview])
        assert [one.port for one in await sandbox.previews()] == [3000]
        server.on_request(lambda _, reply: reply.begin(204, {}))
        await sandbox.revoke_preview("pre1")
        server.answer_json({"ticket": "secret", "expires_at": times["expires_at"]}, 201)
        ticket = await sandbox.create_ticket()
        assert (ticket.ticket, "secret" in repr(ticket)) == ("secret", False)

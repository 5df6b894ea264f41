"""WebSockets: limits, cancellation, threads, and processes."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import pytest

from coppice import AsyncSandbox, Coppice, CoppiceError, OutputChunk, Sandbox
from coppice._async.client import AsyncCoppice
from coppice._core.frames import CollectedOutput
from coppice._streams import stream_connection, unread_queue
from loopback import SANDBOX_ID, TEST_KEY, LoopbackServer, wait_until
from socket_peer import SocketPeer, script

DEADLINE_S = 30.0
MIB = 2**20
THREAD = "coppice-streams"


def out(data: str) -> dict[str, Any]:
    return {"type": "stdout", "data": data}


END = {"type": "exit", "data": "0", "timed_out": False}


async def async_sandbox(client: AsyncCoppice) -> AsyncSandbox:
    sandbox = await client.sandboxes.get(SANDBOX_ID)
    assert sandbox is not None
    return sandbox


def sync_sandbox(client: Coppice) -> Sandbox:
    sandbox = client.sandboxes.get(SANDBOX_ID)
    assert sandbox is not None
    return sandbox


def stream_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD]


def echo(peer: SocketPeer, count: int) -> None:
    """Sends each message back before it reads the next one, as `cat` does."""
    peer.next()
    for _ in range(count):
        peer.send(out(peer.next()["data"]))
    peer.end(END)


async def test_input_and_output_do_not_wait_for_each_other(server: LoopbackServer) -> None:
    server.on_socket(lambda peer: echo(peer, 512))
    text = "x" * (512 * 65_536)
    async with server.async_client() as client:
        command = await (await async_sandbox(client)).spawn("cat")
        writing = asyncio.create_task(command.stdin.write(text))
        received = 0
        async for chunk in command:
            received += len(chunk.data)
        await writing
    assert received == len(text)


def test_a_blocked_write_does_not_keep_another_thread_from_reading(server: LoopbackServer) -> None:
    server.on_socket(lambda peer: echo(peer, 512))
    text = "x" * (512 * 65_536)
    with server.client() as client:
        command = sync_sandbox(client).spawn("cat")
        writing = threading.Thread(target=command.stdin.write, args=(text,))
        writing.start()
        assert sum(len(chunk.data) for chunk in command) == len(text)
        writing.join(DEADLINE_S)
        assert not writing.is_alive()


async def test_unread_output_makes_the_sender_wait_and_is_then_complete(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_queue, "PAUSE_STEP_S", 0.05)
    sent = 0

    def serve(peer: SocketPeer) -> None:
        nonlocal sent
        peer.next()
        for _ in range(200):
            peer.send(out("x" * MIB))
            sent += 1
        peer.end(END)

    server.on_socket(serve)
    async with server.async_client() as client:
        command = await (await async_sandbox(client)).spawn("yes")
        # Time passes: the queue accepts more, up to its limit.
        ends_at_s = time.monotonic() + DEADLINE_S
        while sent < 60:
            assert time.monotonic() < ends_at_s, sent
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert sent < 80
        received = 0
        async for chunk in command:
            received += len(chunk.data)
    assert received == 200 * MIB


async def test_waiting_without_reading_drops_output_beyond_the_limit(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_queue, "UNREAD_LIMIT_BYTES", 4 * MIB)

    def serve(peer: SocketPeer) -> None:
        peer.next()
        peer.send(*[out("x" * MIB)] * 10)
        peer.end(END)

    server.on_socket(serve)
    async with server.async_client() as client:
        command = await (await async_sandbox(client)).spawn("yes")
        assert (await command.wait()).exit_code == 0
        assert command._connection._unread._unread_bytes < 5 * MIB
        with pytest.raises(CoppiceError) as caught:
            async for _ in command:
                pass
    assert caught.value.code == "reader_too_slow"


async def test_two_loops_at_once_are_refused(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.left()))
    async with server.async_client() as client:
        async with await (await async_sandbox(client)).spawn("sleep 60") as command:
            first = asyncio.ensure_future(command.__aiter__().__anext__())
            await asyncio.sleep(0.01)
            with pytest.raises(RuntimeError, match="another loop"):
                await command.__aiter__().__anext__()
            await command.aclose()
            with pytest.raises(CoppiceError):
                await first


async def test_a_silent_connection_is_dead(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_connection, "SILENCE_S", 2.5)
    left: list[int | None] = []

    def serve(peer: SocketPeer) -> None:
        peer.next()
        for _ in range(4):
            time.sleep(0.5)
            peer.ping(b"")
        left.append(peer.left())

    server.on_socket(serve)
    async with server.async_client(timeout_ms=1000) as client:
        command = await (await async_sandbox(client)).spawn("sleep 60")
        started_s = time.monotonic()
        with pytest.raises(CoppiceError, match="not even a ping") as caught:
            await command.wait()
    assert caught.value.code == "timeout"
    assert time.monotonic() - started_s > 3.5, "pings keep it alive"


async def test_a_service_that_does_not_answer_a_close_is_left_after_a_time(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_connection, "CLOSE_S", 0.2)
    done = threading.Event()
    server.on_socket(script(lambda _: done.wait(DEADLINE_S)))
    async with server.async_client() as client:
        command = await (await async_sandbox(client)).spawn("sleep 60")
        await command.aclose()
        assert command._connection._life.done()
        assert not done.is_set()
        done.set()


async def test_a_cancelled_spawn_leaves_no_connection(server: LoopbackServer) -> None:
    left: list[int | None] = []
    accepting, may_accept = threading.Event(), threading.Event()

    def answer(seen: Any, reply: Any) -> None:
        accepting.set()
        may_accept.wait(DEADLINE_S)
        left.append(reply.upgrade(seen.headers["sec-websocket-key"]).left())

    server.on_socket(lambda _: None)
    async with server.async_client() as client:
        sandbox = await async_sandbox(client)
        server.on_request(answer)
        task = asyncio.create_task(sandbox.spawn("sleep 60"))
        await asyncio.to_thread(accepting.wait, DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_accept.set()
        await asyncio.to_thread(wait_until, lambda: left == [None])
        assert len(client._transport.streams._open) == 0


async def test_a_cancelled_read_loses_no_output(server: LoopbackServer) -> None:
    may_send = threading.Event()

    def serve(peer: SocketPeer) -> None:
        peer.next()
        may_send.wait(DEADLINE_S)
        peer.end(out("a"), END)

    server.on_socket(serve)
    async with server.async_client() as client:
        command = await (await async_sandbox(client)).spawn("cat")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(command.__aiter__().__anext__(), 0.05)
        may_send.set()
        assert [chunk.data async for chunk in command] == ["a"]


async def test_a_cancelled_write_makes_later_ones_fail(server: LoopbackServer) -> None:
    done = threading.Event()
    server.on_socket(script(lambda _: done.wait(DEADLINE_S)))
    async with server.async_client() as client:
        async with await (await async_sandbox(client)).spawn("cat") as command:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(command.stdin.write("x" * (32 * MIB)), 1)
            with pytest.raises(ValueError, match="gap"):
                await command.stdin.write("y")
            done.set()


async def test_runs_of_a_shell_keep_their_output_apart(server: LoopbackServer) -> None:
    def serve(peer: SocketPeer) -> None:
        runs = [peer.next()["id"] for _ in range(3)]
        for run_id in runs:
            peer.send(
                {"type": "shell_out", "id": run_id, "data": run_id}, {"type": "shell_exit", "id": run_id, "code": 0}
            )
        peer.left()

    server.on_socket(serve)
    async with server.async_client() as client:
        async with await (await async_sandbox(client)).shell() as shell:
            results = await asyncio.gather(*[shell.run("echo") for _ in range(3)])
    assert [result.stdout for result in results] == ["1", "2", "3"]


async def test_a_slow_listener_makes_the_shell_wait(server: LoopbackServer) -> None:
    sent = 0

    def serve(peer: SocketPeer) -> None:
        nonlocal sent
        run_id = peer.next()["id"]
        for _ in range(100):
            peer.send({"type": "shell_out", "id": run_id, "data": "x" * MIB})
            sent += 1
        peer.send({"type": "shell_exit", "id": run_id, "code": 0})
        peer.left()

    heard = 0

    async def listen(text: str) -> None:
        nonlocal heard
        if heard == 0:
            await asyncio.sleep(0.5)
            assert sent < 40
        heard += len(text)

    server.on_socket(serve)
    async with server.async_client() as client:
        async with await (await async_sandbox(client)).shell() as shell:
            result = await shell.run("yes", on_stdout=listen)
    assert (heard, len(result.stdout), result.truncated) == (100 * MIB, 16 * MIB, True)


def test_the_thread_of_a_client_ends_with_it(server: LoopbackServer) -> None:
    left: list[int | None] = []
    server.on_socket(script(lambda peer: left.append(peer.left())))
    assert stream_threads() == []
    with server.client() as client:
        sandbox = sync_sandbox(client)
        assert stream_threads() == [], "no WebSocket, no thread"
        commands = [sandbox.spawn("sleep 60") for _ in range(3)]
        assert len(stream_threads()) == 1
        caught: list[str] = []

        def read() -> None:
            try:
                commands[0].wait()
            except CoppiceError as error:
                caught.append(error.code)

        reading = threading.Thread(target=read)
        reading.start()
        time.sleep(0.05)
    reading.join(DEADLINE_S)
    assert caught == ["closed"]
    assert stream_threads() == []
    wait_until(lambda: left == [1000, 1000, 1000])
    with pytest.raises(CoppiceError) as late:
        commands[1].stdin.write("x")
    assert late.value.code == "closed"
    commands[1].close()


def test_the_thread_of_a_discarded_client_ends(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.left()))
    client = server.client()
    sync_sandbox(client).spawn("sleep 60")
    assert len(stream_threads()) == 1
    client._transport._client.close()
    del client
    gc.collect()
    wait_until(lambda: stream_threads() == [])


PROGRAM = """
import sys
from coppice import Coppice
sandbox = Coppice().sandboxes.get("run0123456789abcdef0123")
command = sandbox.spawn("sleep 60")
print("spawned", flush=True)
{rest}
"""


def start(server: LoopbackServer, rest: str) -> subprocess.Popen[str]:
    source = Path(__file__).parent.parent / "src"
    environment = {"SANDBOX_API_KEY": TEST_KEY, "SANDBOX_BASE_URL": server.url, "PYTHONPATH": str(source)}
    command = [sys.executable, "-X", "dev", "-c", PROGRAM.replace("{rest}", rest)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_program_ends_although_it_closes_nothing(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.left()))
    with start(server, "") as process:
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, output) == (0, "spawned\n")
    for complaint in ("was destroyed", "never retrieved", "Traceback"):
        assert complaint not in errors


@pytest.mark.parametrize("wait", ["command.wait()", "list(command)", "command.stdin.write('x' * 2**26)"])
def test_ctrl_c_interrupts_a_wait_and_closes_the_connection(server: LoopbackServer, wait: str) -> None:
    waiting, interrupted, left = threading.Event(), threading.Event(), threading.Event()

    def serve(peer: SocketPeer) -> None:
        peer.next()
        waiting.set()
        interrupted.wait(DEADLINE_S)
        peer.left()
        left.set()

    server.on_socket(serve)
    with start(server, f"with command:\n    {wait}") as process:
        assert waiting.wait(DEADLINE_S)
        assert process.stdout is not None
        assert process.stdout.readline() == "spawned\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        interrupted.set()
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert "KeyboardInterrupt" in errors
    assert left.wait(DEADLINE_S)


def test_ctrl_c_during_a_spawn_leaves_no_connection(server: LoopbackServer) -> None:
    asked, may_accept, left = threading.Event(), threading.Event(), threading.Event()

    def answer(seen: Any, reply: Any) -> None:
        if "sec-websocket-key" not in seen.headers:
            accept(seen, reply)
            return
        asked.set()
        may_accept.wait(DEADLINE_S)
        reply.upgrade(seen.headers["sec-websocket-key"]).left()
        left.set()

    server.on_socket(lambda _: None)
    accept = server._server.answer
    server.on_request(answer)
    with start(server, "") as process:
        assert asked.wait(DEADLINE_S)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=DEADLINE_S)
        may_accept.set()
    assert ("KeyboardInterrupt" in errors, output) == (True, "")
    assert left.wait(DEADLINE_S)


def _use_in_child(command: Any, results: Any) -> None:
    try:
        command.wait()
    except CoppiceError as error:
        results.put(error.code)


def test_a_forked_child_does_not_hang_on_a_connection_of_its_parent(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.left()))
    context = multiprocessing.get_context("fork")
    with server.client() as client, sync_sandbox(client).spawn("sleep 60") as command:
        results = context.SimpleQueue()
        child = context.Process(target=_use_in_child, args=(command, results))
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == 0
        assert results.get() == "closed"
        assert not command._connection.has_ended


def test_a_replaced_transport_is_not_bypassed(server: LoopbackServer) -> None:
    server.on_socket(script(lambda peer: peer.end(END)))
    with server.client(http_transport=httpx.HTTPTransport()) as client:
        with pytest.raises(CoppiceError) as caught:
            sync_sandbox(client).spawn("true")
        assert caught.value.code == "no_websocket"
    both = {"http_transport": httpx.HTTPTransport(), "stream_transport": httpx.AsyncHTTPTransport()}
    with server.client(**both) as client:
        assert sync_sandbox(client).spawn("true").wait().exit_code == 0


def test_a_closed_client_starts_no_thread(server: LoopbackServer) -> None:
    server.on_socket(script())
    with server.client() as client:
        sandbox = sync_sandbox(client)
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.spawn("true")
    assert stream_threads() == []


def test_no_log_and_no_repr_has_the_input_of_a_command(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    # The service of this test logs its frames.
    caplog.set_level(logging.INFO, logger="websockets.server")
    caplog.set_level(logging.DEBUG)
    server.on_socket(script(lambda peer: peer.next(), lambda peer: peer.end(END)))
    with server.client() as client, sync_sandbox(client).spawn("true", env={"A": "secret-1"}) as command:
        command.stdin.write("secret-2")
        command.wait()
        texts = [repr(command), repr(vars(command)), repr(vars(command._connection)), caplog.text]
    assert caplog.records != []
    for text in texts:
        assert "secret-" not in text
        assert TEST_KEY not in text
    request = stream_connection.StreamRequest[Any, Any](path="/p", parse=lambda *_: None, first="secret")
    assert "secret" not in repr(request)


def test_collected_output_takes_no_more_memory_than_its_text() -> None:
    collected = CollectedOutput()
    tracemalloc.start()
    for _ in range(500_000):
        collected.add(OutputChunk("stdout", "ab"))
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(collected.stdout) == 1_000_000
    assert size_bytes < 8_000_000

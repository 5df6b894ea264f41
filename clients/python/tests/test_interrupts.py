"""Ctrl-C and cancellation leave no sandbox behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coppice import CoppiceError
from loopback import DESTROYED, SANDBOX_ID, TEST_KEY, LoopbackServer, Reply, Seen, wait_until, wire_record

DEADLINE_S = 30.0

BLOCKING = """
import time
from coppice import Coppice

with Coppice() as client, client.sandboxes.create({options}) as sandbox:
    print("created", flush=True)
    sandbox.exec("sleep 60")
"""
ASYNCIO = """
import asyncio
from coppice import AsyncCoppice

async def main():
    async with AsyncCoppice() as client, await client.sandboxes.create({options}) as sandbox:
        print("created", flush=True)
        await sandbox.exec("sleep 60")

asyncio.run(main())
"""


class Service:
    """Creates a sandbox when it may, and remembers whether it was destroyed."""

    def __init__(self, server: LoopbackServer) -> None:
        self.may_create = threading.Event()
        self.is_executing = threading.Event()
        self.is_destroyed = False
        self.keys: list[str] = []
        server.on_request(self._answer)

    def _answer(self, seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            self.is_destroyed = True
            reply.json(DESTROYED)
        elif seen.url.endswith("/exec"):
            self.is_executing.set()
            reply.wait_for_end()
        else:
            self.keys.append(seen.headers["idempotency-key"])
            self.may_create.wait(DEADLINE_S)
            reply.json(wire_record(), 201)


def start(program: str, server: LoopbackServer, options: str = "") -> subprocess.Popen[str]:
    source = Path(__file__).parent.parent / "src"
    environment = {"SANDBOX_API_KEY": TEST_KEY, "SANDBOX_BASE_URL": server.url, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", program.replace("{options}", options)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO])
def test_ctrl_c_in_a_block_destroys_its_sandbox(server: LoopbackServer, program: str) -> None:
    service = Service(server)
    service.may_create.set()
    with start(program, server) as process:
        assert service.is_executing.wait(DEADLINE_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert "KeyboardInterrupt" in errors
    assert service.is_destroyed


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO])
def test_ctrl_c_during_a_create_destroys_its_sandbox(server: LoopbackServer, program: str) -> None:
    service = Service(server)
    with start(program, server) as process:
        wait_until(lambda: len(service.keys) == 1)
        process.send_signal(signal.SIGINT)
        # The client asks for the same sandbox again, to learn its id.
        wait_until(lambda: len(service.keys) == 2)
        service.may_create.set()
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert "KeyboardInterrupt" in errors
    assert output == ""
    assert len(set(service.keys)) == 1
    assert server.last.url == f"/v1/runs/{SANDBOX_ID}"
    assert service.is_destroyed


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO])
def test_a_create_with_a_key_of_the_caller_is_left_to_the_caller(server: LoopbackServer, program: str) -> None:
    service = Service(server)
    with start(program, server, 'idempotency_key="mine"') as process:
        wait_until(lambda: service.keys == ["mine"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
        service.may_create.set()
    assert service.keys == ["mine"]
    assert not service.is_destroyed


@pytest.mark.parametrize("program", [BLOCKING, ASYNCIO])
def test_a_sandbox_with_a_name_that_others_may_use_is_left_to_them(server: LoopbackServer, program: str) -> None:
    service = Service(server)
    with start(program.replace("create({options})", 'get_or_create("ci")'), server) as process:
        wait_until(lambda: len(service.keys) == 1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        service.may_create.set()
    assert "KeyboardInterrupt" in errors
    assert len(service.keys) == 1
    assert not service.is_destroyed


async def test_a_cancelled_task_destroys_the_sandbox_of_its_block(server: LoopbackServer) -> None:
    service = Service(server)
    service.may_create.set()

    async def work() -> None:
        async with server.async_client() as client, await client.sandboxes.create() as sandbox:
            await sandbox.exec("sleep 60")

    task = asyncio.create_task(work())
    await asyncio.to_thread(service.is_executing.wait, DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert service.is_destroyed


async def test_an_async_listener_is_awaited(server: LoopbackServer) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        await asyncio.sleep(0)
        heard.append(text)

    frames = [{"type": "stdout", "data": "a"}, {"type": "exit", "data": "0", "timed_out": False}]

    def answer(seen: Seen, reply: Reply) -> None:
        if seen.url.endswith("/stream"):
            reply.events(frames)
        else:
            reply.json(wire_record(), 201)

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        await sandbox.exec("echo a", on_stdout=listen)
    assert heard == ["a"]


async def test_an_upload_takes_an_asynchronous_iterable(server: LoopbackServer) -> None:
    class Source:
        async def __aiter__(self):  # type: ignore[no-untyped-def]
            yield b"a"
            yield b"b"

    server.answer_json({**wire_record(), "path": "/f", "size": 2})
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        await sandbox.upload("/f", Source())
    assert server.last.body == b"ab"


class Undying:
    """Creates sandboxes and refuses to destroy them."""

    def __init__(self, server: LoopbackServer) -> None:
        self.deletes = 0
        server.on_request(self._answer)

    def _answer(self, seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            self.deletes += 1
            reply.error(500, "internal")
        else:
            reply.json(wire_record(), 201)


def test_the_error_of_a_block_counts_not_that_of_its_end(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    Undying(server)
    with server.client() as client:
        for error in (KeyError("in the block"), KeyboardInterrupt()):
            with pytest.raises(type(error)) as caught:
                with client.sandboxes.create():
                    raise error
            assert caught.value is error
        with pytest.raises(CoppiceError):
            with client.sandboxes.create():
                pass
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == ["coppice", "coppice"]
    assert SANDBOX_ID in caplog.text


async def test_a_cancellation_is_not_replaced_by_an_error_of_the_end(server: LoopbackServer) -> None:
    service = Undying(server)

    async def work() -> None:
        async with server.async_client() as client, await client.sandboxes.create():
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    while len(server.seen) == 0:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert service.deletes == 1


async def test_a_second_cancellation_waits_for_the_end_of_the_sandbox(server: LoopbackServer) -> None:
    deleting, may_delete = threading.Event(), threading.Event()
    answered: list[bool] = []

    def answer(seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            deleting.set()
            may_delete.wait(DEADLINE_S)
            reply.json(DESTROYED)
            answered.append(True)
        else:
            reply.json(wire_record(), 201)

    server.on_request(answer)

    async def work() -> None:
        async with server.async_client() as client, await client.sandboxes.create():
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    while len(server.seen) == 0:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.to_thread(deleting.wait, DEADLINE_S)
    task.cancel()
    await asyncio.sleep(0.1)
    assert not task.done()
    may_delete.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, lambda: answered == [True])


async def test_a_cancelled_fork_destroys_its_children(server: LoopbackServer) -> None:
    forking, may_fork = threading.Event(), threading.Event()
    keys: list[str] = []
    children = [wire_record(id="run1"), wire_record(id="run2")]

    def answer(seen: Seen, reply: Reply) -> None:
        if seen.url.endswith("/fork"):
            keys.append(seen.headers["idempotency-key"])
            forking.set()
            may_fork.wait(DEADLINE_S)
            reply.json(children, 201)
        else:
            reply.json(DESTROYED if seen.method == "DELETE" else wire_record(), 201)

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        for key in (None, "mine"):
            forking.clear()
            may_fork.clear()
            task = asyncio.create_task(sandbox.fork(2, idempotency_key=key))
            await asyncio.to_thread(forking.wait, DEADLINE_S)
            task.cancel()
            may_fork.set()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert (len(keys), keys[0] == keys[1], keys[2]) == (3, True, "mine")
    assert [line for line in server.lines if line.startswith("DELETE")] == [
        "DELETE /v1/runs/run1",
        "DELETE /v1/runs/run2",
    ]

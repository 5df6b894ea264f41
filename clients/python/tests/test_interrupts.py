"""Ctrl-C and cancellation leave no sandbox behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

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

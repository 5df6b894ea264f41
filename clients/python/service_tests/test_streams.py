"""Spawned commands, shells and terminals, and the files API, on real sandboxes."""

from __future__ import annotations

import asyncio
import io
import tarfile
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from coppice import AsyncCoppice, Coppice, CoppiceError, FileChange, FileRename, Sandbox

MIB = 2**20
DEADLINE_S = 60.0


def await_end(sandbox: Sandbox, pattern: str) -> None:
    """Waits until no process matches."""
    ends_at_s = time.monotonic() + DEADLINE_S
    while sandbox.exec(f"pgrep -f '{pattern}'").exit_code == 0:
        assert time.monotonic() < ends_at_s, f"{pattern} still runs"
        time.sleep(0.2)


def test_a_dialogue_with_a_spawned_command(sandbox: Sandbox) -> None:
    program = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)\nprint('é', file=sys.stderr)"
    with sandbox.spawn(f"exec python3 -c '{program.replace(chr(39), chr(34))}'", cwd="/tmp", env={"A": "b"}) as command:
        output = iter(command)
        for word in ("one", "two"):
            command.stdin.write(f"{word}\n")
            assert next(output).data == f"{word.upper()}\n"
        command.stdin.end()
        assert [(chunk.type, chunk.data) for chunk in output] == [("stderr", "é\n")]
        assert command.exit is not None
        assert (command.wait().exit_code, command.exit.timed_out) == (0, False)


def test_signals_and_ends_reach_a_spawned_command(sandbox: Sandbox) -> None:
    trap = "trap 'echo got it; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    with sandbox.spawn(f'exec bash -c "{trap}"') as command:
        for chunk in command:
            if chunk.data == "ready\n":
                command.kill("INT")
        assert command.wait().exit_code == 9
    late = sandbox.spawn("sleep 60", timeout=1)
    assert (late.wait().exit_code, late.exit and late.exit.timed_out) == (124, True)
    with sandbox.spawn("exec sleep 7103") as left:
        assert left.exit is None
    await_end(sandbox, "^sleep 7103")
    with pytest.raises(CoppiceError) as caught:
        sandbox.spawn("true", user="absent-user").wait()
    assert caught.value.code == "invalid_request"


def test_much_input_and_output_at_once(sandbox: Sandbox) -> None:
    text = "0123456789abcde\n" * (8 * MIB // 16)
    with sandbox.spawn("cat", timeout=300) as command:

        def write() -> None:
            command.stdin.write(text)
            command.stdin.end()

        writing = threading.Thread(target=write)
        writing.start()
        received = "".join(chunk.data for chunk in command)
        writing.join(DEADLINE_S)
        assert command.wait().exit_code == 0
    assert received == text


def test_a_slow_reader_makes_a_command_wait(sandbox: Sandbox) -> None:
    with sandbox.spawn("seq 1 3000000; touch /tmp/py-written", timeout=300) as command:
        next(iter(command))
        time.sleep(3)
        assert sandbox.exec("test -e /tmp/py-written").exit_code == 1
        last = "".join(chunk.data for chunk in command)[-8:]
        assert last == "3000000\n"
        assert command.wait().exit_code == 0


def test_a_shell_keeps_its_state(sandbox: Sandbox) -> None:
    heard: list[str] = []
    with sandbox.shell(cwd="/tmp") as shell:
        assert shell.run("cd /etc; export NAME=value; twice() { echo $1$1; }").exit_code == 0
        result = shell.run("echo $NAME in $PWD; twice a; echo bad >&2; (exit 7)", on_stdout=heard.append)
        assert (result.exit_code, result.stdout, result.stderr) == (7, "value in /etc\naa\n", "bad\n")
        assert "".join(heard) == result.stdout
        assert shell.run("exit 3").exit_code == 3
        shell.wait_closed()
        with pytest.raises(CoppiceError) as caught:
            shell.run("true")
        assert caught.value.code == "shell_closed"
    with sandbox.shell() as endless:
        codes: list[str] = []

        def run() -> None:
            try:
                endless.run("exec sleep 7104")
            except CoppiceError as error:
                codes.append(error.code)

        running = threading.Thread(target=run)
        running.start()
        time.sleep(1)
    running.join(DEADLINE_S)
    assert codes == ["shell_closed"]
    await_end(sandbox, "^sleep 7104")


def test_a_terminal_has_a_size_and_keys(sandbox: Sandbox) -> None:
    with sandbox.terminal(cols=100, rows=30, command="stty size; read line; stty size; cat; exit 5") as terminal:
        output = iter(terminal)
        seen = next(output)
        while b"30 100" not in seen:
            seen += next(output)
        terminal.resize(120, 40)
        terminal.write("go\r")
        # The whole line: the terminal echoes keys that come before its end into it.
        while b"40 120\r\n" not in seen:
            seen += next(output)
        terminal.write("a\r\x04")
        rest = b"".join(output)
        assert b"a\r\na\r\n" in seen + rest
        assert terminal.wait().exit_code == 5
    with sandbox.terminal(command="exec sleep 7105") as left:
        assert left.exit is None
    await_end(sandbox, "^sleep 7105")


def test_sessions_of_a_sandbox_that_ends_fail_with_its_reason(client: Coppice) -> None:
    with client.sandboxes.create(image="coppice/base:1", mem_mib=256) as sandbox:
        command, shell = sandbox.spawn("sleep 600", timeout=600), sandbox.shell()
        sandbox.destroy()
        with pytest.raises(CoppiceError) as caught:
            command.wait()
        assert caught.value.code == "invalid_state"
        with pytest.raises(CoppiceError):
            shell.wait_closed()
        with pytest.raises(CoppiceError) as late:
            sandbox.spawn("true")
        assert (late.value.status, late.value.code) == (409, "invalid_state")
        assert client.sandboxes.get("run00000000000000000000") is None


async def test_the_asynchronous_client_does_the_same(sandbox: Sandbox) -> None:
    async with AsyncCoppice() as client:
        found = await client.sandboxes.get(sandbox.id)
        assert found is not None
        async with await found.spawn("cat") as command:
            writing = asyncio.create_task(command.stdin.write("x" * MIB))
            received = 0
            async for chunk in command:
                received += len(chunk.data)
                if received == MIB:
                    await writing
                    await command.stdin.end()
            assert (received, (await command.wait()).exit_code) == (MIB, 0)
        async with await found.shell() as shell:
            results = await asyncio.gather(*[shell.run(f"echo {number}") for number in range(5)])
            assert [result.stdout for result in results] == [f"{number}\n" for number in range(5)]
        async with await found.terminal(command="tty; exit 4") as terminal:
            assert b"/dev/pts/" in b"".join([data async for data in terminal])
            assert (await terminal.wait()).exit_code == 4
        waiting = await found.spawn("exec sleep 7106", timeout=600)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting.wait(), 1)
        await waiting.aclose()
    await asyncio.to_thread(await_end, sandbox, "^sleep 7106")


def test_files_are_changed_without_commands(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.mkdir("/tmp/pf/a", mode=0o750).mode == "0750"
    sandbox.upload("/tmp/pf/a/f", "text")
    assert files.chmod("/tmp/pf/a/f", "600").mode == "0600"
    assert files.chown("/tmp/pf", "daemon", recursive=True).user == "daemon"
    info = files.stat("/tmp/pf/a/f")
    assert (info.type, info.size, info.user) == ("file", 4, "daemon")
    assert files.move("/tmp/pf/a/f", "/tmp/pf/g").path == "/tmp/pf/g"
    with pytest.raises(CoppiceError) as taken:
        files.move("/tmp/pf/g", "/tmp/pf/a")
    assert taken.value.code == "already_exists"
    with files.download_archive("/tmp/pf", format="tar.gz") as stream:
        packed = b"".join(stream)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert {name.removeprefix("./").rstrip("/") for name in archive.getnames()} >= {"a", "g"}
    result = files.upload_archive("/tmp/pf2", io.BytesIO(packed), format="tar.gz", user="root")
    assert (result.path, result.size) == ("/tmp/pf2", 4)
    assert sandbox.download("/tmp/pf2/g") == "text"
    files.remove("/tmp/pf", recursive=True)
    with pytest.raises(CoppiceError) as gone:
        files.stat("/tmp/pf")
    assert gone.value.code == "file_not_found"
    assert files.create_link("/tmp/pf2/g", expires_in=60).url.startswith("http")


def test_changes_of_a_directory_are_watched(sandbox: Sandbox) -> None:
    sandbox.files.mkdir("/tmp/pw")
    with sandbox.files.watch("/tmp/pw", recursive=True) as changes:
        sandbox.exec("cd /tmp/pw && mkdir a && mv a b && rmdir b && cd / && rmdir /tmp/pw")
        seen = list(changes)
    assert FileChange("created", "/tmp/pw/a", directory=True) in seen
    assert FileRename("/tmp/pw/b", "/tmp/pw/a", directory=True) in seen
    assert FileChange("removed", "/tmp/pw/b", directory=True) in seen


def test_settings_metrics_and_snapshots(client: Coppice) -> None:
    name = f"py-{time.time_ns()}"
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    options = {"image": "coppice/base:1", "mem_mib": 256}
    with client.sandboxes.create(image="coppice/base:1", mem_mib=256, name=name, env={"A": "b"}, cwd="/etc") as sandbox:
        assert sandbox.exec("echo $A in $PWD").stdout == "b in /etc\n"
        assert [one.id for one in client.sandboxes.list(name=name)] == [sandbox.id]
        with pytest.raises(CoppiceError) as taken:
            client.sandboxes.create(**options, name=name)  # type: ignore[arg-type]
        assert taken.value.code == "already_exists"
        changed = sandbox.update(name=None, labels={"x": "y"}, env={"A": "c"}, cwd=None, expires_at=soon)
        assert (changed.name, changed.labels, changed.cwd) == (None, {"x": "y"}, None)
        assert changed.ends_at is not None
        assert sandbox.update(expires_at=None).ends_at is None
        assert sandbox.exec("echo $A").stdout == "c\n"
        metrics = sandbox.metrics(step=10)
        assert metrics.now is not None
        assert metrics.now.memory.size_bytes == 256 * MIB
        assert metrics.now.cpu.used_seconds > 0
        snapshot = sandbox.snapshot(name="py", expires_in=600)
        assert snapshot.expires_at is not None
        assert client.snapshots.update(snapshot.id, name=None, expires_at=None).expires_at is None
        found = client.snapshots.get(snapshot.id)
        assert found is not None
        assert (found.name, found.run_id) == (None, sandbox.id)
        client.snapshots.delete(snapshot.id)
        assert client.snapshots.get(snapshot.id) is None

"""Commands, files and ports of real sandboxes."""

from __future__ import annotations

import hashlib
import io
import os
import time
from pathlib import Path

import httpx
import pytest

from coppice import AsyncCoppice, Coppice, CoppiceError, Sandbox

MIB = 2**20


def test_exec_returns_exit_code_and_output(sandbox: Sandbox) -> None:
    result = sandbox.exec(
        "echo out; echo err >&2; echo $NAME in $PWD; cat; exit 7", env={"NAME": "é"}, cwd="/tmp", stdin="in"
    )
    assert (result.exit_code, result.stdout, result.stderr) == (7, "out\né in /tmp\nin", "err\n")
    late = sandbox.exec("sleep 60", timeout=1)
    assert (late.exit_code, late.timed_out) == (124, True)
    with pytest.raises(CoppiceError) as caught:
        sandbox.exec("true", user="absent-user")
    assert caught.value.status == 400


def test_listeners_hear_output_before_the_end(sandbox: Sandbox) -> None:
    times_s: list[float] = []
    result = sandbox.exec(
        "echo one; sleep 2; echo two; echo bad >&2", on_stdout=lambda _: times_s.append(time.monotonic())
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("one\ntwo\n", "bad\n", 0)
    assert times_s[-1] - times_s[0] > 1


def test_leaving_a_stream_kills_its_command(sandbox: Sandbox) -> None:
    with sandbox.stream("echo begun; exec sleep 7101", timeout=600) as output:
        for chunk in output:
            assert chunk.data == "begun\n"
            break
    ends_at_s = time.monotonic() + 30
    while sandbox.exec("pgrep -f '^sleep 7101'").exit_code == 0:
        assert time.monotonic() < ends_at_s, "the command still runs"
        time.sleep(0.2)


def test_a_command_outlives_its_client(sandbox: Sandbox) -> None:
    started = sandbox.commands.start("read line; echo got $line; echo bad >&2; exit 9", stdin=True, tag="py job")
    with Coppice() as another:
        found = another.sandboxes.get(sandbox.id)
        assert found is not None
        [command] = found.commands.list(tag="py job").all()
        assert command.id == started.id
        command.write("it\n", end=True)
        assert command.wait().exit_code == 9
    pieces = [(piece.type, getattr(piece, "data", "")) for piece in started.output()]
    assert sorted(pieces) == [("stderr", "bad\n"), ("stdout", "got it\n")]
    assert [piece.next_offset for piece in started.output(offset=7)] == [11]
    endless = sandbox.commands.start("sleep 600")
    endless.signal("TERM")
    assert endless.wait().exit_code == 143
    with pytest.raises(CoppiceError) as caught:
        endless.signal("TERM")
    assert caught.value.code == "invalid_state"


def test_files_come_back_as_they_were(sandbox: Sandbox, tmp_path: Path) -> None:
    content = os.urandom(3 * MIB)
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        assert sandbox.upload("/tmp/py/a file", file, mode=0o600).size == len(content)
    with sandbox.download_stream("/tmp/py/a file") as stream:
        assert hashlib.sha256(b"".join(stream)).digest() == hashlib.sha256(content).digest()
    sandbox.upload("/tmp/py/ü", "text é")
    assert sandbox.download("/tmp/py/ü") == "text é"
    sandbox.upload("/tmp/py/parts", iter([b"a", b"b"]))
    sandbox.upload("/tmp/py/memory", io.BytesIO(b"c"))
    entries = {entry.name: (entry.type, entry.size, entry.mode) for entry in sandbox.list_files("/tmp/py")}
    assert entries["a file"] == ("file", len(content), "0600")
    assert entries["parts"][1] == 2
    assert len(sandbox.list_files("/tmp/py", limit=1).all()) == 1
    with pytest.raises(CoppiceError) as caught:
        sandbox.download("/tmp/py/none")
    assert (caught.value.status, caught.value.code) == (404, "file_not_found")


def test_a_port_is_reached_with_the_key_and_a_preview_is_revoked(sandbox: Sandbox) -> None:
    sandbox.commands.start("cd /etc && exec python3 -m http.server 8000")
    url = sandbox.url(8000, "/hostname?x=1")
    headers = {"authorization": f"Bearer {os.environ['SANDBOX_API_KEY']}"}
    ends_at_s = time.monotonic() + 60
    while (answer := httpx.get(url, headers=headers)).status_code != 200:
        assert time.monotonic() < ends_at_s, answer.text
        time.sleep(0.2)
    assert answer.text == sandbox.download("/etc/hostname")
    assert httpx.get(url).status_code == 401
    preview = sandbox.preview(8000, expires_in=600)
    assert [one.id for one in sandbox.previews()] == [preview.id]
    sandbox.revoke_preview(preview.id)
    assert sandbox.previews() == []


def test_network_and_credentials_are_replaced(sandbox: Sandbox) -> None:
    network = sandbox.set_network({"allow": ["*.example.com"]})
    assert network.network.allow == ["*.example.com"]
    assert sandbox.set_network("unrestricted").network_profile == "unrestricted"
    assert sandbox.network().network_profile == "unrestricted"
    [credential] = sandbox.set_credentials(credentials={"openai": "sk-1"})
    assert (credential.service, credential.endpoints) == ("openai", None)
    rules = [{"methods": ["GET"], "paths": ["/repos"]}]
    sandbox.set_credentials(credentials_v2={"github": {"key": "s", "endpoints": rules}})  # type: ignore[typeddict-item]
    [changed] = sandbox.credentials()
    assert changed.endpoints is not None
    assert (changed.service, changed.endpoints[0].paths) == ("github", ["/repos"])


async def test_the_asynchronous_client_does_the_same() -> None:
    async with AsyncCoppice() as client:
        async with await client.sandboxes.create(image="coppice/base:1", mem_mib=256) as sandbox:
            heard: list[str] = []
            result = await sandbox.exec("echo out; exit 3", on_stdout=heard.append)
            assert (heard, result.exit_code) == (["out\n"], 3)
            command = await sandbox.commands.start("echo kept; sleep 1; echo more")
            pieces = [piece async for piece in command.output()]
            assert "".join(piece.data for piece in pieces if piece.type != "dropped") == "kept\nmore\n"
            await sandbox.upload("/tmp/f", io.BytesIO(b"bytes"))
            assert await sandbox.download_bytes("/tmp/f") == b"bytes"
            children = await sandbox.fork(2)
            assert [(await child.exec("cat /tmp/f")).stdout for child in children] == ["bytes", "bytes"]
            for child in children:
                await child.destroy()
        found = await client.sandboxes.get(sandbox.id)
        assert found is not None
        assert found.status == "destroyed"

"""Files beyond uploads and downloads, settings, metrics and snapshots."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from coppice import AsyncSandbox, CoppiceError, FileChange, FileRename, LostFileEvents
from coppice._async.client import AsyncCoppice
from loopback import SANDBOX_ID, LoopbackServer, Reply, Seen, in_turn, wire_record

RUN = f"/v1/runs/{SANDBOX_ID}"
FILE = {
    "name": "f",
    "path": "/w/f",
    "type": "file",
    "size": 3,
    "mode": "0644",
    "mtime": "2026-11-21T06:30:00.000Z",
    "uid": 1000,
    "gid": 1000,
    "user": "node",
}
SNAPSHOT = {
    "id": "snap1",
    "run_id": SANDBOX_ID,
    "name": "one",
    "image": "node:22-slim",
    "vcpus": 1,
    "mem_mib": 256,
    "disk_mib": 4096,
    "size_bytes": 5,
    "bound_to": {"qemu": "7"},
    "created_at": "2026-11-21T06:30:00.000Z",
    "expires_at": None,
}
NOON = datetime(2026, 12, 1, 13, 0, tzinfo=timezone(timedelta(hours=1)))


async def a_sandbox(server: LoopbackServer, client: AsyncCoppice) -> AsyncSandbox:
    server.answer_json(wire_record(), 201)
    return await client.sandboxes.create()


async def test_changes_of_files_send_what_is_given(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        files = (await a_sandbox(server, client)).files
        server.answer_json(FILE)
        info = await files.stat("/w/f &")
        assert (info.name, info.size, info.uid, info.user, info.group) == ("f", 3, 1000, "node", None)
        assert server.last.url == f"{RUN}/files/stat?path=%2Fw%2Ff%20%26"
        await files.mkdir("/w", mode=0o750, user="node")
        assert server.last.json == {"path": "/w", "mode": "750", "user": "node"}
        await files.move("/a", "/b", overwrite=True)
        assert server.last.json == {"from": "/a", "to": "/b", "overwrite": True}
        await files.chmod("/w", "0700", recursive=True)
        assert server.last.json == {"path": "/w", "mode": "0700", "recursive": True}
        await files.chown("/w", "node:node")
        assert server.last.json == {"path": "/w", "user": "node:node"}
        server.on_request(lambda _, reply: reply.begin(204, {}))
        await files.remove("/w", recursive=True)
        assert (server.last.method, server.last.url) == ("DELETE", f"{RUN}/files?path=%2Fw&recursive=true")
        with pytest.raises(ValueError, match="mode"):
            await files.chmod("/w", -1)


async def test_only_changes_that_can_be_repeated_are_retried(server: LoopbackServer) -> None:
    async with server.async_client(max_retries=1) as client:
        files = (await a_sandbox(server, client)).files
        server.on_request(lambda _, reply: reply.error(503, "unavailable", headers={"retry-after": "0"}))
        cases: list[tuple[Callable[[], Any], int]] = [
            (lambda: files.stat("/w"), 2),
            (lambda: files.mkdir("/w"), 2),
            (lambda: files.mkdir("/w", parents=False), 1),
            (lambda: files.move("/a", "/b"), 1),
            (lambda: files.remove("/a"), 1),
            (lambda: files.chmod("/a", 0o600), 2),
            (lambda: files.upload_archive("/a", io.BytesIO(b"tar")), 1),
            (lambda: files.upload_archive("/a", b"tar"), 2),
        ]
        for number, (work, attempts) in enumerate(cases):
            before = len(server.seen)
            with pytest.raises(CoppiceError):
                await work()
            assert (number, len(server.seen) - before) == (number, attempts)


async def test_archives_are_streams_of_bytes(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        files = (await a_sandbox(server, client)).files
        server.on_request(lambda _, reply: reply.body(b"a tar"))
        async with await files.download_archive("/w", format="tar.gz") as stream:
            assert b"".join([chunk async for chunk in stream]) == b"a tar"
        assert server.last.url == f"{RUN}/files/archive?path=%2Fw&format=tar.gz"
        server.answer_json({"path": "/w", "entries": 2, "size": 9})
        result = await files.upload_archive("/w", io.BytesIO(b"a tar"), format="tar", user="node")
        assert (result.path, result.entries, result.size) == ("/w", 2, 9)
        assert (server.last.method, server.last.body) == ("PUT", b"a tar")
        assert server.last.url == f"{RUN}/files/archive?path=%2Fw&format=tar&user=node"


async def test_a_link_is_not_printed(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        files = (await a_sandbox(server, client)).files
        server.answer_json({"url": "https://secret.example/", "expires_at": SNAPSHOT["created_at"]}, 201)
        link = await files.create_link("/w/f", method="upload", expires_in=60)
    assert server.last.json == {"path": "/w/f", "method": "upload", "expires_in": 60}
    assert (link.url, "secret" in repr(link)) == ("https://secret.example/", False)


async def test_a_watch_yields_changes_until_the_directory_is_gone(server: LoopbackServer) -> None:
    frames = [
        {"type": "created", "path": "/w/a", "directory": True},
        {"type": "of_a_newer_service"},
        {"type": "renamed", "path": "/w/b", "from": "/w/a", "directory": True},
        {"type": "lost"},
        {"type": "lost", "path": "/w/c"},
        {"type": "ended", "path": "/w"},
    ]
    async with server.async_client() as client:
        files = (await a_sandbox(server, client)).files
        server.on_request(lambda _, reply: reply.events(frames))
        async with await files.watch("/w", recursive=True) as changes:
            assert [change async for change in changes] == [
                FileChange("created", "/w/a", directory=True),
                FileRename("/w/b", "/w/a", directory=True),
                LostFileEvents(None),
                LostFileEvents("/w/c"),
            ]
    assert server.last.url == f"{RUN}/files/watch?path=%2Fw&recursive=true"


async def test_a_watch_that_breaks_or_fails_is_an_error(server: LoopbackServer) -> None:
    error = {"type": "error", "error": {"code": "invalid_state", "message": "gone", "request_id": "r"}}
    cases: list[tuple[list[Any], str]] = [
        ([], "connection_failed"),
        ([error], "invalid_state"),
        ([{"type": "created", "path": "/w"}], "invalid_response"),
        ([{"type": "removed", "path": 5, "directory": True}], "invalid_response"),
    ]
    async with server.async_client() as client:
        files = (await a_sandbox(server, client)).files
        for frames, code in cases:
            server.on_request(lambda _, reply, frames=frames: reply.events(frames))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                async for _ in await files.watch("/w"):
                    pass
            assert caught.value.code == code


async def test_update_sends_null_for_none_and_nothing_for_what_is_left_out(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        sandbox = await a_sandbox(server, client)
        server.answer_json(wire_record(name="one"))
        await sandbox.update(timeout=0, labels={"a": "b"}, env={"C": "d"}, auto_hibernate=True, expires_at=NOON)
        assert server.last.json == {
            "timeout": 0,
            "labels": {"a": "b"},
            "env": {"C": "d"},
            "auto_hibernate": True,
            "expires_at": "2026-12-01T12:00:00.000Z",
        }
        await sandbox.update(name=None, cwd=None, max_lifetime=None, expires_at=None)
        assert server.last.json == {"name": None, "cwd": None, "max_lifetime": None, "expires_at": None}
        assert sandbox.name == "one"
        with pytest.raises(ValueError, match="expires_at must have a time zone"):
            await sandbox.update(expires_at=datetime(2026, 12, 1))  # noqa: DTZ001


async def test_create_restore_and_list_take_names_and_places(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.answer_json(wire_record(), 201)
        await client.sandboxes.create(name="n", env={"A": "b"}, cwd="/w", expires_at="2026-12-01T00:00:00Z")
        assert server.last.json == {
            "image": "node:22-slim",
            "name": "n",
            "env": {"A": "b"},
            "cwd": "/w",
            "expires_at": "2026-12-01T00:00:00Z",
        }
        await client.sandboxes.restore("snap1", name="n", cwd=None)
        assert server.last.json == {"snapshot_id": "snap1", "name": "n", "cwd": None}
        server.answer_json([])
        assert await client.sandboxes.list(name="n &").all() == []
    assert server.last.url == "/v1/runs?name=n%20%26"


async def test_metrics_are_records(server: LoopbackServer) -> None:
    now = {
        "at": "2026-11-21T06:30:00.000Z",
        "cpu": {"used_seconds": 1.5, "utilization": None},
        "memory": {"host_bytes": 1, "size_bytes": 2},
        "disk": {"used_bytes": 1, "size_bytes": 2, "read_bytes": 3, "written_bytes": 4},
        "workspace": None,
        "network": {"received_bytes": 1, "sent_bytes": 2, "received_packets": 3, "sent_packets": 4},
        "guest_reported": None,
    }
    answers = in_turn(
        lambda _, reply: reply.json(wire_record(), 201),
        lambda _, reply: reply.json({"now": now, "series": [], "step_seconds": 60}),
        lambda _, reply: reply.json({"now": None, "series": [], "step_seconds": 10}),
    )
    async with server.async_client() as client:
        server.on_request(answers)
        sandbox = await client.sandboxes.create()
        metrics = await sandbox.metrics(since=NOON, step=60)
        assert server.last.url == f"{RUN}/metrics?since=2026-12-01T12%3A00%3A00.000Z&step=60"
        assert metrics.now is not None
        assert metrics.now.network is not None
        assert (metrics.now.cpu.utilization, metrics.now.network.sent_packets) == (None, 4)
        assert (await sandbox.metrics()).now is None


async def test_snapshots_are_found_changed_and_expire(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.url.endswith("/absent"):
            reply.error(404, "not_found")
        elif seen.method == "POST" and seen.url == "/v1/runs":
            reply.json(wire_record(), 201)
        else:
            reply.json(SNAPSHOT)

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        await sandbox.snapshot(name="one", expires_in=60)
        assert server.last.json == {"name": "one", "expires_in": 60}
        found = await client.snapshots.get("snap1")
        assert found is not None
        assert (found.bound_to, found.disk, found.expires_at) == ({"qemu": "7"}, None, None)
        assert await client.snapshots.get("absent") is None
        await client.snapshots.update("snap1", expires_at=None)
        assert (server.last.method, server.last.json) == ("PATCH", {"expires_at": None})
        await client.snapshots.update("snap1", name="two")
        assert server.last.json == {"name": "two"}

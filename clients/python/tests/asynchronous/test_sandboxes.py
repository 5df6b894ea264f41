"""Creation, lists and ends of sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from coppice import AsyncForkError, CoppiceError
from loopback import DESTROYED, SANDBOX_ID, TEST_KEY, LoopbackServer, Reply, Seen, in_turn, wire_record


async def test_create_sends_the_options_and_returns_the_record(server: LoopbackServer) -> None:
    server.answer_json(wire_record(a_field_of_a_newer_service=1), 201)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create(
            image="python:3.12-slim", mem_mib=2048, labels={"a-b": "c"}, network={"allow": ["example.com"]}
        )
    assert (sandbox.id, sandbox.status, sandbox.record.create_ms) == (SANDBOX_ID, "running", 81.5)
    assert server.last.json == {
        "image": "python:3.12-slim",
        "mem_mib": 2048,
        "labels": {"a-b": "c"},
        "network": {"allow": ["example.com"]},
    }
    assert server.last.headers["authorization"] == f"Bearer {TEST_KEY}"
    assert len(server.last.headers["idempotency-key"]) == 32


async def test_the_default_image_is_sent_and_each_create_has_a_key_of_its_own(server: LoopbackServer) -> None:
    server.answer_json(wire_record(), 201)
    async with server.async_client() as client:
        await client.sandboxes.create()
        await client.sandboxes.create(idempotency_key="mine")
        await client.sandboxes.create()
    assert server.seen[0].json == {"image": "node:22-slim"}
    keys = [one.headers["idempotency-key"] for one in server.seen]
    assert keys[1] == "mine"
    assert len(set(keys)) == 3


async def test_restore_without_a_lifetime_differs_from_one_that_leaves_it_out(server: LoopbackServer) -> None:
    server.answer_json(wire_record(), 201)
    async with server.async_client() as client:
        await client.sandboxes.restore("snap1", timeout=5)
        await client.sandboxes.restore("snap1", max_lifetime=None)
    assert [one.json for one in server.seen] == [
        {"snapshot_id": "snap1", "timeout": 5},
        {"snapshot_id": "snap1", "max_lifetime": None},
    ]


async def test_the_end_of_a_block_destroys_the_sandbox(server: LoopbackServer) -> None:
    server.on_request(in_turn(lambda _, reply: reply.json(wire_record(), 201), lambda _, reply: reply.json(DESTROYED)))
    async with server.async_client() as client:
        async with await client.sandboxes.create() as sandbox:
            pass
        assert sandbox.status == "destroyed"
    assert server.lines == ["POST /v1/runs", f"DELETE /v1/runs/{SANDBOX_ID}"]


async def test_a_kept_or_detached_sandbox_stays(server: LoopbackServer) -> None:
    server.answer_json(wire_record(), 201)
    async with server.async_client() as client:
        async with await client.sandboxes.create(keep=True):
            pass
        async with await client.sandboxes.create() as sandbox:
            assert sandbox.detach() is sandbox
    assert server.lines == ["POST /v1/runs"] * 2


async def test_the_end_of_a_block_accepts_a_sandbox_that_has_ended(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            reply.error(409, "invalid_state")
        else:
            reply.json(wire_record(status="running" if seen.method == "POST" else "failed"))

    server.on_request(answer)
    async with server.async_client() as client, await client.sandboxes.create():
        pass
    assert [one.method for one in server.seen] == ["POST", "DELETE", "GET"]


async def test_the_end_of_a_block_reports_another_failure(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            reply.error(409, "invalid_state", "the sandbox is hibernating")
        else:
            reply.json(wire_record())

    server.on_request(answer)
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            async with await client.sandboxes.create():
                pass
        assert caught.value.detail == "the sandbox is hibernating"


async def test_get_returns_none_for_404_and_refuses_ids_that_change_the_path(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.error(404, "not_found"))
    async with server.async_client() as client:
        assert await client.sandboxes.get("run/../x?") is None
        assert server.last.url == "/v1/runs/run%2F..%2Fx%3F"
        for wrong in ("", ".", ".."):
            with pytest.raises(ValueError, match="the sandbox id"):
                await client.sandboxes.get(wrong)


async def test_lists_follow_the_query_of_the_link_only(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if "cursor" in seen.url:
            reply.json([wire_record(id="run2"), wire_record(id="run3")])
        else:
            reply.json(
                [wire_record(id="run1")], headers={"link": '<https://elsewhere.example/x?cursor=a%2Fb>; rel="next"'}
            )

    server.on_request(answer)
    async with server.async_client() as client:
        listed = client.sandboxes.list(labels={"job": "night ly"}, status=["running", "failed"])
        assert [one.id for one in await listed.all()] == ["run1", "run2", "run3"]
        assert [[one.id for one in page] async for page in listed.pages()] == [["run1"], ["run2", "run3"]]
        assert [one.id async for one in client.sandboxes.list(limit=2)] == ["run1", "run2"]
        with pytest.raises(ValueError, match="limit"):
            client.sandboxes.list(limit=0)
    assert server.seen[0].url == "/v1/runs?status=running&status=failed&label=job%3Anight%20ly"
    assert server.seen[1].url == "/v1/runs?cursor=a%2Fb"
    assert server.seen[4].url == "/v1/runs?limit=2"


async def test_a_list_without_an_end_is_an_error(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.json([], headers={"link": '</x?cursor=1>; rel="next"'}))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.sandboxes.list().all()
    assert caught.value.code == "invalid_response"
    assert len(server.seen) == 2


async def test_a_partly_failed_fork_has_its_children_and_its_errors(server: LoopbackServer) -> None:
    failed = {"error": {"code": "capacity", "message": "the host is full", "request_id": "req1"}}
    server.on_request(
        in_turn(
            lambda _, reply: reply.json([wire_record()]),
            lambda _, reply: reply.json([wire_record(id="run1"), failed], 207),
            lambda _, reply: reply.json([wire_record(id="run1")], 201),
        )
    )
    async with server.async_client() as client:
        [sandbox] = await client.sandboxes.list().all()
        with pytest.raises(AsyncForkError) as caught:
            await sandbox.fork(2, disks=["a", "b"])
        assert [child.id for child in caught.value.children] == ["run1"]
        assert [(error.code, error.detail) for error in caught.value.errors] == [("capacity", "the host is full")]
        assert (caught.value.status, caught.value.code) == (207, "capacity")
        assert server.last.json == {"count": 2, "disks": ["a", "b"]}
        with pytest.raises(CoppiceError) as wrong:
            await sandbox.fork(2)
        assert wrong.value.code == "invalid_response"


async def test_a_retried_hibernation_that_had_succeeded_is_a_success(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        posts = sum(one.url.endswith("/hibernate") for one in server.seen)
        if seen.method == "GET":
            reply.json(wire_record(status="hibernated" if posts else "running"))
        elif posts == 1:
            reply.error(503, "unavailable", headers={"retry-after": "0"})
        else:
            reply.error(409, "invalid_state")

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.get(SANDBOX_ID)
        assert sandbox is not None
        assert (await sandbox.hibernate()).status == "hibernated"
        with pytest.raises(CoppiceError) as caught:
            await sandbox.resume()
    assert caught.value.code == "invalid_state"


async def test_changes_send_their_bodies(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        reply.json([] if seen.url.endswith("/credentials") else wire_record())

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        await sandbox.set_timeout(0)
        await sandbox.rollback("snap1", idempotency_key="k")
        await sandbox.resume(disk="fresh")
        rules: Any = {"key": "s", "endpoints": [{"methods": ["GET"], "paths": []}]}
        await sandbox.set_credentials(credentials={"openai": "s1"}, credentials_v2={"github": rules})
    assert [(one.method, one.url.removeprefix(f"/v1/runs/{SANDBOX_ID}")) for one in server.seen[1:]] == [
        ("PATCH", ""),
        ("POST", "/rollback"),
        ("POST", "/resume?disk=fresh"),
        ("PUT", "/credentials"),
    ]
    assert server.seen[1].json == {"timeout": 0}
    assert server.seen[2].json == {"snapshot_id": "snap1"}
    assert server.last.json == {"credentials": {"openai": "s1"}, "credentials_v2": {"github": rules}}

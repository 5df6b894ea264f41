"""Sandboxes that are found by their name, or created."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from coppice import CoppiceError
from loopback import SANDBOX_ID, Answer, LoopbackServer, Reply, Seen, in_turn, wire_record

RUN = f"/v1/runs/{SANDBOX_ID}"


def named(**changes: Any) -> dict[str, Any]:
    return wire_record(name="ci", **changes)


def answer(body: Any, status: int = 200) -> Answer:
    return lambda _, reply: reply.json(body, status)


def refuse(status: int, code: str, message: str = "no") -> Answer:
    return lambda _, reply: reply.error(status, code, message)


TAKEN = refuse(409, "already_exists", 'name: a sandbox of the team is called "ci"')


def give(server: LoopbackServer, script: dict[str, list[Answer]]) -> None:
    """Gives the answers of each endpoint in turn, and the last one from then on."""
    answers = {line: in_turn(*one) for line, one in script.items()}

    def reply_to(seen: Seen, reply: Reply) -> None:
        answers[f"{seen.method} {seen.url.partition('?')[0]}"](seen, reply)

    server.on_request(reply_to)


async def test_a_free_name_creates_the_sandbox_with_the_options_of_create(server: LoopbackServer) -> None:
    options: dict[str, Any] = {
        "image": "python:3.12-slim",
        "vcpus": 2,
        "mem_mib": 512,
        "disk_mib": 8192,
        "timeout": 0,
        "labels": {"a": "b"},
        "max_lifetime": 60,
        "expires_at": datetime(2026, 12, 1, tzinfo=timezone.utc),
        "auto_hibernate": True,
        "env": {"CI": "1"},
        "cwd": "/tmp",
        "network": {"allow": ["example.com"]},
        "network_profile": "open",
        "credentials": {"openai": "s"},
        "credentials_v2": {"github": {"key": "s", "endpoints": []}},
        "disk": "d",
        "fork_from_disk": "e",
        "disk_snapshot": "f",
    }
    server.answer_json(named(), 201)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.get_or_create("ci", team="web", **options)
        assert (sandbox.id, sandbox.name, sandbox.status) == (SANDBOX_ID, "ci", "running")
        await client.sandboxes.create(name="ci", **options)
        await client.sandboxes.get_or_create("ci")
    assert server.lines == ["POST /v1/runs"] * 3
    assert server.seen[0].json.keys() == {"name", *options}
    assert server.seen[0].json == server.seen[1].json
    assert server.seen[2].json == {"image": "node:22-slim", "name": "ci"}
    assert len({one.headers["idempotency-key"] for one in server.seen}) == 3


async def test_the_running_sandbox_with_the_name_is_returned_unchanged(server: LoopbackServer) -> None:
    give(server, {"POST /v1/runs": [TAKEN], "GET /v1/runs": [answer([named()])]})
    async with server.async_client() as client:
        async with await client.sandboxes.get_or_create("ci", team="web", keep=True) as sandbox:
            assert (sandbox.id, sandbox.name, sandbox.status) == (SANDBOX_ID, "ci", "running")
    assert server.lines == ["POST /v1/runs", "GET /v1/runs?name=ci&team=web&limit=2"]


@pytest.mark.parametrize("operation", ["forking", "snapshotting", "rolling_back"])
async def test_an_operation_that_leaves_the_sandbox_running_is_not_waited_for(
    server: LoopbackServer, operation: str
) -> None:
    give(server, {"POST /v1/runs": [TAKEN], "GET /v1/runs": [answer([named(operation=operation)])]})
    async with server.async_client() as client:
        assert (await client.sandboxes.get_or_create("ci")).record.operation == operation
    assert len(server.seen) == 2


async def test_a_hibernated_sandbox_is_resumed_also_one_that_is_being_hibernated(server: LoopbackServer) -> None:
    give(
        server,
        {
            "POST /v1/runs": [TAKEN],
            "GET /v1/runs": [answer([named(operation="hibernating")])],
            f"GET {RUN}": [answer(named(status="hibernated"))],
            f"POST {RUN}/resume": [answer(named())],
        },
    )
    async with server.async_client() as client:
        assert (await client.sandboxes.get_or_create("ci")).status == "running"
    assert server.lines[2:] == [f"GET {RUN}", f"POST {RUN}/resume"]


async def test_a_sandbox_that_another_caller_resumes_is_waited_for(server: LoopbackServer) -> None:
    give(
        server,
        {
            "POST /v1/runs": [TAKEN],
            "GET /v1/runs": [answer([named(status="hibernated")])],
            f"POST {RUN}/resume": [refuse(409, "invalid_state", "it is being resumed")],
            f"GET {RUN}": [answer(named(status="hibernated", operation="resuming")), answer(named())],
        },
    )
    async with server.async_client() as client:
        assert (await client.sandboxes.get_or_create("ci")).status == "running"
    assert server.lines[2:] == [f"POST {RUN}/resume", f"GET {RUN}", f"GET {RUN}"]


async def test_a_sandbox_that_ends_meanwhile_is_created_again(server: LoopbackServer) -> None:
    give(
        server,
        {
            "POST /v1/runs": [TAKEN, TAKEN, answer(named(id="run2"), 201)],
            "GET /v1/runs": [answer([named(status="creating")]), answer([])],
            f"GET {RUN}": [answer(named(status="failed"))],
        },
    )
    async with server.async_client() as client:
        assert (await client.sandboxes.get_or_create("ci")).id == "run2"
    keys = [one.headers["idempotency-key"] for one in server.seen if one.method == "POST"]
    assert len(set(keys)) == 3, "a create with a key of a refused one would be refused again"


async def test_a_name_that_no_sandbox_has_is_the_error_of_the_create(server: LoopbackServer) -> None:
    taken_disk = refuse(409, "already_exists", 'disk: there is a disk "a" already')
    give(server, {"POST /v1/runs": [taken_disk], "GET /v1/runs": [answer([])]})
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.sandboxes.get_or_create("ci")
    assert (caught.value.code, caught.value.detail) == ("already_exists", 'disk: there is a disk "a" already')
    assert server.lines.count("POST /v1/runs") == 5


async def test_it_does_not_choose_between_sandboxes_of_several_teams(server: LoopbackServer) -> None:
    give(server, {"POST /v1/runs": [TAKEN], "GET /v1/runs": [answer([named(), named(id="run2")])]})
    async with server.async_client() as client:
        with pytest.raises(CoppiceError, match='called "ci"; pass the team') as caught:
            await client.sandboxes.get_or_create("ci")
    assert (caught.value.status, caught.value.code) == (0, "ambiguous_name")


async def test_other_errors_of_the_create_and_of_the_resume_are_raised(server: LoopbackServer) -> None:
    give(
        server,
        {
            "POST /v1/runs": [refuse(402, "credit_exhausted"), TAKEN],
            "GET /v1/runs": [answer([named(status="hibernated")])],
            f"POST {RUN}/resume": [refuse(409, "disk_changed")],
        },
    )
    async with server.async_client() as client:
        for code in ("credit_exhausted", "disk_changed"):
            with pytest.raises(CoppiceError) as caught:
                await client.sandboxes.get_or_create("ci")
            assert caught.value.code == code


async def test_all_requests_and_pauses_have_one_deadline(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coppice._async.transport.SLOW_CALL_S", 0.0)
    creating = answer(named(status="creating"))
    give(
        server,
        {"POST /v1/runs": [TAKEN], "GET /v1/runs": [answer([named(status="creating")])], f"GET {RUN}": [creating]},
    )
    async with server.async_client(timeout_ms=600) as client:
        with pytest.raises(CoppiceError) as caught:
            await client.sandboxes.get_or_create("ci")
    assert caught.value.code == "timeout"
    assert server.lines.count(f"GET {RUN}") < 10


async def test_a_call_without_a_name_is_refused_before_a_request_is_sent(server: LoopbackServer) -> None:
    missing: Any = None
    async with server.async_client() as client:
        with pytest.raises(TypeError, match="name must be a text"):
            await client.sandboxes.get_or_create(missing)
    assert server.seen == []

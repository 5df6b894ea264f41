"""Builds of images from steps."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from coppice import BuildEvent, CoppiceError
from loopback import LoopbackServer, Reply, Seen

ID = "build0123456789abcdef0123"
LOG = f"GET /v1/images/builds/{ID}/log"
WIRE: dict[str, Any] = {
    "id": ID,
    "status": "done",
    "name": "built/app:1",
    "from": "node:22-slim",
    "image": "built/app:1@sha256:0",
    "size_bytes": 5,
    "run_id": "run0123456789abcdef0123",
    "steps": 2,
    "steps_done": 2,
    "error": None,
    "created_at": "2026-01-01T00:00:00.000Z",
    "ended_at": "2026-01-01T00:01:00.000Z",
}
EVENTS: list[dict[str, Any]] = [
    {"type": "step", "seq": 1, "step": 0, "text": "RUN a", "cached": True},
    {"type": "stderr", "seq": 2, "step": 1, "data": "out\n"},
    {"type": "note", "seq": 3, "text": "making the image"},
    {"type": "end", "seq": 4, "build": WIRE},
]


RUNNING: dict[str, Any] = {**WIRE, "status": "running", "image": None, "size_bytes": None, "ended_at": None}


def serve(server: LoopbackServer, *logs: list[dict[str, Any]], builds: Sequence[dict[str, Any]] = (WIRE,)) -> None:
    """Answers requests for the log, and for the build, with the next of these. The last build stays."""
    left, left_builds = list(logs), list(builds)

    def answer(seen: Seen, reply: Reply) -> None:
        if "/log" not in seen.url:
            reply.json(left_builds.pop(0) if len(left_builds) > 1 else left_builds[0])
            return
        events = left.pop(0)
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        reply.body(text.encode(), 200, {"content-type": "text/event-stream"})

    server.on_request(answer)


def lines_of_logs(server: LoopbackServer) -> list[str]:
    return [line for line in server.lines if "/log" in line]


async def test_a_build_sends_its_steps_and_options_and_does_not_wait(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.answer_json(WIRE, 201)
        build = await client.builds.start(
            "app:1",
            from_="node:22-slim",
            steps=[{"run": ["make", "all"]}, {"copy": {"from_path": "src", "to": "/srv", "mode": "755"}}],
            context="c",
            no_cache=True,
            timeout=60,
            network_profile="npm",
            mem_mib=512,
        )
        assert (build.id, build.from_, build.image) == (ID, "node:22-slim", "built/app:1@sha256:0")
    assert server.lines == ["POST /v1/images/build"]
    assert "idempotency-key" in server.last.headers
    assert server.last.json == {
        "name": "app:1",
        "from": "node:22-slim",
        "steps": [{"run": ["make", "all"]}, {"copy": {"from_path": "src", "to": "/srv", "mode": "755"}}],
        "context": "c",
        "no_cache": True,
        "timeout": 60,
        "network_profile": "npm",
        "mem_mib": 512,
        "detached": True,
    }


async def test_run_reports_the_log_and_returns_the_build(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        serve(server, EVENTS)
        told: list[BuildEvent] = []
        build = await client.builds.run("app:1", dockerfile="FROM a:1", build_args={"A": "b"}, on_event=told.append)
        assert build.status == "done"
        assert [event.type for event in told] == ["step", "stderr", "note", "end"]
        assert (told[0].cached, told[1].data, told[3].build) == (True, "out\n", build)


async def test_a_log_that_breaks_off_continues_after_its_last_event(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        serve(server, EVENTS[:2], EVENTS[2:], builds=[RUNNING])
        assert [event.seq async for event in client.builds.follow(ID)] == [1, 2, 3, 4]
    assert lines_of_logs(server) == [f"{LOG}?after=0", f"{LOG}?after=2"]


async def test_a_log_without_an_end_is_ended_by_the_record_of_the_build(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        # The build runs after the first, it has ended after the second; the third finds no more events.
        serve(server, EVENTS[:1], EVENTS[1:3], [], builds=[RUNNING, WIRE])
        events = [event async for event in client.builds.follow(ID)]
        assert [event.seq for event in events] == [1, 2, 3, 4]
        assert (events[3].type, events[3].build) == ("end", await client.builds.get(ID))
    assert lines_of_logs(server) == [f"{LOG}?after={after}" for after in (0, 1, 3)]


async def test_an_error_in_the_middle_of_the_log_is_that_of_the_service(server: LoopbackServer) -> None:
    restart = {"type": "error", "error": {"code": "unavailable", "message": "it restarts", "request_id": "req0a1b"}}
    revoked = {"type": "error", "error": {"code": "unauthorized", "message": "the key was revoked"}}
    async with server.async_client() as client:
        serve(server, [EVENTS[0], restart], EVENTS[1:])
        assert [event.seq async for event in client.builds.follow(ID)] == [1, 2, 3, 4]
        serve(server, [revoked])
        with pytest.raises(CoppiceError) as raised:
            [event async for event in client.builds.follow(ID)]
        assert (raised.value.code, raised.value.detail) == ("unauthorized", "the key was revoked")


async def test_an_event_of_64_kib_of_control_characters_is_read(server: LoopbackServer) -> None:
    data = "\x01" * 65_536
    async with server.async_client() as client:
        serve(server, [{"type": "stdout", "seq": 1, "step": 0, "data": data}, {**EVENTS[3], "seq": 2}])
        events = [event async for event in client.builds.follow(ID)]
        assert (events[0].data, events[1].type) == (data, "end")


async def test_attempts_to_continue_a_log_are_bounded(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("coppice._async.image_builds.sleep", wait)
    async with server.async_client() as client:
        serve(server, *([[]] * 9), builds=[RUNNING])
        with pytest.raises(CoppiceError) as raised:
            [event async for event in client.builds.follow(ID)]
        assert raised.value.code == "connection_failed"
    assert (len(waits), len(lines_of_logs(server))) == (8, 9)


@pytest.mark.parametrize("log_answers", [False, True])
async def test_a_silent_host_is_given_up_although_each_attempt_takes_long(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch, log_answers: bool
) -> None:
    """The times are short here: an attempt takes longer than the wait after which a stream counts as lasting."""
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 20, "it is not given up"

    monkeypatch.setattr("coppice._async.image_builds.sleep", wait)
    monkeypatch.setattr("coppice._async.image_builds.BUILD_LOG_SILENCE_S", 0.5)
    monkeypatch.setattr("coppice._core.retry.MAX_DELAY_S", 0.4)

    def answer(seen: Seen, reply: Reply) -> None:
        if log_answers and "/log" in seen.url:
            reply.body(b"", 200, {"content-type": "text/event-stream"})
        else:
            reply.wait_for_end()

    server.on_request(answer)
    async with server.async_client(timeout_ms=500) as client:
        with pytest.raises(CoppiceError) as raised:
            [event async for event in client.builds.follow(ID)]
        assert raised.value.code == "timeout"
    assert len(waits) == 8


async def test_a_log_that_lasted_without_an_event_begins_a_new_series(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("coppice._async.image_builds.sleep", wait)
    monkeypatch.setattr("coppice._core.retry.MAX_DELAY_S", 0.01)

    def answer(_: Seen, reply: Reply) -> None:
        if len(lines_of_logs(server)) > 20:
            reply.events(EVENTS)
            return
        reply.begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        reply.chunk(b": a comment\n\n")
        time.sleep(0.03)
        reply.cut()

    server.on_request(answer)
    async with server.async_client() as client:
        assert [event.seq async for event in client.builds.follow(ID)] == [1, 2, 3, 4]
    assert len(waits) == 20


async def test_a_build_that_failed_is_found_and_its_error_is_a_field_of_it(server: LoopbackServer) -> None:
    error = {"code": "build_failed", "message": "steps[1]: false ended with exit code 1"}
    server.answer_json({**WIRE, "status": "failed", "image": None, "error": error})
    async with server.async_client() as client:
        for build in (await client.builds.get(ID), await client.builds.cancel(ID)):
            assert build.error is not None
            assert (build.error.code, build.error.message) == ("build_failed", error["message"])


async def test_a_build_that_fails_is_an_error_with_the_reason(server: LoopbackServer) -> None:
    reason = "steps[1]: false ended with exit code 1"
    failed = {**WIRE, "status": "failed", "image": None, "error": {"code": "build_failed", "message": reason}}
    async with server.async_client() as client:
        for build, detail in [
            (failed, reason),
            ({**failed, "status": "cancelled", "error": None}, "the build is cancelled"),
        ]:
            serve(server, [{"type": "end", "seq": 1, "build": build}], builds=[build])
            with pytest.raises(CoppiceError) as raised:
                await client.builds.run("app:1", from_="a:1", steps=[])
            assert (raised.value.code, raised.value.detail) == ("build_failed", detail)


async def test_a_refused_log_and_an_invalid_event_are_errors(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_request(lambda _, reply: reply.error(404, "not_found"))
        with pytest.raises(CoppiceError) as refused:
            [event async for event in client.builds.follow(ID)]
        assert refused.value.code == "not_found"
        for wrong in ({"type": "end", "seq": 1}, {"type": "note"}):
            serve(server, [wrong])
            with pytest.raises(CoppiceError) as invalid:
                [event async for event in client.builds.follow(ID)]
            assert invalid.value.code == "invalid_response"


async def test_builds_are_found_listed_and_cancelled_and_contexts_and_images_have_calls(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.answer_json(WIRE)
        assert (await client.builds.get(ID)).id == ID
        assert (await client.builds.cancel(ID)).id == ID
        assert await client.builds.upload_context(b"archive") == ID
        assert server.last.body == b"archive"
        await client.builds.delete_context("context0/1")
        server.answer_json([WIRE])
        assert [build.id for build in await client.builds.list()] == [ID]
        server.answer_json({"image": "built/app:1", "deleted": True})
        await client.images.delete("built/app:1")
    assert server.lines == [
        f"GET /v1/images/builds/{ID}",
        f"DELETE /v1/images/builds/{ID}",
        "POST /v1/images/contexts",
        "DELETE /v1/images/contexts/context0%2F1",
        "GET /v1/images/builds",
        "DELETE /v1/images?image=built%2Fapp%3A1",
    ]

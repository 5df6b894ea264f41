"""Builds of images from steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coppice import BuildEvent, CoppiceError
from loopback import LoopbackServer, Reply, Seen

ID = "build0123456789abcdef0123"
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


def serve(server: LoopbackServer, *logs: list[dict[str, Any]], build: dict[str, Any] = WIRE) -> None:
    """Answers with a build, and each request for its log with the next of these logs."""
    left = list(logs)

    def answer(seen: Seen, reply: Reply) -> None:
        if "/log" not in seen.url:
            reply.json(build)
            return
        events = left.pop(0)
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        reply.body(text.encode(), 200, {"content-type": "text/event-stream"})

    server.on_request(answer)


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
        serve(server, EVENTS[:2], EVENTS[2:])
        assert [event.seq async for event in client.builds.follow(ID)] == [1, 2, 3, 4]
    path = f"GET /v1/images/builds/{ID}/log"
    assert server.lines == [f"{path}?after=0", f"{path}?after=2"]


async def test_a_build_that_fails_is_an_error_with_the_reason(server: LoopbackServer) -> None:
    reason = "steps[1]: false ended with exit code 1"
    failed = {**WIRE, "status": "failed", "image": None, "error": {"code": "build_failed", "message": reason}}
    async with server.async_client() as client:
        for build, detail in [
            (failed, reason),
            ({**failed, "status": "cancelled", "error": None}, "the build is cancelled"),
        ]:
            serve(server, [{"type": "end", "seq": 1, "build": build}], build=build)
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
        server.answer_json([WIRE])
        assert [build.id for build in await client.builds.list()] == [ID]
        server.answer_json({"image": "built/app:1", "deleted": True})
        await client.images.delete("built/app:1")
    assert server.lines == [
        f"GET /v1/images/builds/{ID}",
        f"DELETE /v1/images/builds/{ID}",
        "POST /v1/images/contexts",
        "GET /v1/images/builds",
        "DELETE /v1/images?image=built%2Fapp%3A1",
    ]

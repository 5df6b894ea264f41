"""Events of the organization, as a stream and as a list."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import unquote

import pytest

from coppice import AsyncEventStream, CoppiceError, EventInfo, LostEvents
from loopback import SANDBOX_ID, LoopbackServer, Reply, Seen, in_turn, wait_until


def record(number: int, kind: str = "sandbox.created") -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "timestamp": "2026-11-21T06:30:00.000Z",
        "team_id": "team1",
        "run_id": SANDBOX_ID,
        "labels": {"job": "nightly"},
        "data": {"snapshot_id": "snap1", "ports": [1]},
    }


def position(number: int) -> dict[str, Any]:
    return {"type": "position", "id": number}


def begin(reply: Reply, *frames: dict[str, Any]) -> None:
    """Sends events, and leaves the answer open."""
    reply.begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    for frame in frames:
        reply.chunk(f"id: {frame['id']}\ndata: {json.dumps(frame)}\n\n".encode())


async def take(events: AsyncEventStream, count: int) -> list[EventInfo | LostEvents]:
    """Reads that many events, and closes the stream."""
    taken: list[EventInfo | LostEvents] = []
    async with events:
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


def queries(server: LoopbackServer) -> list[str]:
    return [unquote(one.url.removeprefix("/v1/events")) for one in server.seen]


async def test_events_have_their_fields_and_the_query_has_the_filter(server: LoopbackServer) -> None:
    closed: list[bool] = []

    def answer(_: Seen, reply: Reply) -> None:
        begin(reply, position(3), record(5, "of.a_newer_service"))
        closed.append(reply.wait_for_end())

    server.on_request(answer)
    async with server.async_client() as client:
        events = client.events(
            after=3, types=["sandbox.created", "sandbox.failed"], run_id=SANDBOX_ID, labels={"a": "b:c"}
        )
        [event] = await take(events, 1)
        # The end of the block closes the connection.
        wait_until(lambda: closed == [True])
    assert event == EventInfo(
        id=5,
        type="of.a_newer_service",
        timestamp="2026-11-21T06:30:00.000Z",
        team_id="team1",
        run_id=SANDBOX_ID,
        labels={"job": "nightly"},
        data={"snapshot_id": "snap1", "ports": [1]},
    )
    assert events.after == 5
    assert queries(server) == [f"?type=sandbox.created&type=sandbox.failed&run_id={SANDBOX_ID}&label=a:b:c&after=3"]
    assert server.last.headers["accept"] == "text/event-stream"


async def test_after_a_lost_connection_it_continues_and_repeats_nothing(server: LoopbackServer) -> None:
    def cut_in_an_event(_: Seen, reply: Reply) -> None:
        begin(reply, position(9), record(12))
        reply.chunk(b'data: {"type": "sandbox.created", "id": 1')
        reply.cut()

    server.on_request(
        in_turn(
            lambda _, reply: reply.events([position(7)], cut=True),
            lambda _, reply: reply.events([position(7), record(9)]),
            lambda _, reply: reply.error(503, "unavailable"),
            cut_in_an_event,
            lambda _, reply: reply.events([position(12), record(13)]),
        )
    )
    async with server.async_client() as client:
        assert [event.id for event in await take(client.events(), 3)] == [9, 12, 13]
    assert queries(server) == ["", "?after=7", "?after=9", "?after=9", "?after=12"]


async def test_a_later_loop_continues_where_the_last_one_stopped(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        # The second loop uses the connection of the first one, or a new one.
        after = int(seen.url.rpartition("=")[2])
        reply.events([record(number) for number in (2, 3, 4) if number > after])

    server.on_request(answer)
    async with server.async_client() as client:
        events = client.events(after=0)
        async for event in events:
            assert (event.id, events.after) == (2, 2)
            break
        assert [event.id for event in await take(events, 2)] == [3, 4]


async def test_a_quiet_stream_lasts_longer_than_an_answer_may_take(server: LoopbackServer) -> None:
    def answer(_: Seen, reply: Reply) -> None:
        begin(reply, position(1))
        reply._handler.wfile.flush()
        time.sleep(0.4)
        reply.chunk(f"data: {json.dumps(record(2))}\n\n".encode())
        reply.wait_for_end()

    server.on_request(answer)
    async with server.async_client(timeout_ms=100) as client:
        [event] = await take(client.events(), 1)
    assert (event.id, len(server.seen)) == (2, 1)


async def test_events_that_are_no_longer_kept_are_reported_once(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.events([{"type": "lost", "id": 40}, record(41)]))
    async with server.async_client() as client:
        lost, event = await take(client.events(after=3), 2)
    assert (lost, event.id) == (LostEvents(40), 41)


async def test_a_refusal_and_an_invalid_frame_are_the_callers_at_once(server: LoopbackServer) -> None:
    refusal = {"type": "error", "error": {"code": "unauthorized", "message": "revoked", "request_id": "r"}}
    cases: list[tuple[Any, str]] = [
        (refusal, "unauthorized"),
        ({"type": "position"}, "invalid_response"),
        ({"type": "sandbox.created", "id": 5}, "invalid_response"),
        ({"type": "position", "id": "5"}, "invalid_response"),
    ]
    async with server.async_client() as client:
        for frame, code in cases:
            server.on_request(lambda _, reply, frame=frame: reply.events([frame]))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                await take(client.events(), 1)
            assert caught.value.code == code
        server.on_request(lambda _, reply: reply.error(401, "unauthorized"))
        with pytest.raises(CoppiceError) as caught:
            await take(client.events(), 1)
    assert caught.value.code == "unauthorized"
    assert len(server.seen) == len(cases) + 1


async def test_a_service_that_repeats_only_the_position_is_given_up(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(delay_s: float) -> None:
        waits.append(delay_s)

    monkeypatch.setattr("coppice._async.events.event_stream.sleep", wait)
    server.on_request(lambda _, reply: reply.events([position(7)]))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await take(client.events(after=7), 1)
    assert caught.value.code == "connection_failed"
    assert (len(waits), waits[0], waits[-1]) == (35, 0.2, 10.0)
    assert 240 < sum(waits) < 360


async def test_kept_events_are_listed_page_by_page(server: LoopbackServer) -> None:
    link = {"link": '</v1/events?after=2&limit=2>; rel="next"'}
    server.on_request(
        in_turn(
            lambda _, reply: reply.json([record(1), record(2)], headers=link),
            lambda _, reply: reply.json([record(3, "sandbox.failed")]),
        )
    )
    async with server.async_client() as client:
        found = await client.list_events(types=["sandbox.created"], after=0).all()
        assert [(event.id, event.type) for event in found][1:] == [(2, "sandbox.created"), (3, "sandbox.failed")]
        assert queries(server) == ["?type=sandbox.created&after=0", "?after=2&limit=2"]
        with pytest.raises(ValueError, match="limit"):
            client.list_events(limit=0)
        server.on_request(lambda _, reply: reply.error(410, "events_lost"))
        with pytest.raises(CoppiceError) as caught:
            await client.list_events(after=1).all()
    assert caught.value.code == "events_lost"

"""Webhooks and their deliveries."""

from __future__ import annotations

from typing import Any

import pytest

from coppice import CoppiceError, CreatedWebhook, DeliveryAttempt, DeliveryInfo, WebhookInfo
from loopback import LoopbackServer, Reply, Seen

ID = "hook0123456789abcdef0123"
SECRET = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
RECORD: dict[str, Any] = {
    "id": ID,
    "url": "https://example.test/hook",
    "types": ["sandbox.failed"],
    "description": "alerts",
    "enabled": False,
    "disabled_reason": "failing",
    "failing_since": "2026-11-21T06:30:00.000Z",
    "old_secret_until": None,
    "created_at": "2026-11-20T06:30:00.000Z",
}
ATTEMPT: dict[str, Any] = {
    "attempt": 1,
    "started_at": "2026-11-21T06:30:00.000Z",
    "duration_ms": 12,
    "status": 500,
    "error": "the receiver answered 500",
    "response": "busy",
}


def delivery(message: str) -> dict[str, Any]:
    return {
        "id": message,
        "event_id": 5,
        "type": "sandbox.failed",
        "state": "pending",
        "created_at": "2026-11-21T06:30:00.000Z",
        "next_attempt_at": "2026-11-21T06:35:00.000Z",
        "attempts": [ATTEMPT],
    }


async def test_a_webhook_is_created_found_changed_rotated_and_deleted(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.method == "DELETE":
            reply.begin(204, {})
        elif seen.url.endswith("nothing"):
            reply.error(404, "not_found")
        elif (seen.method, seen.url) == ("GET", "/v1/webhooks"):
            reply.json([RECORD])
        elif seen.method == "POST":
            reply.json({**RECORD, "secret": SECRET}, 201)
        else:
            reply.json(RECORD)

    server.on_request(answer)
    async with server.async_client() as client:
        webhooks = client.webhooks
        created = await webhooks.create(RECORD["url"], types=["sandbox.failed"])
        assert created == CreatedWebhook(**RECORD, secret=SECRET)
        assert server.last.json == {"url": RECORD["url"], "types": ["sandbox.failed"]}
        assert await webhooks.list() == [WebhookInfo(**RECORD)]
        assert await webhooks.get(ID) == WebhookInfo(**RECORD)
        assert await webhooks.get("nothing") is None
        assert await webhooks.update(ID, enabled=True, types=(), description="") == WebhookInfo(**RECORD)
        assert server.last.json == {"enabled": True, "types": [], "description": ""}
        rotated = await webhooks.rotate_secret(ID, overlap_seconds=0)
        assert (rotated.secret, server.last.json) == (SECRET, {"overlap_seconds": 0})
        await webhooks.delete(ID)
        with pytest.raises(ValueError, match="id of the webhook"):
            await webhooks.get("")
    assert server.lines == [
        "POST /v1/webhooks",
        "GET /v1/webhooks",
        f"GET /v1/webhooks/{ID}",
        "GET /v1/webhooks/nothing",
        f"PATCH /v1/webhooks/{ID}",
        f"POST /v1/webhooks/{ID}/rotate",
        f"DELETE /v1/webhooks/{ID}",
    ]


def test_the_secret_of_a_webhook_is_not_shown() -> None:
    shown = repr(CreatedWebhook(**RECORD, secret=SECRET))
    assert (ID in shown, "whsec_" in shown) == (True, False)


async def test_what_must_happen_once_is_not_repeated(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.error(503, "unavailable", headers={"retry-after": "0"}))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError):
            await client.webhooks.create("https://example.test")
        with pytest.raises(CoppiceError):
            await client.webhooks.rotate_secret(ID)
        with pytest.raises(CoppiceError):
            await client.webhooks.test(ID)
    assert server.lines == ["POST /v1/webhooks", f"POST /v1/webhooks/{ID}/rotate", f"POST /v1/webhooks/{ID}/test"]


async def test_deliveries_are_listed_page_by_page_tested_and_retried(server: LoopbackServer) -> None:
    def answer(seen: Seen, reply: Reply) -> None:
        if seen.method == "POST":
            reply.json(delivery("msg9"))
        elif "cursor" in seen.url:
            reply.json([delivery("msg2")])
        else:
            link = f'</v1/webhooks/{ID}/deliveries?cursor=x>; rel="next"'
            reply.json([delivery("msg1")], headers={"link": link})

    server.on_request(answer)
    async with server.async_client() as client:
        first, second = await client.webhooks.deliveries(ID, state="pending").all()
        assert server.seen[0].url == f"/v1/webhooks/{ID}/deliveries?state=pending"
        assert first == DeliveryInfo(**{**delivery("msg1"), "attempts": [DeliveryAttempt(**ATTEMPT)]})
        assert second.id == "msg2"
        with pytest.raises(ValueError, match="limit"):
            client.webhooks.deliveries(ID, limit=0)
        assert (await client.webhooks.test(ID)).id == "msg9"
        assert server.last.url == f"/v1/webhooks/{ID}/test"
        assert (await client.webhooks.retry(ID, "msg1")).id == "msg9"
    assert server.last.url == f"/v1/webhooks/{ID}/deliveries/msg1/retry"

"""Budgets of the organization and its teams."""

from __future__ import annotations

import pytest

from coppice import CoppiceError
from loopback import LoopbackServer

WIRE = {
    "scope": "organization",
    "month_cents": 50_000,
    "alert_percents": [50, 100],
    "month": "2026-11",
    "cost_cents": 26_000.5,
    "reached_percents": [50],
    "updated_at": "2026-11-21T06:30:00.000Z",
}


async def test_a_budget_is_set_listed_and_deleted(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.answer_json(WIRE)
        stored = await client.budgets.set("organization", month_cents=50_000, alert_percents=(50, 100))
        assert server.last.json == {"month_cents": 50_000, "alert_percents": [50, 100]}
        assert (stored.cost_cents, stored.reached_percents) == (26_000.5, [50])
        await client.budgets.set("team/1", month_cents=1)
        assert server.last.json == {"month_cents": 1}
        server.answer_json([WIRE])
        assert await client.budgets.list() == [stored]
        server.on_request(lambda _, reply: reply.begin(204, {}))
        await client.budgets.delete("organization")
    assert server.lines == [
        "PUT /v1/budgets/organization",
        "PUT /v1/budgets/team%2F1",
        "GET /v1/budgets",
        "DELETE /v1/budgets/organization",
    ]


async def test_a_budget_that_does_not_exist_is_an_error_of_the_service(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.error(404, "not_found"))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.budgets.delete("organization")
    assert caught.value.code == "not_found"

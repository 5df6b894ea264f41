"""The audit log of the organization."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coppice import CoppiceError, OrganizationAuditEntry
from loopback import LoopbackServer, Reply, Seen

WIRE: dict[str, Any] = {
    "seq": 3,
    "ts": "2026-11-21T06:30:00.000Z",
    "organization_id": "org1",
    "audit_key_id": "ask1",
    "event": "team.created",
    "actor": {"type": "user", "id": "user1", "address": None},
    "data": {"team_id": "team1", "name": "é"},
    "hmac": f"sha256:{'0' * 64}",
}


def answer_lines(server: LoopbackServer, *entries: dict[str, Any]) -> None:
    lines = "".join(f"{json.dumps(entry)}\n" for entry in entries).encode()

    def answer(_: Seen, reply: Reply) -> None:
        reply.body(lines, 200, {"content-type": "application/x-ndjson"})

    server.on_request(answer)


async def test_the_log_is_read_with_its_filters_and_its_head_alone(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        answer_lines(server, WIRE, {**WIRE, "seq": 4})
        entries = [entry async for entry in client.organization.audit()]
        assert [entry.seq for entry in entries] == [3, 4]
        assert entries[0] == OrganizationAuditEntry(**WIRE)
        [entry async for entry in client.organization.audit(after=2, event="team.created", actor="user1")]
        server.answer_json({"seq": 4, "hmac": WIRE["hmac"]})
        assert (await client.organization.audit_head()).seq == 4
    assert server.lines == [
        "GET /v1/organization/audit",
        "GET /v1/organization/audit?after=2&event=team.created&actor=user1",
        "GET /v1/organization/audit?head=true",
    ]


async def test_a_refusal_and_a_line_that_is_no_entry_are_errors(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_request(lambda _, reply: reply.error(403, "forbidden"))
        with pytest.raises(CoppiceError) as refused:
            [entry async for entry in client.organization.audit()]
        assert refused.value.code == "forbidden"
        for wrong in ({**WIRE, "actor": "user1"}, {**WIRE, "extra": 1}):
            answer_lines(server, wrong)
            with pytest.raises(CoppiceError) as invalid:
                [entry async for entry in client.organization.audit()]
            assert invalid.value.code == "invalid_response"

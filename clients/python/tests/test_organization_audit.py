"""Verification of audit logs of organizations."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest

from coppice import AuditVerdict, OrganizationAuditEntry, parse_organization_audit_line, verify_organization_audit
from coppice.models import AuditHead

SECRETS = {"ask1": "cos_" + "1" * 43, "ask2": "cos_" + "2" * 43}


def build_log(count: int, organization_id: str = "org1") -> list[OrganizationAuditEntry]:
    """Builds a log with the documented formula, whose secret is rotated after half of it. The keys are sorted."""
    log: list[OrganizationAuditEntry] = []
    for seq in range(1, count + 1):
        previous = log[-1].hmac if log else f"coppice-organization-audit-v1:{organization_id}"
        key_id = "ask1" if seq <= count // 2 else "ask2"
        fields: dict[str, Any] = {
            "actor": {"address": "192.0.2.7", "id": "user1", "type": "user"},
            "audit_key_id": key_id,
            "data": {"name": f"é {seq}", "team_id": "team1"},
            "event": "team.created",
            "organization_id": organization_id,
            "seq": seq,
            "ts": f"2026-11-26T10:00:00.{seq:03d}Z",
        }
        text = f"{previous}\n{json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}"
        digest = hmac.new(SECRETS[key_id].encode(), text.encode(), hashlib.sha256).hexdigest()
        log.append(OrganizationAuditEntry(**fields, hmac=f"sha256:{digest}"))
    return log


LOG = build_log(8)
HEAD = AuditHead(seq=8, hmac=LOG[7].hmac)


def find_fault(log: list[OrganizationAuditEntry], **options: Any) -> tuple[str | None, int | None]:
    verdict = verify_organization_audit(log, options.pop("secrets", SECRETS), **options)
    assert not verdict.valid
    return verdict.problem, verdict.seq


def test_a_log_is_valid_over_a_rotation_and_complete_only_against_a_head() -> None:
    assert verify_organization_audit(LOG, SECRETS) == AuditVerdict(valid=True, entries=8, complete=False)
    assert verify_organization_audit(LOG, SECRETS, head=HEAD, organization_id="org1").complete
    assert verify_organization_audit([], SECRETS) == AuditVerdict(valid=True, entries=0)


def test_whatever_is_altered_removed_moved_or_foreign_is_found() -> None:
    assert find_fault([*LOG[:2], replace(LOG[2], actor={**LOG[2].actor, "id": "user2"}), *LOG[3:]]) == ("altered", 3)
    assert find_fault([*LOG[:2], replace(LOG[2], audit_key_id="ask2"), *LOG[3:]]) == ("altered", 3)
    assert find_fault(LOG[:3] + LOG[4:]) == ("missing", 4)
    assert find_fault(LOG[:6], head=HEAD) == ("missing", 7)
    assert find_fault([*LOG[:3], LOG[4], LOG[3], *LOG[5:]]) == ("reordered", 4)
    assert find_fault(LOG[:4] + LOG[3:]) == ("inserted", 5)
    moved = [replace(entry, seq=entry.seq + 1) for entry in LOG[3:]]
    assert find_fault([*LOG[:3], replace(LOG[3], event="team.renamed"), *moved]) == ("inserted", 4)
    assert find_fault(build_log(2, "org2"), organization_id="org1") == ("other_organization", 1)
    assert find_fault(LOG, secrets={"ask1": SECRETS["ask1"]}) == ("unknown_secret", 5)
    assert find_fault(LOG, head=replace(HEAD, hmac=LOG[6].hmac)) == ("other_head", 8)


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        verify_organization_audit(LOG, {"ask1": ""})


def test_lines_are_parsed_strictly() -> None:
    fields = {name: getattr(LOG[0], name) for name in OrganizationAuditEntry.__slots__}
    assert parse_organization_audit_line(json.dumps(fields)) == LOG[0]
    for name, wrong in (("seq", True), ("actor", None), ("audit_key_id", 1), ("extra", 1)):
        with pytest.raises(TypeError, match=name):
            parse_organization_audit_line(json.dumps({**fields, name: wrong}))

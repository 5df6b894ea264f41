"""Audit logs: their entries, and their verification with the team's secret, without the service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coppice._core.audit_chain import AuditVerdict, ChainForm, parse_fields, verify_chain
from coppice.models import AuditHead

_FIELDS = {"seq": int, "ts": str, "sandbox_id": str, "event": str, "data": dict, "hmac": str}
_FORM = ChainForm(
    subject="sandbox_id",
    other_subject="other_sandbox",
    seed="coppice-audit-v1:",
    fields=frozenset(_FIELDS) - {"hmac"},
    key_id=None,
    last_events=frozenset({"sandbox.destroyed", "sandbox.failed"}),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """One entry of the audit log of a sandbox."""

    seq: int
    """Position in the chain, from 1."""
    ts: str
    """Time of the event, ISO 8601 UTC."""
    sandbox_id: str
    event: str
    """Name of the event, for example `exec.start`."""
    data: dict[str, Any]
    """Fields of the event."""
    hmac: str
    """Chained hash of the entry: `sha256:` and 64 hexadecimal digits."""


def parse_audit_line(line: str) -> AuditEntry:
    """Parses one line of an audit log.

    Raises `ValueError` for text that is not JSON, and `TypeError` for a missing field, a field of the wrong type or an
    unknown field; the hash does not cover unknown fields.

    Example:
        entries = [parse_audit_line(line) for line in open("audit.ndjson")]
    """
    return parse_audit_entry(json.loads(line))


def parse_audit_entry(value: Any) -> AuditEntry:
    """Parses an audit entry from its wire form. Raises `TypeError` as `parse_audit_line` does."""
    return AuditEntry(**parse_fields(value, _FIELDS))


def verify_audit(
    entries: Iterable[AuditEntry],
    secret: str,
    *,
    head: AuditHead | None = None,
    sandbox_id: str | None = None,
) -> AuditVerdict:
    """Verifies a whole log, or a prefix of it, with the team's secret. It makes no request.

    `head`, read earlier and kept where it is trusted, detects a log that was cut off before it. `sandbox_id` names the
    sandbox whose log it must be; by default that of the first entry. Raises `ValueError` when the secret is empty.

    Example:
        verdict = verify_audit(sandbox.audit(), team_secret, head=sandbox.audit_head())
        if not verdict.valid:
            raise RuntimeError(verdict.message)
    """
    return verify_chain(entries, _FORM, {"": secret}, head=head, subject=sandbox_id)

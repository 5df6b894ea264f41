"""The audit log of an organization: its entries, and their verification with its secrets, without the service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coppice._core.audit_chain import AuditVerdict, ChainForm, parse_fields, verify_chain
from coppice.models import AuditHead

_FIELDS = {
    "seq": int,
    "ts": str,
    "organization_id": str,
    "audit_key_id": str,
    "event": str,
    "actor": dict,
    "data": dict,
    "hmac": str,
}
_FORM = ChainForm(
    subject="organization_id",
    other_subject="other_organization",
    seed="coppice-organization-audit-v1:",
    fields=frozenset(_FIELDS) - {"hmac"},
    key_id="audit_key_id",
    last_events=frozenset(),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OrganizationAuditEntry:
    """One entry of the audit log of an organization."""

    seq: int
    """Position in the chain, from 1."""
    ts: str
    """Time of the event, ISO 8601 UTC."""
    organization_id: str
    audit_key_id: str
    """Id of the secret that keys the entry."""
    event: str
    """Name of the event, for example `api_key.created`."""
    actor: dict[str, Any]
    """What caused the event: `type`, `id` and `address`, as the service sends them, because the hash covers them."""
    data: dict[str, Any]
    """Fields of the event."""
    hmac: str
    """Chained hash of the entry: `sha256:` and 64 hexadecimal digits."""


def parse_organization_audit_line(line: str) -> OrganizationAuditEntry:
    """Parses one line of the audit log of an organization.

    Raises `ValueError` for text that is not JSON, and `TypeError` for a missing field, a field of the wrong type or an
    unknown field; the hash does not cover unknown fields.

    Example:
        entries = [parse_organization_audit_line(line) for line in open("organization.ndjson")]
    """
    return OrganizationAuditEntry(**parse_fields(json.loads(line), _FIELDS))


def verify_organization_audit(
    entries: Iterable[OrganizationAuditEntry],
    secrets: Mapping[str, str],
    *,
    head: AuditHead | None = None,
    organization_id: str | None = None,
) -> AuditVerdict:
    """Verifies a whole log of an organization, or a prefix of it. It makes no request.

    `secrets` has the secrets that key it, by id: one, and another for each rotation. `head`, read earlier and kept
    where it is trusted, detects a log that was cut off before it. `organization_id` names the organization whose log it
    must be; by default that of the first entry. Raises `ValueError` when a secret is empty.

    Example:
        verdict = verify_organization_audit(
            client.organization.audit(),
            {"ask0123456789abcdef0123": organization_secret},
            head=client.organization.audit_head(),
        )
        if not verdict.valid:
            raise RuntimeError(verdict.message)
    """
    return verify_chain(entries, _FORM, secrets, head=head, subject=organization_id)

"""Audit logs: their entries, and their verification with the team's secret, without the service."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from coppice._core.canonical_json import canonicalize
from coppice.models import AuditHead

AuditProblem = Literal["altered", "missing", "reordered", "inserted", "other_sandbox", "other_head"]
"""The fault in an invalid log:

- `altered`: the entry was changed, or the secret is not that of this log
- `missing`: entries are missing before this one, or before the head
- `reordered`: the entry precedes an entry that belongs before it
- `inserted`: the entry does not belong here, and the next one fits in its place
- `other_sandbox`: the entry belongs to the log of another sandbox
- `other_head`: the log is valid, but the head was read from another log
"""

_FIELDS = {"seq": int, "ts": str, "sandbox_id": str, "event": str, "data": dict, "hmac": str}
_LAST_EVENTS = frozenset({"sandbox.destroyed", "sandbox.failed"})


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


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditVerdict:
    """Result of `verify_audit`."""

    valid: bool
    entries: int
    """Number of valid entries, before the fault if there is one."""
    complete: bool = False
    """True when no entry can be missing at the end: the log reaches the head, or ends with the end of the sandbox."""
    seq: int | None = None
    """The `seq` at which the chain breaks."""
    problem: AuditProblem | None = None
    """Kind of the fault."""
    message: str | None = None
    """Description of the fault for people."""


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
    if not isinstance(value, dict):
        raise TypeError("the audit entry is not an object")
    unknown = next((name for name in value if name not in _FIELDS), None)
    if unknown is not None:
        raise TypeError(f'an audit entry has no field "{unknown}"')
    for name, kind in _FIELDS.items():
        if not isinstance(value.get(name), kind) or isinstance(value[name], bool):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    return AuditEntry(**value)


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
    verifier = _Verifier(secret, head, sandbox_id)
    # Each entry is checked together with the next one, which tells an inserted entry from an altered one.
    current: AuditEntry | None = None
    for following in entries:
        if current is not None:
            verifier.take(current, following)
        current = following
    if current is not None:
        verifier.take(current, None)
    return verifier.finish()


@dataclass(frozen=True)
class _Fault:
    seq: int
    problem: AuditProblem
    message: str


class _Verifier:
    def __init__(self, secret: str, head: AuditHead | None, sandbox_id: str | None) -> None:
        if not secret:
            raise ValueError("the team secret is empty")
        self._secret = secret.encode()
        self._head = head
        self._sandbox_id = sandbox_id
        self._previous = ""
        self._good = 0
        self._hmac_at_head: str | None = None
        self._last_event = ""
        self._fault: _Fault | None = None
        # The `seq` of the entry that is missing where the chain breaks. If it comes later, the order was changed.
        self._sought: int | None = None

    def take(self, entry: AuditEntry, following: AuditEntry | None) -> None:
        if self._fault is not None:
            if entry.seq == self._sought:
                message = f"entry {self._fault.seq}: the order was changed, entry {entry.seq} comes after its place"
                self._fault = _Fault(self._fault.seq, "reordered", message)
            return
        self._begin(entry)
        self._fault = self._find_fault(entry, following)
        if self._fault is not None:
            return
        self._previous = entry.hmac
        self._last_event = entry.event
        self._good += 1
        if self._head is not None and entry.seq == self._head.seq:
            self._hmac_at_head = entry.hmac

    def finish(self) -> AuditVerdict:
        fault = self._fault or self._find_fault_of_end()
        if fault is not None:
            return AuditVerdict(
                valid=False, entries=self._good, seq=fault.seq, problem=fault.problem, message=fault.message
            )
        complete = self._head is not None or self._last_event in _LAST_EVENTS
        return AuditVerdict(valid=True, entries=self._good, complete=complete)

    def _begin(self, first: AuditEntry) -> None:
        if self._sandbox_id is None:
            self._sandbox_id = first.sandbox_id
        if self._good == 0:
            self._previous = f"coppice-audit-v1:{self._sandbox_id}"

    def _find_fault(self, entry: AuditEntry, following: AuditEntry | None) -> _Fault | None:
        seq = self._good + 1
        if entry.sandbox_id != self._sandbox_id:
            message = f"entry {seq} belongs to {entry.sandbox_id}, not to {self._sandbox_id}"
            return _Fault(seq, "other_sandbox", message)
        if entry.seq > seq:
            self._sought = seq
            return _Fault(seq, "missing", f"entry {seq} is missing: entry {entry.seq} is in its place")
        if entry.seq < seq:
            message = f"entry {seq} is replaced by a second entry {entry.seq} in its place"
            return _Fault(seq, "inserted", message)
        if self._fits(entry):
            return None
        if following is not None and self._fits(replace(following, seq=seq)):
            return _Fault(seq, "inserted", f"entry {seq} was inserted: the next entry fits in its place")
        doubt = ", or the secret is not that of this log (see audit_key_id)" if seq == 1 else ""
        return _Fault(seq, "altered", f"entry {seq} is not what was written{doubt}")

    def _find_fault_of_end(self) -> _Fault | None:
        head = self._head
        if head is None:
            return None
        if head.seq > self._good:
            message = f"the end is missing: {self._good} entries are present and valid, the head is entry {head.seq}"
            return _Fault(self._good + 1, "missing", message)
        if head.hmac == self._hmac_at_head:
            return None
        message = f"entry {head.seq} differs from the head: the head belongs to another log"
        return _Fault(head.seq, "other_head", message)

    def _fits(self, entry: AuditEntry) -> bool:
        fields = {name: getattr(entry, name) for name in _FIELDS if name != "hmac"}
        text = f"{self._previous}\n{canonicalize(fields)}"
        digest = hmac.new(self._secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        return entry.hmac == f"sha256:{digest}"

"""Verifies the hash chain of a log.

The hash of each entry covers the hash of the previous entry, so the log was changed at the first entry whose hash does
not match. A log that was cut off at its end is detected only by comparison with a head.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from coppice._core.canonical_json import canonicalize
from coppice.models import AuditHead

AuditProblem = Literal[
    "altered",
    "missing",
    "reordered",
    "inserted",
    "other_sandbox",
    "other_organization",
    "unknown_secret",
    "other_head",
]
"""The fault in an invalid log:

- `altered`: the entry was changed, or the secret is not that of this log
- `missing`: entries are missing before this one, or before the head
- `reordered`: the entry precedes an entry that belongs before it
- `inserted`: the entry does not belong here, and the next one fits in its place
- `other_sandbox`, `other_organization`: the entry belongs to the log of another sandbox or organization
- `unknown_secret`: the secret that keys the entry was not given
- `other_head`: the log is valid, but the head was read from another log
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditVerdict:
    """Result of `verify_audit` and `verify_organization_audit`."""

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


class ChainEntry(Protocol):
    """An entry of any kind of log."""

    @property
    def seq(self) -> int: ...
    @property
    def event(self) -> str: ...
    @property
    def hmac(self) -> str: ...


Entry = TypeVar("Entry", bound=ChainEntry)


@dataclass(frozen=True, kw_only=True)
class ChainForm:
    """Names what tells one kind of log from another."""

    subject: str
    """Name of the field with the id of what the log is of."""
    other_subject: AuditProblem
    """The fault of an entry with another subject."""
    seed: str
    """Prefix of the text before the first entry, before the subject."""
    fields: frozenset[str]
    """Names of the fields that are hashed."""
    key_id: str | None
    """Name of the field with the id of the secret that keys the entry. None: one secret, with an empty id, keys all."""
    last_events: frozenset[str]
    """Events that no entry can follow."""


def parse_fields(value: Any, fields: Mapping[str, type]) -> dict[str, Any]:
    """Checks the wire form of an entry. Raises `TypeError` for a missing, wrong or unknown field."""
    if not isinstance(value, dict):
        raise TypeError("the audit entry is not an object")
    unknown = next((name for name in value if name not in fields), None)
    if unknown is not None:
        raise TypeError(f'an audit entry has no field "{unknown}"')
    for name, kind in fields.items():
        if not isinstance(value.get(name), kind) or isinstance(value[name], bool):
            raise TypeError(f"{name} is not of type {kind.__name__}")
    return value


def verify_chain(
    entries: Iterable[Entry],
    form: ChainForm,
    secrets: Mapping[str, str],
    *,
    head: AuditHead | None,
    subject: str | None,
) -> AuditVerdict:
    """Verifies a whole log, or a prefix of it. Raises `ValueError` when a secret is empty."""
    verifier: _Verifier[Entry] = _Verifier(form, secrets, head, subject)
    # Each entry is checked together with the next one, which tells an inserted entry from an altered one.
    current: Entry | None = None
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


class _Verifier(Generic[Entry]):
    def __init__(
        self, form: ChainForm, secrets: Mapping[str, str], head: AuditHead | None, subject: str | None
    ) -> None:
        if "" in secrets.values():
            raise ValueError("the secret is empty")
        self._form = form
        self._secrets = secrets
        self._head = head
        self._subject = subject
        self._previous = ""
        self._good = 0
        self._hmac_at_head: str | None = None
        self._last_event = ""
        self._fault: _Fault | None = None
        # The `seq` of the entry that is missing where the chain breaks. If it comes later, the order was changed.
        self._sought: int | None = None

    def take(self, entry: Entry, following: Entry | None) -> None:
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
        complete = self._head is not None or self._last_event in self._form.last_events
        return AuditVerdict(valid=True, entries=self._good, complete=complete)

    def _begin(self, first: Entry) -> None:
        if self._subject is None:
            self._subject = getattr(first, self._form.subject)
        if self._good == 0:
            self._previous = f"{self._form.seed}{self._subject}"

    def _find_fault(self, entry: Entry, following: Entry | None) -> _Fault | None:
        seq = self._good + 1
        subject = getattr(entry, self._form.subject)
        if subject != self._subject:
            message = f"entry {seq} belongs to {subject}, not to {self._subject}"
            return _Fault(seq, self._form.other_subject, message)
        if entry.seq > seq:
            self._sought = seq
            return _Fault(seq, "missing", f"entry {seq} is missing: entry {entry.seq} is in its place")
        if entry.seq < seq:
            message = f"entry {seq} is replaced by a second entry {entry.seq} in its place"
            return _Fault(seq, "inserted", message)
        if self._key_id(entry) not in self._secrets:
            message = f"entry {seq} is keyed by the secret {self._key_id(entry)}, which is not given"
            return _Fault(seq, "unknown_secret", message)
        if self._fits(entry, seq):
            return None
        if following is not None and self._fits(following, seq):
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

    def _key_id(self, entry: Entry) -> str:
        return "" if self._form.key_id is None else str(getattr(entry, self._form.key_id))

    def _fits(self, entry: Entry, seq: int) -> bool:
        """Returns whether the entry, with this number, is the next one of the chain."""
        secret = self._secrets.get(self._key_id(entry))
        if secret is None:
            return False
        fields = {**{name: getattr(entry, name) for name in self._form.fields}, "seq": seq}
        text = f"{self._previous}\n{canonicalize(fields)}"
        digest = hmac.new(secret.encode(), text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        return entry.hmac == f"sha256:{digest}"

"""Verification of audit logs."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coppice import AuditEntry, AuditVerdict, parse_audit_line, verify_audit
from coppice._core.canonical_json import canonicalize
from coppice.models import AuditHead

SECRET = "cts_" + "s" * 43
SANDBOX = "run0123456789abcdef0123"


def build_log(events: list[str], sandbox_id: str = SANDBOX, secret: str = SECRET) -> list[AuditEntry]:
    """Builds a log with the documented formula. The keys are in the order of canonical JSON."""
    log: list[AuditEntry] = []
    for seq, event in enumerate(events, start=1):
        previous = log[-1].hmac if log else f"coppice-audit-v1:{sandbox_id}"
        ts = f"2026-11-26T10:00:00.{seq:03d}Z"
        data = {"command": f"é {seq}", "nested": {"a": [None], "b": 1}}
        fields = {"data": data, "event": event, "sandbox_id": sandbox_id, "seq": seq, "ts": ts}
        text = f"{previous}\n{json.dumps(fields, ensure_ascii=False, separators=(',', ':'))}"
        digest = hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
        log.append(AuditEntry(seq=seq, ts=ts, sandbox_id=sandbox_id, event=event, data=data, hmac=f"sha256:{digest}"))
    return log


LOG = build_log(["sandbox.created", *["exec.start"] * 6, "sandbox.destroyed"])
HEAD = AuditHead(seq=8, hmac=LOG[7].hmac)


def assert_fault(verdict: AuditVerdict, problem: str, seq: int) -> None:
    assert (verdict.valid, verdict.problem, verdict.seq) == (False, problem, seq), verdict.message
    assert verdict.entries == seq - 1


def test_a_whole_log_is_valid_and_complete_and_every_prefix_is_valid() -> None:
    assert verify_audit(LOG, SECRET) == AuditVerdict(valid=True, entries=8, complete=True)
    assert verify_audit(LOG, SECRET, head=HEAD).complete
    for length in range(8):
        assert verify_audit(LOG[:length], SECRET) == AuditVerdict(valid=True, entries=length, complete=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: replace(entry, ts="2026-11-26T10:00:01.000Z"),
        lambda entry: replace(entry, event="exec.exit"),
        lambda entry: replace(entry, data={**entry.data, "command": "x"}),
        lambda entry: replace(entry, data={**entry.data, "added": None}),
        lambda entry: replace(entry, data={}),
        lambda entry: replace(entry, hmac=entry.hmac.upper()),
        lambda entry: replace(entry, hmac="sha256:☃"),
    ],
)
def test_every_change_of_an_entry_is_found_there(change: Callable[[AuditEntry], AuditEntry]) -> None:
    for place in range(8):
        log = [change(entry) if index == place else entry for index, entry in enumerate(LOG)]
        assert_fault(verify_audit(log, SECRET), "altered", place + 1)


def test_missing_reordered_inserted_and_foreign_entries_are_told_apart() -> None:
    other = build_log(["sandbox.created"] * 8, sandbox_id="run1")
    assert_fault(verify_audit(LOG[:3] + LOG[4:], SECRET), "missing", 4)
    assert_fault(verify_audit(LOG[1:], SECRET), "missing", 1)
    assert_fault(verify_audit([*LOG[:3], LOG[4], LOG[3], *LOG[5:]], SECRET), "reordered", 4)
    assert_fault(verify_audit(LOG[:4] + LOG[3:], SECRET), "inserted", 5)
    added = replace(LOG[3], event="exec.exit")
    moved = [replace(entry, seq=entry.seq + 1) for entry in LOG[3:]]
    assert_fault(verify_audit([*LOG[:3], added, *moved], SECRET), "inserted", 4)
    assert_fault(verify_audit([*LOG[:3], other[3], *LOG[4:]], SECRET), "other_sandbox", 4)
    assert_fault(verify_audit(other, SECRET, sandbox_id=SANDBOX), "other_sandbox", 1)
    assert_fault(verify_audit(LOG[:6], SECRET, head=HEAD), "missing", 7)
    assert verify_audit(LOG, SECRET, head=replace(HEAD, hmac=LOG[6].hmac)).problem == "other_head"


def test_another_secret_is_a_fault_of_the_first_entry_and_an_empty_one_is_refused() -> None:
    assert_fault(verify_audit(LOG, "cts_other"), "altered", 1)
    with pytest.raises(ValueError, match="empty"):
        verify_audit(LOG, "")


def test_lines_are_parsed_strictly() -> None:
    fields: dict[str, Any] = {
        "seq": 1,
        "ts": "t",
        "sandbox_id": SANDBOX,
        "event": "exec.start",
        "data": {},
        "hmac": "sha256:0",
    }
    assert parse_audit_line(json.dumps(fields)).seq == 1
    with pytest.raises(TypeError, match='no field "extra"'):
        parse_audit_line(json.dumps({**fields, "extra": 1}))
    for name, wrong in (("seq", "1"), ("seq", True), ("data", []), ("hmac", None)):
        with pytest.raises(TypeError, match=name):
            parse_audit_line(json.dumps({**fields, name: wrong}))
    with pytest.raises(ValueError, match="Expecting"):
        parse_audit_line("{")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e16, "10000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (5e-324, "5e-324"),
        (2**53, "9007199254740992"),
        (2**64, "18446744073709552000"),
    ],
)
def test_numbers_are_written_as_javascript_does(value: float, text: str) -> None:
    assert canonicalize(value) == text


def test_members_are_sorted_by_utf16_and_texts_escaped_as_the_rfc_says() -> None:
    # The character outside the basic plane begins with a surrogate, which precedes U+FFFD.
    value = {"\ufffd": 1, "\U0001f600": 2, "b": [True, None, '\x7f\x1f\n"\\/é\ud800'], "a": {}}
    assert canonicalize(value) == '{"a":{},"b":[true,null,"\x7f\\u001f\\n\\"\\\\/é\\ud800"],"\U0001f600":2,"\ufffd":1}'

"""Decides which failures are followed by another attempt, and when."""

from __future__ import annotations

import random
import time

import httpx

from coppice._core.call import Call, timeout_error
from coppice.errors import CoppiceError

# If the service asks for a longer wait, the client does not retry, so that the caller learns of the error at once.
_MAX_RETRY_AFTER_MS = 30_000
_FIRST_BACKOFF_MS = 200
_MAX_CAUSE_DEPTH = 10

# The connection, the service or its runner was lost; a command that outlives its client continues.
_LOST = frozenset({"connection_failed", "connection_refused", "timeout", "unavailable", "guest_unreachable"})
_MAX_FAILURES = 8
MAX_DELAY_S = 10.0
"""The longest wait before an attempt to continue."""


def retry_delay_s(error: CoppiceError, attempt: int) -> float | None:
    """Returns the seconds to wait before a retry, or None when a retry may do harm or is useless.

    The client retries only refused connections, and 429 and 503 with Retry-After: the service sends these answers when
    it has not carried out the request, or has undone it. After a 504, a deadline or a broken connection the service may
    have carried out the request.
    """
    backoff_ms = _FIRST_BACKOFF_MS * 2.0**attempt * (1 + random.random() / 4)
    if error.code == "connection_refused":
        return backoff_ms / 1000
    wanted_ms = error.retry_after_ms
    if error.status not in (429, 503) or wanted_ms is None or wanted_ms > _MAX_RETRY_AFTER_MS:
        return None
    return max(wanted_ms, backoff_ms) / 1000


class Persistence:
    """Counts the attempts to continue after lost connections. Progress makes the count start anew.

    The time without an answer is no progress: a host that is silent is given up like one that refuses.
    """

    def __init__(self, max_failures: int = _MAX_FAILURES) -> None:
        self._failures = 0
        self._max_failures = max_failures
        self._began_s = 0.0

    def note_progress(self) -> None:
        self._failures = 0

    def begin_stream(self) -> None:
        """Call it when the answer of a stream has begun."""
        self._began_s = time.monotonic()

    def end_stream(self) -> None:
        """Call it when that stream has ended or failed. If it lasted, its loss begins a new series."""
        if time.monotonic() - self._began_s > MAX_DELAY_S:
            self.note_progress()

    def next_delay_s(self, error: CoppiceError) -> float:
        """Returns the seconds to wait before the next attempt. Raises the error if there should be none."""
        if error.code not in _LOST or self._failures >= self._max_failures:
            raise error
        delay_s = min(MAX_DELAY_S, _FIRST_BACKOFF_MS / 1000 * 2.0**self._failures)
        self._failures += 1
        return delay_s


def build_connection_error(call: Call, error: httpx.HTTPError, timeout_s: float) -> CoppiceError:
    """Returns the error for a failed connection."""
    if isinstance(error, httpx.TimeoutException):
        return timeout_error(call.label, timeout_s)
    code = "connection_refused" if is_refused(error) else "connection_failed"
    why = str(error) or type(error).__name__
    return CoppiceError(f"{call.label}: no connection to the service: {why}", status=0, code=code)


def is_refused(error: BaseException | None) -> bool:
    """Returns true when the connection was refused, so that no byte was sent."""
    for _ in range(_MAX_CAUSE_DEPTH):
        if error is None or isinstance(error, ConnectionRefusedError):
            break
        # With several addresses, the library raises a group of errors, one for each.
        nested = getattr(error, "exceptions", ())
        if nested and all(is_refused(one) for one in nested):
            return True
        error = error.__cause__ or error.__context__
    return isinstance(error, ConnectionRefusedError)

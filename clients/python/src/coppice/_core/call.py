"""One request to the service, and the time that it may take."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coppice._core.unset import JSON_NULL
from coppice.errors import CoppiceError

SLOW_CALL_S = 290.0
"""Timeout of calls that pull an image or write the memory of a sandbox to disk, unless that of the client is longer."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request."""

    method: str
    path: str
    """Below the base URL, with encoded segments."""
    query: str = ""
    """With its `?`, or empty."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None = field(default=None, repr=False)
    """Not shown, because it may hold a password."""
    idempotent: bool
    """True if carrying out the request twice has the same effect as once. Only such a request is retried."""
    timeout_s: float | None = None
    """Default: the timeout of the client."""
    stall_s: float | None = None
    """Maximum time without progress. If given, the request has no other limit while its body is sent."""
    upgrades: bool = False
    """True if the answer to the request is another protocol, with status 101."""
    on_retry: Callable[[], None] = lambda: None
    """Called before each retry."""

    @property
    def label(self) -> str:
        """Name of the request for messages: method and path, without the query."""
        return f"{self.method} {self.path}"


def json_call(method: str, path: str, body: Mapping[str, Any], **options: Any) -> Call:
    """Returns a request with a JSON body. Members that are None are left out."""
    headers = {"content-type": "application/json", **options.pop("headers", {})}
    return Call(method=method, path=path, content=encode_json(body), headers=headers, **options)


def create_call(path: str, body: Mapping[str, Any], *, key: str | None, timeout_s: float) -> Call:
    """Returns a POST that the service carries out once, however often it is sent, because it has an idempotency key."""
    headers = {"idempotency-key": generate_idempotency_key() if key is None else _require_key(key)}
    return json_call("POST", path, body, headers=headers, idempotent=True, timeout_s=timeout_s)


def _require_key(key: str) -> str:
    if isinstance(key, str) and re.fullmatch(r"[\x21-\x7e]+", key):
        return key
    raise ValueError(f"idempotency_key must be a text of visible ASCII characters, not {key!r}")


def encode_json(body: Mapping[str, Any]) -> bytes:
    """Raises `ValueError` for NaN and infinity, which JSON lacks."""
    members = {name: value for name, value in body.items() if value is not None}
    nulls = {name: None for name, value in members.items() if value is JSON_NULL}
    return json.dumps({**members, **nulls}, allow_nan=False).encode()


def generate_idempotency_key() -> str:
    return secrets.token_hex(16)


class Deadline:
    """The end of the time of a call, over all its attempts."""

    def __init__(self, label: str, timeout_s: float) -> None:
        self._label = label
        self._timeout_s = timeout_s
        self._ends_at_s = time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float:
        return self._ends_at_s - time.monotonic()

    def require(self) -> float:
        """Returns the remaining seconds. Raises the error of the deadline if there are none."""
        remaining_s = self.remaining_s
        if remaining_s <= 0:
            raise self.error()
        return remaining_s

    def error(self) -> CoppiceError:
        return timeout_error(self._label, self._timeout_s)


def timeout_error(label: str, timeout_s: float) -> CoppiceError:
    return CoppiceError(f"{label}: timed out after {timeout_s * 1000:.0f} ms", status=0, code="timeout")

"""Turns answers of the service into values and errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

import httpx

from coppice.errors import CoppiceError

Value = TypeVar("Value")

MAX_BUFFERED_BYTES = 256 * 2**20
"""Largest answer that is held in memory. A larger file must be read as a stream."""
MAX_ERROR_BODY_BYTES = 65_536
"""Large enough for every error body of the service. A longer body of a proxy is not read further."""
_MESSAGE_BODY_BYTES = 200


class ErrorFields(NamedTuple):
    """The fields of an error of the service, `{"error": {...}}`."""

    code: str | None = None
    message: str | None = None
    request_id: str | None = None


def read_error_fields(value: Any) -> ErrorFields:
    """Returns the fields of `{"error": {...}}`. A field is None if the value has another shape."""
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return ErrorFields()
    texts = [error.get(name) for name in ("code", "message", "request_id")]
    return ErrorFields(*[text if isinstance(text, str) else None for text in texts])


def parse_error_body(body: bytes) -> ErrorFields:
    """Parses the body of an error, which may be anything."""
    try:
        return read_error_fields(json.loads(body))
    except (ValueError, RecursionError):
        # A proxy in between answered with HTML or text. The error then reports its status and first bytes.
        return ErrorFields()


def build_answer_error(label: str, response: httpx.Response, body: bytes) -> CoppiceError:
    """Returns the error for an answer other than 2xx."""
    error = parse_error_body(body)
    status, headers = response.status_code, response.headers
    redirect = ""
    if 300 <= status < 400 and "location" in headers:
        target = headers["location"]
        redirect = f" (redirects are not followed; it points to {target}, is base_url right?)"
    return CoppiceError(
        f"HTTP {status} from {label}{redirect}: {first_bytes(body)}",
        status=status,
        code=error.code or f"http_{status}",
        request_id=error.request_id or headers.get("x-request-id"),
        detail=error.message,
        retry_after_ms=parse_retry_after_ms(headers.get("retry-after")),
    )


def build_late_error(label: str, response: httpx.Response, body: bytes) -> CoppiceError | None:
    """Returns the error of a body that follows a success status, or None if the body is not an error.

    The service sends the status line of an exec when the command starts. If something fails later, it sends an error as
    the body and then closes the connection.
    """
    return _late_error(label, response, body, parse_error_body(body))


def parse_answer(label: str, response: httpx.Response, body: bytes, parse: Callable[[Any], Value]) -> Value:
    """Parses a JSON answer. `parse` raises `TypeError` for a value of the wrong shape."""
    try:
        value = json.loads(body)
        # A record of something that failed has a field of this name, too, but not alone.
        is_error = isinstance(value, dict) and len(value) == 1
        late = _late_error(label, response, body, read_error_fields(value)) if is_error else None
        if late is not None:
            raise late
        return parse(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise CoppiceError(
            f"HTTP {response.status_code} from {label} is not an answer of the service ({error}); is base_url right? "
            f"{first_bytes(body)}",
            status=response.status_code,
            code="invalid_response",
            request_id=response.headers.get("x-request-id"),
        ) from error


def _late_error(label: str, response: httpx.Response, body: bytes, error: ErrorFields) -> CoppiceError | None:
    if error.code is None:
        return None
    return CoppiceError(
        f"HTTP {response.status_code} from {label}, which failed later: {first_bytes(body)}",
        status=response.status_code,
        code=error.code,
        request_id=error.request_id or response.headers.get("x-request-id"),
        detail=error.message,
    )


def first_bytes(body: bytes) -> str:
    """Returns the first 200 bytes as text, cut between characters."""
    errors = "ignore" if len(body) > _MESSAGE_BODY_BYTES else "replace"
    return body[:_MESSAGE_BODY_BYTES].decode("utf-8", errors)


def parse_retry_after_ms(header: str | None) -> int | None:
    """Parses a Retry-After header in seconds or as an HTTP date. Returns None for a missing or invalid header."""
    if header is None:
        return None
    if re.fullmatch(r"\s*\d{1,9}\s*", header):
        return int(header) * 1000
    try:
        at_s = parsedate_to_datetime(header).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0, round((at_s - time.time()) * 1000))


def too_large(limit_bytes: int) -> CoppiceError:
    return CoppiceError(
        f"the answer is over {limit_bytes} bytes; read it as a stream", status=0, code="response_too_large"
    )

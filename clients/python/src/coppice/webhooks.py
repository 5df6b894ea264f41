"""Messages of webhooks: their verification with the secret of the webhook, without the service."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

_PREFIX = "whsec_"
_VERSION = "v1"
# A message that is older was recorded and sent again, or the clocks differ.
_TOLERANCE_S = 300


class WebhookHeaders(Protocol):
    """Headers of a request: a dictionary, or the headers of any web framework. Upper and lower case are the same."""

    def items(self) -> Iterable[tuple[str, Any]]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookMessage:
    """A verified message of a webhook."""

    id: str
    """The same for each attempt: remember it to ignore repetitions."""
    type: str
    """Type of the event, or `webhook.test`."""
    payload: dict[str, Any]
    """The whole message. For an event, in the form of `GET /v1/events`."""


class WebhookVerificationError(Exception):
    """The request is not a message of the webhook, or is too old."""


def verify_webhook(
    body: str | bytes, headers: WebhookHeaders, secret: str, *, tolerance_seconds: float = _TOLERANCE_S
) -> WebhookMessage:
    """Verifies a request of a webhook, as the Standard Webhooks specification says, and returns its message.

    `body` is the body exactly as received, not parsed. `tolerance_seconds` is the accepted age and lead of the time in
    the message. Raises `WebhookVerificationError`, and `ValueError` for a secret that is none. It makes no request.

    Example:
        message = verify_webhook(request.get_data(), request.headers, os.environ["WEBHOOK_SECRET"])
        print(message.id, message.type)
    """
    key = _parse_secret(secret)
    content = body.encode() if isinstance(body, str) else body
    message_id = _read_header(headers, "webhook-id")
    timestamp = _read_header(headers, "webhook-timestamp")
    if not re.fullmatch("[0-9]{1,12}", timestamp):
        raise WebhookVerificationError("webhook-timestamp is no time")
    if abs(time.time() - int(timestamp)) > tolerance_seconds:
        raise WebhookVerificationError("webhook-timestamp is too far from now")
    expected = hmac.new(key, f"{message_id}.{timestamp}.".encode() + content, hashlib.sha256).digest()
    if not _is_signed(_read_header(headers, "webhook-signature"), expected):
        raise WebhookVerificationError("no signature fits: the message was changed, or the secret is another")
    return _parse_message(message_id, content)


def _parse_secret(secret: str) -> bytes:
    key = _decode_base64(secret.removeprefix(_PREFIX)) if secret.startswith(_PREFIX) else None
    if not key:
        # The message has no secret, which may be one with a mistake.
        raise ValueError("secret must be the text of a webhook's secret, whsec_…")
    return key


def _is_signed(signatures: str, expected: bytes) -> bool:
    """One of several signatures, separated by spaces, must fit: after a rotation there are two."""
    for one in signatures.split(" "):
        version, _, text = one.partition(",")
        signature = _decode_base64(text) if version == _VERSION else None
        if signature is not None and hmac.compare_digest(signature, expected):
            return True
    return False


def _read_header(headers: WebhookHeaders, name: str) -> str:
    for key, value in headers.items():
        if key.lower() == name and isinstance(value, str) and value:
            return value
    raise WebhookVerificationError(f"the request has no header {name}")


def _decode_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _parse_message(message_id: str, content: bytes) -> WebhookMessage:
    try:
        payload = json.loads(content)
        kind = payload["type"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WebhookVerificationError(f"the message is not an object with a type: {error!r}") from error
    if not isinstance(payload, dict) or not isinstance(kind, str):
        raise WebhookVerificationError("the message is not an object with a type")
    return WebhookMessage(id=message_id, type=kind, payload=payload)

"""Messages of webhooks are verified."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from email.message import Message
from typing import Any

import httpx
import pytest

from coppice import WebhookMessage, WebhookVerificationError, verify_webhook

SECRET = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="
OTHER_SECRET = "whsec_CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg="
BODY = '{"type":"sandbox.failed","data":{"reason":"é"}}'
# The package `standardwebhooks` of npm made this signature for id `msg1`.
KNOWN_TIME = 1_790_000_000
KNOWN_SIGNATURE = "v1,xBaKjhKVQxOz98khDtCONP9FndPAJgeqGiQf9elDGKA="
MESSAGE = WebhookMessage(id="msg1", type="sandbox.failed", payload={"type": "sandbox.failed", "data": {"reason": "é"}})


def sign(body: str = BODY, *, secret: str = SECRET, at_s: float | None = None) -> dict[str, str]:
    timestamp = str(int(time.time() if at_s is None else at_s))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"msg1.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": "msg1", "webhook-timestamp": timestamp, "webhook-signature": signature}


def test_a_message_that_an_independent_implementation_has_signed_is_accepted() -> None:
    assert sign(at_s=KNOWN_TIME)["webhook-signature"] == KNOWN_SIGNATURE
    headers = {"webhook-id": "msg1", "webhook-timestamp": str(KNOWN_TIME), "webhook-signature": KNOWN_SIGNATURE}
    tolerance_s = abs(time.time() - KNOWN_TIME) + 60
    assert verify_webhook(BODY, headers, SECRET, tolerance_seconds=tolerance_s) == MESSAGE
    with pytest.raises(WebhookVerificationError, match="too far from now"):
        verify_webhook(BODY, headers, SECRET, tolerance_seconds=tolerance_s - 120)


def test_a_message_is_accepted_in_each_form_of_request() -> None:
    headers = sign()
    of_the_library = Message()
    for name, value in headers.items():
        of_the_library[name.title()] = value
    assert verify_webhook(BODY, headers, SECRET) == MESSAGE
    assert verify_webhook(BODY.encode(), of_the_library, SECRET) == MESSAGE
    assert verify_webhook(BODY, httpx.Headers(headers), SECRET) == MESSAGE
    # After a rotation there are two signatures.
    both = f"v1a,AAAA {sign(secret=OTHER_SECRET)['webhook-signature']} {headers['webhook-signature']}"
    assert verify_webhook(BODY, {**headers, "webhook-signature": both}, SECRET) == MESSAGE


@pytest.mark.parametrize(
    ("body", "changes", "problem"),
    [
        (f"{BODY} ", {}, "no signature fits"),
        (BODY, {"webhook-id": "msg2"}, "no signature fits"),
        (BODY, {"webhook-timestamp": str(int(time.time()) - 7)}, "no signature fits"),
        (BODY, {"webhook-signature": sign(secret=OTHER_SECRET)["webhook-signature"]}, "no signature fits"),
        (BODY, {"webhook-signature": sign()["webhook-signature"].replace("v1,", "v2,")}, "no signature fits"),
        (BODY, {"webhook-signature": "v1,%"}, "no signature fits"),
        (BODY, {"webhook-signature": "v1,é"}, "no signature fits"),
        (BODY, {"webhook-signature": "v1,"}, "no signature fits"),
        (BODY, {"webhook-signature": ""}, "no header webhook-signature"),
        (BODY, {"webhook-id": None}, "no header webhook-id"),
        (BODY, {"webhook-timestamp": "x"}, "is no time"),
        (BODY, {"webhook-timestamp": "١"}, "is no time"),
        (BODY, sign(at_s=time.time() - 4000), "too far from now"),
        (BODY, sign(at_s=time.time() + 4000), "too far from now"),
    ],
)
def test_a_message_that_was_changed_or_is_old_or_of_another_is_refused(
    body: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(WebhookVerificationError, match=problem):
        verify_webhook(body, {**sign(), **changes}, SECRET)


@pytest.mark.parametrize("body", ["", "5", "[]", '{"type":5}', json.dumps({"data": {}}), "[" * 200_000])
def test_a_signed_message_of_another_shape_is_refused(body: str) -> None:
    with pytest.raises(WebhookVerificationError, match="not an object with a type"):
        verify_webhook(body, sign(body), SECRET)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_%", "secret"])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match=r"must be the text of a webhook's secret, whsec_…$"):
        verify_webhook(BODY, sign(), secret)

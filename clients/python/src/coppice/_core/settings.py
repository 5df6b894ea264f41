"""Options of the client, with defaults from the environment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Generator
from dataclasses import dataclass

import httpx

from coppice._core.base_url import resolve_base_url

DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_MAX_RETRIES = 3


class BearerKey(httpx.Auth):
    """Adds the API key to requests. Neither its `repr` nor an error includes the key."""

    def __init__(self, api_key: str) -> None:
        self._api_key = api_key

    def __repr__(self) -> str:
        return "BearerKey(…)"

    @property
    def header(self) -> str:
        return f"Bearer {self._api_key}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["authorization"] = self.header
        yield request


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Validated options."""

    key: BearerKey
    base_url: str
    """Without a trailing slash."""
    timeout_ms: float
    max_retries: int

    @property
    def trusts_proxies(self) -> bool:
        """Whether proxies of the environment are used. A proxy of plain HTTP would read the API key."""
        return self.base_url.startswith("https:")

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000


def resolve_settings(
    *,
    api_key: str | None,
    base_url: str | None,
    base_url_template: str | None,
    allow_plain_http: bool | None,
    timeout_ms: float,
    max_retries: int,
) -> Settings:
    """Validates the options and fills in defaults. Errors name the option or variable, and never include the key."""
    key = _resolve_api_key(api_key)
    if allow_plain_http is None:
        allow_plain_http = os.environ.get("SANDBOX_ALLOW_PLAIN_HTTP") == "true"
    address = resolve_base_url(key, base_url, base_url_template, allow_plain_http=allow_plain_http)
    if not math.isfinite(timeout_ms) or timeout_ms < 1:
        raise ValueError("timeout_ms must be a number of at least 1")
    if max_retries < 0:
        raise ValueError("max_retries must be a number of at least 0")
    return Settings(key=BearerKey(key), base_url=address, timeout_ms=timeout_ms, max_retries=max_retries)


def _resolve_api_key(option: str | None) -> str:
    api_key = option if option is not None else os.environ.get("SANDBOX_API_KEY")
    if not api_key:
        raise ValueError("no API key: pass api_key or set the environment variable SANDBOX_API_KEY")
    # The key is checked here because the HTTP library would include it in the message of its own error.
    if not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise ValueError("api_key contains spaces, line breaks or characters other than ASCII; copy it again")
    return api_key

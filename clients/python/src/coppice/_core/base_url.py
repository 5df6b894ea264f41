"""Resolves the address of the service. The first of these that is set is used:

    base_url ─► SANDBOX_BASE_URL ─► base_url_template ─► SANDBOX_BASE_URL_TEMPLATE ─► DEFAULT_BASE_URL
                                    └── with the region of the key ──┘

If none is set, the key stays on this machine: a forgotten setting never sends it to a public host.
"""

from __future__ import annotations

import ipaddress
import os
import re
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx

DEFAULT_BASE_URL = "http://127.0.0.1:8080"
"""Default address: a service on this machine with the default `COPPICE_LISTEN`."""

_PLACEHOLDER = "{region}"
_LOOPBACK_NAME = re.compile(r"(?:.+\.)?localhost")


class _Setting(NamedTuple):
    """The text of a setting, and the option or environment variable that it comes from."""

    name: str
    text: str


def resolve_base_url(api_key: str, base_url: str | None, template: str | None, *, allow_plain_http: bool) -> str:
    """Returns the base URL without a trailing slash. The message of its `ValueError` never includes the key."""
    setting = _find_setting("base_url", base_url, "SANDBOX_BASE_URL") or _find_of_region(template, api_key)
    if setting is None:
        return DEFAULT_BASE_URL
    url = _parse(setting)
    if url.scheme == "http" and not allow_plain_http and not _is_loopback(url.hostname or ""):
        raise ValueError(
            f"{setting.name}: {url.scheme}://{url.netloc} is plain HTTP, so every host on the way could read the API "
            "key; use https, or set allow_plain_http or SANDBOX_ALLOW_PLAIN_HTTP=true in a network that is otherwise "
            "encrypted"
        )
    return f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return _LOOPBACK_NAME.fullmatch(host) is not None


def _find_setting(option: str, given: str | None, variable: str) -> _Setting | None:
    """Returns the option, else the environment variable. An empty text counts as not set."""
    if given:
        return _Setting(option, given)
    text = os.environ.get(variable)
    return _Setting(variable, text) if text else None


def _find_of_region(given: str | None, api_key: str) -> _Setting | None:
    template = _find_setting("base_url_template", given, "SANDBOX_BASE_URL_TEMPLATE")
    if template is None:
        return None
    if _PLACEHOLDER not in template.text:
        example = f"https://{_PLACEHOLDER}.api.example.com"
        raise ValueError(f"{template.name} must hold {_PLACEHOLDER}, for example {example}")
    key = re.fullmatch(r"cop_live_([a-z0-9-]+)_[A-Za-z0-9]+", api_key)
    if key is None:
        raise ValueError(
            f"api_key is not of the form cop_live_<region>_<rest>, so it names no region for {template.name}: "
            "pass base_url or set SANDBOX_BASE_URL"
        )
    return _Setting(template.name, template.text.replace(_PLACEHOLDER, key[1]))


def _parse(setting: _Setting) -> SplitResult:
    try:
        url = urlsplit(setting.text)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        # Clients differ in the host that they read from such texts.
        is_address = is_address and not re.search(r"[\s\\%<>^`{|}]", url.netloc)
        # The client of HTTP must understand it, too.
        httpx.URL(setting.text)
    except (ValueError, httpx.InvalidURL):
        is_address = False
    if not is_address:
        example = f"an http or https address such as {DEFAULT_BASE_URL}"
        # A password may be in the text.
        shown = "" if "@" in setting.text else f", not {setting.text}"
        raise ValueError(f"{setting.name} must be {example}{shown}")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError(f"{setting.name} must not contain a user, a password, a query or a fragment")
    return url

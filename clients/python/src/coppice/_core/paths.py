"""Builds paths and queries of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from urllib.parse import quote, urlencode

MAX_PORT = 65_535
MAX_PAGE_ITEMS = 100
MAX_PAGE_FILES = 1000

Parameter = str | int | Sequence[str] | None


def encode_segment(value: str, what: str) -> str:
    """Returns one encoded segment of a path. Raises `ValueError` for a text that would change the path."""
    if not isinstance(value, str) or value in ("", ".", ".."):
        raise ValueError(f'{what} must be a text other than "", "." and "..", not {value!r}')
    return quote(value, safe="")


def build_query(parameters: Mapping[str, Parameter]) -> str:
    """Returns `?a=b&c=d` without parameters that are None. A list repeats its parameter."""
    given = {name: value for name, value in parameters.items() if value is not None}
    text = urlencode(given, doseq=True, quote_via=quote)
    return f"?{text}" if text else ""


def sandbox_path(sandbox_id: str) -> str:
    return f"/v1/runs/{encode_segment(sandbox_id, 'the sandbox id')}"


def disk_path(name: str) -> str:
    return f"/v1/disks/{encode_segment(name, 'the name of the disk')}"


def require_port(port: int) -> int:
    if isinstance(port, int) and 1 <= port <= MAX_PORT:
        return port
    raise ValueError(f"port must be an integer from 1 to {MAX_PORT}, not {port!r}")


def require_limit(limit: int | None) -> None:
    """Lists call it at once, not when they fetch the first page."""
    if limit is None or (isinstance(limit, int) and limit > 0):
        return
    raise ValueError(f"limit must be an integer above 0, not {limit!r}")


def to_page_items(limit: int | None, most: int = MAX_PAGE_ITEMS) -> int | None:
    """Returns the page size for a list of at most `limit` items. None leaves the size to the service."""
    return None if limit is None else min(limit, most)


def format_labels(labels: Mapping[str, str] | None) -> list[str] | None:
    """Returns labels in the form of a query, `key:value`. A sandbox must have all of them to match."""
    return None if labels is None else [f"{key}:{value}" for key, value in labels.items()]


def format_time(name: str, time: datetime | str | None) -> str | None:
    """Returns a time in UTC. A text is sent as it is. Raises `ValueError` for a time without a time zone."""
    if time is None or isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{name} must have a time zone, for example datetime.now(timezone.utc)")
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_flag(value: bool | None) -> str | None:
    """Returns a flag in the form of a query."""
    return None if value is None else str(value).lower()


def format_mode(mode: int | str | None) -> str | None:
    """Returns permissions as octal text."""
    if not isinstance(mode, int):
        return mode
    if 0 <= mode <= 0o7777:
        return f"{mode:03o}"
    raise ValueError(f"mode must be between 0 and 0o7777, not {mode}")

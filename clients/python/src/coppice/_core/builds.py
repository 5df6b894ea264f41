"""Events of the preparation of an image."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from coppice._core.answers import read_error_fields
from coppice._core.records import parse_record
from coppice.errors import CoppiceError
from coppice.models import ImageInfo

Value = TypeVar("Value")

MAX_BUILD_EVENT = 2**20
"""In characters."""
BUILD_SILENCE_S = 60.0
"""The service sends an event or a comment at least every 15 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildProgress:
    """Progress of a build."""

    step: str
    """`resolve`, `pull`, `flatten`, or `template` for each shape. A newer service may have more steps."""
    done_bytes: int | None = None
    """Bytes done in this step. None when nothing is known yet."""
    total_bytes: int | None = None
    """Total bytes of this step, if known."""
    elapsed_ms: float
    """Milliseconds since the service started the build."""


_parse_progress = parse_record(BuildProgress)
_parse_image = parse_record(ImageInfo)


def take_build_event(data: str, label: str, on_progress: Callable[[BuildProgress], object]) -> ImageInfo | None:
    """Reports the progress in an event, or returns the image of the last one. Raises the error of an error event."""
    event = _read(label, lambda: cast(dict[str, Any], json.loads(data)))
    kind = _read(label, lambda: event["type"])
    if kind == "done":
        return _read(label, lambda: _parse_image(event["image"]))
    if kind == "error":
        fields = read_error_fields(event)
        code, message = fields.code or "invalid_response", fields.message or "the service gave no reason"
        raise CoppiceError(
            f"{label} failed during the build: {code}: {message}",
            status=200,
            code=code,
            detail=message,
            request_id=fields.request_id,
        )
    if kind in ("step", "progress"):
        progress = _read(label, lambda: _parse_progress(event))
        on_progress(progress)
    return None


def broken_build(label: str, why: object) -> CoppiceError:
    return CoppiceError(f"{label}: invalid stream of build events: {why}", status=200, code="invalid_response")


def _read(label: str, read: Callable[[], Value]) -> Value:
    try:
        return read()
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise broken_build(label, error) from error

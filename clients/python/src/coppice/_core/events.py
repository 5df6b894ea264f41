"""Parses the events of the organization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coppice._core.frames import invalid_frame, parse_frame, read_number
from coppice._core.paths import Parameter, format_labels
from coppice._core.records import parse_record
from coppice.models import EventInfo

EVENTS_PATH = "/v1/events"
MAX_EVENT_LENGTH = 2**20
"""In characters; far above any event."""
EVENTS_STALL_S = 60.0
"""The service sends something every 15 s."""

parse_event = parse_record(EventInfo)


@dataclass(frozen=True, slots=True)
class LostEvents:
    """A gap: the service no longer keeps events that the client has not received."""

    id: int
    """Events up to this id are gone. The next ones come after it."""
    type: Literal["lost"] = "lost"


def parse_event_frame(text: str, label: str) -> tuple[int, EventInfo | LostEvents | None]:
    """Returns the id to continue after, and the event. There is none if the frame is only a position."""
    frame = parse_frame(text, label, 200)
    try:
        position = read_number(frame["id"])
        if frame["type"] == "position":
            return position, None
        return position, LostEvents(position) if frame["type"] == "lost" else parse_event(frame)
    except (KeyError, TypeError) as error:
        raise invalid_frame(label, 200, error) from error


def event_filter(
    types: Sequence[str] | None, run_id: str | None, labels: Mapping[str, str] | None
) -> dict[str, Parameter]:
    """Returns the parameters of a query that choose events."""
    return {"type": types, "run_id": run_id, "label": format_labels(labels)}

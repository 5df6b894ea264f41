"""Parses the events of a watched directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from coppice._core.frames import invalid_frame, read_text

MAX_FILE_EVENT = 2**18
"""In characters. An event has two paths of at most 4 KiB, escaped."""
WATCH_STALL_S = 60.0
"""The service sends a comment every 15 s."""

_ChangeType = Literal["created", "modified", "attributes", "removed"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: of its content (`modified`), or of its mode, owner or times (`attributes`)."""

    type: _ChangeType
    path: str
    """Absolute path."""
    directory: bool
    """Whether it is a directory."""


@dataclass(frozen=True, slots=True)
class FileRename:
    """A file with a new name."""

    path: str
    """The new path."""
    from_: str
    """The old path."""
    directory: bool
    """Whether it is a directory."""
    type: Literal["renamed"] = "renamed"


@dataclass(frozen=True, slots=True)
class LostFileEvents:
    """Changes are missing: list the directory."""

    path: str | None
    """A directory that cannot be watched. None: changes came faster than they were read."""
    type: Literal["lost"] = "lost"


FileEvent = FileChange | FileRename | LostFileEvents


def parse_file_event(frame: dict[str, Any], label: str) -> FileEvent | None:
    """Returns None for a type that only a newer service sends."""
    kind = frame["type"]
    try:
        if kind in ("created", "modified", "attributes", "removed"):
            return FileChange(cast(_ChangeType, kind), read_text(frame["path"]), _read_flag(frame))
        if kind == "renamed":
            return FileRename(read_text(frame["path"]), read_text(frame["from"]), _read_flag(frame))
        if kind == "lost":
            path = frame.get("path")
            return LostFileEvents(None if path is None else read_text(path))
        return None
    except (KeyError, TypeError) as error:
        raise invalid_frame(label, 200, error) from error


def _read_flag(frame: dict[str, Any]) -> bool:
    if isinstance(frame["directory"], bool):
        return frame["directory"]
    raise TypeError("directory is not a flag")

"""Parses messages of spawned commands and of terminals."""

from __future__ import annotations

from dataclasses import dataclass

from coppice._core.frames import CommandExit, OutputChunk, invalid_frame, parse_exec_frame, parse_frame, read_number
from coppice._streams.stream_connection import Ended

_MAX_SIDE = 1000


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How the program of a terminal ended."""

    exit_code: int
    """Exit code: 128 + n when signal n ended it."""


def parse_spawn_message(message: str | bytes, label: str) -> OutputChunk | Ended[CommandExit] | None:
    """Returns None for a type that only a newer service sends."""
    frame = parse_exec_frame(message, label, 101) if isinstance(message, str) else None
    return Ended(frame) if isinstance(frame, CommandExit) else frame


def parse_terminal_message(message: str | bytes, label: str) -> bytes | Ended[TerminalExit] | None:
    """Returns None for a type that only a newer service sends."""
    if isinstance(message, bytes):
        return message
    frame = parse_frame(message, label, 101)
    try:
        return Ended(TerminalExit(read_number(frame["code"]))) if frame["type"] == "exit" else None
    except (KeyError, TypeError) as error:
        raise invalid_frame(label, 101, error) from error


def require_side(name: str, value: int) -> None:
    if isinstance(value, int) and 1 <= value <= _MAX_SIDE:
        return
    raise ValueError(f"{name} must be an integer from 1 to {_MAX_SIDE}, not {value!r}")

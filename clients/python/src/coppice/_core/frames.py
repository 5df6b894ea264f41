"""Parses frames of commands: what a server-sent event or a message of a WebSocket holds."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from coppice.errors import CoppiceError

StreamName = Literal["stdout", "stderr"]

MAX_FRAME_LENGTH = 8 * 2**20
"""In characters. A frame holds at most 1 MiB of output, which JSON can make six times as long."""
MAX_OUTPUT_EVENT_LENGTH = 2**20
"""In characters. An event has at most 64 KiB of output in base64."""
_MAX_COLLECTED = 16 * 2**20
"""Limit for each of the two streams in characters. It is the service's limit for a buffered command."""


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """A piece of the output of a command."""

    type: StreamName
    """Stream to which the command wrote."""
    data: str
    """Text, cut between characters."""


@dataclass(frozen=True, slots=True)
class OutputBytes:
    """A piece of the output of a command, as the bytes that it wrote."""

    type: StreamName
    """Stream to which the command wrote."""
    data: bytes
    """Bytes, cut anywhere."""


@dataclass(frozen=True, slots=True)
class CommandChunk:
    """A piece of the output of a command that outlives its client."""

    type: StreamName
    """Stream to which the command wrote."""
    data: str
    """Text, cut between characters."""
    next_offset: int
    """Where the next piece begins: continue from there."""


@dataclass(frozen=True, slots=True)
class DroppedOutput:
    """A part of the output that the service keeps no more."""

    bytes: int
    """Number of bytes."""
    next_offset: int
    """Where the next piece begins."""
    type: Literal["dropped"] = "dropped"


CommandOutput = CommandChunk | DroppedOutput


@dataclass(frozen=True, slots=True)
class CommandExit:
    """How a streamed command ended."""

    exit_code: int
    """Exit code: 124 when the timeout elapsed, 128 + n when signal n ended it."""
    timed_out: bool
    """True if the timeout elapsed and the command was killed."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """Result of a command in a shell. An exit code other than zero is a result, not an error."""

    exit_code: int
    """Exit code of the command."""
    stdout: str
    """Standard output."""
    stderr: str
    """Standard error."""
    truncated: bool
    """True if output beyond 16 Mi characters of a stream was dropped. Listeners still received all of it."""


def parse_frame(text: str | bytes, label: str, status: int) -> dict[str, Any]:
    """Parses a frame. Raises the error of an error frame, or `invalid_response`."""
    try:
        frame = json.loads(text)
        kind = frame["type"]
        if kind != "error":
            return cast(dict[str, Any], frame)
        error = frame["error"]
        code, detail, request_id = str(error["code"]), str(error["message"]), error.get("request_id")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise invalid_frame(label, status, error) from error
    raise CoppiceError(
        f"HTTP {status} from {label}, which failed later: {detail}",
        status=status,
        code=code,
        request_id=request_id if isinstance(request_id, str) else None,
        detail=detail,
    )


def invalid_frame(label: str, status: int, why: object) -> CoppiceError:
    return CoppiceError(f"{label}: a message is not valid: {why!r}", status=status, code="invalid_response")


def parse_exec_frame(text: str | bytes, label: str, status: int) -> OutputChunk | CommandExit | None:
    """Parses a frame of a command. Returns None for a type that only a newer service sends."""
    frame = parse_frame(text, label, status)
    try:
        if frame["type"] in ("stdout", "stderr"):
            return OutputChunk(frame["type"], read_text(frame["data"]))
        return parse_exit(frame) if frame["type"] == "exit" else None
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_frame(label, status, error) from error


def parse_bytes_frame(text: str | bytes, label: str, status: int) -> OutputBytes | CommandExit | None:
    """Does the same as `parse_exec_frame` for a frame with output in base64."""
    frame = parse_exec_frame(text, label, status)
    if not isinstance(frame, OutputChunk):
        return frame
    try:
        return OutputBytes(frame.type, base64.b64decode(frame.data, validate=True))
    except ValueError as error:
        raise invalid_frame(label, status, error) from error


def ended_early(label: str) -> CoppiceError:
    return CoppiceError(f"{label}: the stream ended before the command", status=0, code="connection_failed")


class CollectedOutput:
    """Collects the output of a command up to a limit."""

    def __init__(self) -> None:
        # A list of pieces would take many times the memory of their characters.
        self._texts = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        self._room = {"stdout": _MAX_COLLECTED, "stderr": _MAX_COLLECTED}
        self.truncated = False
        """True if output beyond the limit was dropped."""

    def add(self, chunk: OutputChunk) -> None:
        room = self._room[chunk.type]
        self._texts[chunk.type].write(chunk.data[:room])
        self._room[chunk.type] = max(0, room - len(chunk.data))
        self.truncated = self.truncated or len(chunk.data) > room

    @property
    def stdout(self) -> str:
        return self._texts["stdout"].getvalue()

    @property
    def stderr(self) -> str:
        return self._texts["stderr"].getvalue()


def parse_exit(frame: dict[str, Any]) -> CommandExit:
    return CommandExit(int(read_text(frame["data"])), frame.get("timed_out") is True)


def read_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("a field is not a text")


def read_number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError("a field is not a number")

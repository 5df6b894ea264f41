"""Follows the output of commands that outlive their client."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator
from typing import Any

from coppice._core.frames import (
    CommandChunk,
    CommandExit,
    CommandOutput,
    DroppedOutput,
    StreamName,
    invalid_frame,
    parse_exit,
    parse_frame,
    read_number,
    read_text,
)


class _Text:
    """Decodes the output of one stream, which may be cut in the middle of a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.held_offset: int | None = None
        """Where the character begins whose rest has not come yet."""

    def decode(self, data: bytes, offset: int) -> str:
        """Returns the whole characters of a part, with those that had begun before."""
        text = self._decoder.decode(data)
        held = len(self._decoder.getstate()[0])
        if held == 0:
            self.held_offset = None
        elif held <= len(data):
            self.held_offset = offset + len(data) - held
        return text

    def end(self) -> str:
        """Returns the characters that do not continue, as U+FFFD."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self.held_offset = None
        return text


class OutputReading:
    """Follows the output of a command over any number of connections: nothing is repeated, and gaps are reported."""

    def __init__(self, offset: int, label: str) -> None:
        self.offset = offset
        """Where the next event begins."""
        self.exit: CommandExit | None = None
        self._label = label
        self._texts: dict[StreamName, _Text] = {"stdout": _Text(), "stderr": _Text()}

    def take(self, text: str) -> list[CommandOutput]:
        """Returns the output in an event. Sets `exit` at the end of the command."""
        frame = parse_frame(text, self._label, 200)
        try:
            return list(self._read(frame))
        except (KeyError, TypeError, ValueError) as error:
            raise invalid_frame(self._label, 200, error) from error

    def _read(self, frame: dict[str, Any]) -> Iterator[CommandOutput]:
        kind = frame["type"]
        if kind == "exit":
            yield from self._flush()
            self.exit = parse_exit(frame)
        elif kind == "dropped":
            next_offset = read_number(frame["next_offset"])
            dropped = DroppedOutput(next_offset - self.offset, next_offset)
            self.offset = next_offset
            yield from self._flush()
            yield dropped
        elif kind in ("stdout", "stderr"):
            data = base64.b64decode(read_text(frame["data"]), validate=True)
            offset = read_number(frame["offset"])
            text = self._texts[kind].decode(data, offset)
            self.offset = offset + len(data)
            if text:
                yield CommandChunk(kind, text, self._next_offset())

    def _flush(self) -> Iterator[CommandChunk]:
        """Yields the characters that have begun and do not continue."""
        for kind, held in self._texts.items():
            text = held.end()
            if text:
                yield CommandChunk(kind, text, self.offset)

    def _next_offset(self) -> int:
        """Returns where a reader that has the whole characters continues: before those that have begun."""
        held = [one.held_offset for one in self._texts.values() if one.held_offset is not None]
        return min([self.offset, *held])

"""Cuts streamed answers into lines and server-sent events."""

from __future__ import annotations

import codecs

from coppice.errors import CoppiceError


class LineSplitter:
    """Cuts text into lines. Text after the last line end is dropped by the caller, because it was cut off."""

    def __init__(self, max_length: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Characters. It keeps an answer without line ends from filling the memory.
        self._max_length = max_length
        self._parts: list[str] = []
        self._length = 0

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that the data completes. Raises `CoppiceError` with code `invalid_response`."""
        first, *others = self._decoder.decode(data).split("\n")
        self._keep(first)
        if not others:
            return []
        lines = ["".join(self._parts), *others[:-1]]
        self._parts, self._length = [], 0
        self._keep(others[-1])
        return [line.removesuffix("\r") for line in lines]

    def _keep(self, text: str) -> None:
        # Parts are joined once: appending each to a text would take quadratic time.
        self._parts.append(text)
        self._length += len(text)
        if self._length > self._max_length:
            raise _too_long("a line", self._max_length)


class EventSplitter:
    """Joins the `data:` lines of server-sent events. It skips other fields, and comments, which keep a stream alive."""

    def __init__(self, max_length: int) -> None:
        # Characters.
        self._max_length = max_length
        self._data: list[str] = []
        self._length = 0

    def feed(self, line: str) -> str | None:
        """Returns the data of the event that the line ends, if it ends one."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
            self._length += len(line)
            if self._length > self._max_length:
                raise _too_long("an event", self._max_length)
        if line or not self._data:
            return None
        data = "\n".join(self._data)
        self._data, self._length = [], 0
        return data


def _too_long(what: str, max_length: int) -> CoppiceError:
    return CoppiceError(f"{what} has over {max_length} characters", status=200, code="invalid_response")

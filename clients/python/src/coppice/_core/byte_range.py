"""Parts of files."""

from __future__ import annotations


class ByteRange:
    """A part of a file: `length` bytes from `offset` on, or up to the end of the file."""

    def __init__(self, offset: int, length: int | None) -> None:
        if not _is_number(offset) or offset < 0:
            raise ValueError(f"offset must be an integer of at least 0, not {offset!r}")
        if length is not None and (not _is_number(length) or length < 1):
            raise ValueError(f"length must be an integer of at least 1, not {length!r}")
        self.offset = offset
        self.length = length

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request for the part. None are needed for the whole file."""
        if self.offset == 0 and self.length is None:
            return {}
        last = "" if self.length is None else self.offset + self.length - 1
        return {"range": f"bytes={self.offset}-{last}"}


class RangeCutter:
    """Cuts a part out of the bytes of a whole file."""

    def __init__(self, wanted: ByteRange) -> None:
        self._to_skip = wanted.offset
        self._left = wanted.length

    @property
    def is_done(self) -> bool:
        """True when all later bytes lie behind the part."""
        return self._left == 0

    def take(self, chunk: bytes) -> bytes:
        """Returns the bytes of a piece that lie in the part."""
        rest = chunk[self._to_skip :]
        self._to_skip -= len(chunk) - len(rest)
        if self._left is not None:
            rest = rest[: self._left]
            self._left -= len(rest)
        return rest


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

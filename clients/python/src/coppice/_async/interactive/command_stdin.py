"""Standard input of spawned commands."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

from coppice._async.interactive.connection import AsyncConnection
from coppice._async.runtime import Lock
from coppice._core.frames import CommandExit, OutputChunk

# JSON may use twelve bytes for a character, so a message stays below its limit of 1 MiB.
_MAX_TEXT_LENGTH = 65_536


class AsyncCommandStdin:
    """Standard input of a spawned command. It accepts text only: bytes must be UTF-8."""

    def __init__(self, connection: AsyncConnection[OutputChunk, CommandExit]) -> None:
        self._connection = connection
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._sending = Lock()
        self._has_ended = False
        self._has_gap = False

    async def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Writes text, or bytes that are UTF-8. A character may be split over two calls. Returns when there is room.

        Raises `ValueError` for other bytes (upload them as a file that the command reads), after `end()`, and after
        a write that failed or was interrupted: the input must have no gap. Raises `CoppiceError` with code `closed`
        once the command has ended, or `timeout` when the service accepted no input for the timeout of the command
        plus that of the client.

        Example:
            await command.stdin.write("SELECT 1;\n")
        """
        async with self._sending:
            if self._has_ended:
                raise ValueError("stdin: write after end()")
            await self._send([{"type": "stdin", "data": text} for text in _split(self._decode(data))])

    async def end(self) -> None:
        """Ends the input: the command reads an end of file.

        A second call, or a call after the end of the command, has no effect. Raises `ValueError` when the bytes
        written so far end within a character.

        Example:
            await command.stdin.end()
        """
        async with self._sending:
            if self._has_ended or self._connection.has_ended:
                return
            self._decode("")
            self._has_ended = True
            await self._send([{"type": "stdin_eof"}])

    async def _send(self, messages: list[dict[str, str]]) -> None:
        if self._has_gap:
            raise ValueError("stdin: an earlier write failed or was interrupted, so the input has a gap")
        try:
            for message in messages:
                await self._connection.send(json.dumps(message))
        except BaseException:
            self._has_gap = True
            raise

    def _decode(self, data: str | bytes | bytearray | memoryview) -> str:
        """Decodes data. A text starts a new character, so the bytes before it must be complete."""
        try:
            if isinstance(data, str):
                return self._decoder.decode(b"", final=True) + data
            return self._decoder.decode(bytes(data))
        except UnicodeDecodeError:
            self._decoder.reset()
            # The error of the decoder holds the bytes, which may be secret.
            raise ValueError("stdin: these bytes are not UTF-8; upload them as a file that the command reads") from None


def _split(text: str) -> Iterator[str]:
    for start in range(0, len(text), _MAX_TEXT_LENGTH):
        yield text[start : start + _MAX_TEXT_LENGTH]

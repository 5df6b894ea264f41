"""Terminals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import TracebackType

from coppice._async.interactive.connection import AsyncConnection
from coppice._streams.messages import TerminalExit, require_side

# Far below the limit of 1 MiB for a message.
_MAX_MESSAGE_BYTES = 65_536


class AsyncTerminal:
    """A program that runs on a terminal (PTY) of a sandbox. The end of its block hangs up, which ends the program.

    Loop over it for its output, in one loop at a time; a character or an escape sequence may be split over two pieces.

    Example:
        async with await sandbox.terminal(cols=120, rows=40) as terminal:
            await terminal.write("ls -l; exit\r")
            async for data in terminal:
                sys.stdout.buffer.write(data)
            print((await terminal.wait()).exit_code)
    """

    def __init__(self, connection: AsyncConnection[bytes, TerminalExit]) -> None:
        self._connection = connection

    @property
    def exit(self) -> TerminalExit | None:
        """How the program ended. None until then."""
        return self._connection.result

    async def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Sends input to the terminal; a text is sent as UTF-8. Returns when there is room for more.

        Raises `CoppiceError` with code `closed` once the program has ended, or `timeout` when the service accepted no
        input for the timeout of the client.

        Example:
            await terminal.write("ls -l\r")
            await terminal.write("\x03")  # Ctrl-C
        """
        content = data.encode() if isinstance(data, str) else bytes(data)
        for start in range(0, len(content), _MAX_MESSAGE_BYTES):
            await self._connection.send(content[start : start + _MAX_MESSAGE_BYTES])

    async def resize(self, cols: int, rows: int) -> None:
        """Sets the size of the terminal in columns and rows. It has no effect once the program has ended.

        Raises `ValueError` unless both are integers from 1 to 1000.

        Example:
            await terminal.resize(*os.get_terminal_size())
        """
        require_side("cols", cols)
        require_side("rows", rows)
        if not self._connection.has_ended:
            await self._connection.send_now(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    async def wait(self) -> TerminalExit:
        """Waits for the end of the program. No loop over the output is needed.

        Unread output is dropped once it exceeds 64 MiB. Do not wait inside a loop over the output. Raises
        `CoppiceError` when the connection is lost, and with code `closed` after `aclose()`.

        Example:
            print((await terminal.wait()).exit_code)
        """
        return await self._connection.final()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the output.

        Raises `CoppiceError` when the connection is lost, and with code `reader_too_slow` when output was dropped.
        """
        return self._connection.items()

    async def aclose(self) -> None:
        """Hangs up, which ends the program. Pending waits and loops raise code `closed`.

        Example:
            await terminal.aclose()
        """
        await self._connection.aclose()

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

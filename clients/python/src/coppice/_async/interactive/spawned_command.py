"""Commands with open standard input."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from types import TracebackType

from coppice._async.interactive.command_stdin import AsyncCommandStdin
from coppice._async.interactive.connection import AsyncConnection
from coppice._core.frames import CommandExit, OutputChunk

_SIGNAL = re.compile(r"(?:SIG)?[A-Z][A-Z0-9]{1,9}")


class AsyncSpawnedCommand:
    """A running command with open standard input, and output as it arrives. The end of its block kills it.

    Loop over it for its output, in one loop at a time; a later loop continues where the last one stopped. Unread output
    makes the command wait.

    Example:
        async with await sandbox.spawn("python3 -iq", timeout=600) as command:
            await command.stdin.write("print(6 * 7)\n")
            await command.stdin.end()
            async for chunk in command:
                print(chunk.data, end="")
            print((await command.wait()).exit_code)
    """

    stdin: AsyncCommandStdin
    """Standard input of the command."""

    def __init__(self, connection: AsyncConnection[OutputChunk, CommandExit]) -> None:
        self._connection = connection
        self.stdin = AsyncCommandStdin(connection)

    @property
    def exit(self) -> CommandExit | None:
        """How the command ended. None until then."""
        return self._connection.result

    async def kill(self, signal: str = "TERM") -> None:
        """Sends a signal to the command and its children: a name with or without `SIG`, for example `INT`.

        The signal is delivered after the input that was written before it. A command that does not read its input must
        therefore be ended with `aclose()`. After the end of the command the call has no effect. Raises `ValueError` for
        another name.

        Example:
            await command.kill("INT")
        """
        if not isinstance(signal, str) or not _SIGNAL.fullmatch(signal):
            raise ValueError(f"signal must be a name such as TERM, not {signal!r}")
        if not self._connection.has_ended:
            await self._connection.send_now(json.dumps({"type": "signal", "signal": signal}))

    async def wait(self) -> CommandExit:
        """Waits for the end of the command. No loop over the output is needed.

        Unread output is dropped once it exceeds 64 MiB. Do not wait inside a loop over the output. Raises
        `CoppiceError` when the connection is lost, and with code `closed` after `aclose()`.

        Example:
            print((await command.wait()).exit_code)
        """
        return await self._connection.final()

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        """Yields the output.

        Raises `CoppiceError` when the connection is lost, and with code `reader_too_slow` when output was dropped.
        """
        return self._connection.items()

    async def aclose(self) -> None:
        """Closes the connection, which kills the command. Pending waits and loops raise code `closed`.

        Example:
            await command.aclose()
        """
        await self._connection.aclose()

    async def __aenter__(self) -> AsyncSpawnedCommand:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

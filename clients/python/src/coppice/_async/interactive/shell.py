"""Shells."""

from __future__ import annotations

from types import TracebackType

from coppice._async.interactive.connection import AsyncShellRuns
from coppice._async.runtime import Listener, call_listener
from coppice._core.frames import CollectedOutput, ShellResult


class AsyncShell:
    """A bash that keeps its directory, variables, functions and background jobs from one command to the next.

    The end of its block ends the shell and its foreground command.

    Example:
        async with await sandbox.shell(cwd="/workspace") as shell:
            await shell.run("export CI=1; cd packages/sdk")
            print((await shell.run("npm test")).exit_code)
    """

    def __init__(self, runs: AsyncShellRuns) -> None:
        self._runs = runs

    async def run(
        self, command: str, *, on_stdout: Listener | None = None, on_stderr: Listener | None = None
    ) -> ShellResult:
        """Runs a command after the earlier ones and waits for its end. There is no time limit.

        To stop a command that does not end, close the shell: a call that is interrupted, or whose listener raises,
        leaves the command running. Output that a background job writes after the end of its command is lost: redirect
        it to a file. An exit code other than zero is a result. Raises `ValueError` for a command that is empty,
        contains NUL or exceeds 1 MiB; and `CoppiceError` with code `shell_closed` once the shell has ended.

        Example:
            result = await shell.run("make", on_stdout=print)
        """
        if not isinstance(command, str) or command == "" or "\0" in command:
            raise ValueError("command must be a non-empty text without NUL")
        run_id = await self._runs.begin(command)
        collected = CollectedOutput()
        try:
            while not isinstance(content := await self._runs.take(run_id), int):
                collected.add(content)
                await call_listener(on_stdout if content.type == "stdout" else on_stderr, content.data)
        finally:
            await self._runs.leave(run_id)
        return ShellResult(
            exit_code=content, stdout=collected.stdout, stderr=collected.stderr, truncated=collected.truncated
        )

    async def wait_closed(self) -> None:
        """Waits until the shell has ended or was closed. Raises `CoppiceError` when the connection was lost.

        Example:
            await shell.wait_closed()
        """
        await self._runs.wait_closed()

    async def aclose(self) -> None:
        """Ends the shell and its foreground command. Unfinished runs raise code `shell_closed`.

        Example:
            await shell.aclose()
        """
        await self._runs.aclose()

    async def __aenter__(self) -> AsyncShell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

"""Runs commands in one bash, one after the other. Each message of the service carries the id of its run:

shell_run ─► (shell_out | shell_err)* ─► shell_exit      for each run, in the order of the calls
                                         shell_closed    once, when the shell itself has ended
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass

from coppice._core.frames import OutputChunk, invalid_frame, parse_frame, read_number, read_text
from coppice._streams.stream_connection import Ended, StreamConnection
from coppice._streams.stream_errors import stream_error
from coppice.errors import CoppiceError

SHELL_CLOSED = "shell_closed"
# Frames of a run that wait for its caller. Further ones wait in the connection, which makes the sender wait.
_MAX_WAITING = 16


@dataclass(frozen=True, slots=True)
class ShellFrame:
    """A piece of output of a run, or its exit code."""

    id: str
    content: OutputChunk | int


ShellConnection = StreamConnection[ShellFrame, bool]


def parse_shell_frame(message: str | bytes, label: str) -> ShellFrame | Ended[bool] | None:
    """Returns None for a type that only a newer service sends."""
    if isinstance(message, bytes):
        return None
    frame = parse_frame(message, label, 101)
    try:
        kind = frame["type"]
        if kind == "shell_exit":
            return ShellFrame(read_text(frame["id"]), read_number(frame["code"]))
        if kind == "shell_out":
            return ShellFrame(read_text(frame["id"]), OutputChunk("stdout", read_text(frame["data"])))
        if kind == "shell_err":
            return ShellFrame(read_text(frame["id"]), OutputChunk("stderr", read_text(frame["data"])))
    except (KeyError, TypeError) as error:
        raise invalid_frame(label, 101, error) from error
    return Ended(True) if kind == SHELL_CLOSED else None


class _Run:
    """The frames of one run that its caller has not taken yet."""

    def __init__(self) -> None:
        self._waiting: deque[OutputChunk | int] = deque()
        self._changed = asyncio.Event()
        self._error: CoppiceError | None = None
        self._is_over = False

    async def put(self, content: OutputChunk | int) -> None:
        while len(self._waiting) >= _MAX_WAITING and not self._is_over:
            await self._wait()
        self._waiting.append(content)
        self._changed.set()

    async def take(self) -> OutputChunk | int:
        while not self._waiting:
            if self._error is not None:
                raise self._error.with_traceback(None)
            await self._wait()
        content = self._waiting.popleft()
        self._changed.set()
        return content

    def end(self, error: CoppiceError | None) -> None:
        """Ends the run: with an error, or because its caller has left."""
        self._error = error
        self._is_over = True
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class ShellRuns:
    """Passes the frames of a shell to the callers of its runs."""

    def __init__(self, connection: ShellConnection) -> None:
        self._connection = connection
        self._runs: dict[str, _Run] = {}
        self._last_id = 0
        self._end: CoppiceError | None = None
        self._serving = asyncio.create_task(self._serve())

    async def begin(self, command: str) -> str:
        """Sends a command, which runs after the earlier ones. Returns the id of the run."""
        if self._end is not None:
            raise self._end.with_traceback(None)
        self._last_id += 1
        run_id = str(self._last_id)
        self._runs[run_id] = _Run()
        try:
            await self._connection.send(json.dumps({"type": "shell_run", "id": run_id, "command": command}))
        except CoppiceError:
            # If the connection has ended, `take` first returns the remaining frames and then reports the reason.
            if not self._connection.has_ended:
                await self.leave(run_id)
                raise
        except BaseException:
            await self.leave(run_id)
            raise
        return run_id

    async def take(self, run_id: str) -> OutputChunk | int:
        """Waits for the next output of a run, or for its exit code. Raises the reason when the shell has ended."""
        run = self._runs.get(run_id)
        if run is None:
            raise self._end or stream_error(self._connection.label, SHELL_CLOSED, "the shell has ended")
        return await run.take()

    async def leave(self, run_id: str) -> None:
        """Drops the further frames of a run."""
        run = self._runs.pop(run_id, None)
        if run is not None:
            run.end(None)

    async def wait_closed(self) -> None:
        """Waits until the shell has ended or was closed. Raises the error of a lost connection."""
        await asyncio.wait([self._serving])
        if self._end is not None and self._end.code != SHELL_CLOSED:
            raise self._end.with_traceback(None)

    async def aclose(self) -> None:
        """Ends the shell and its foreground command."""
        await self._connection.aclose(SHELL_CLOSED)
        await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        try:
            async for frame in self._connection.items():
                run = self._runs.get(frame.id)
                if run is not None:
                    await run.put(frame.content)
            self._end = stream_error(self._connection.label, SHELL_CLOSED, "the shell has ended")
        except CoppiceError as error:
            self._end = error
        finally:
            end = self._end or stream_error(self._connection.label, SHELL_CLOSED, "the event loop ended")
            self._end = end
            for run in self._runs.values():
                run.end(end)

"""Commands whose output is read as it arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Generic, TypeVar

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.runtime import Listener, call_listener
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.frames import (
    MAX_FRAME_LENGTH,
    CollectedOutput,
    CommandExit,
    OutputBytes,
    OutputChunk,
    ended_early,
    parse_bytes_frame,
    parse_exec_frame,
)
from coppice.models import ExecResult

Piece = TypeVar("Piece")


class AsyncCommandFrames(Generic[Piece]):
    """The frames of a command that runs while they are read."""

    exit: CommandExit | None
    """How the command ended. None until all output was read."""

    def __init__(
        self, transport: AsyncTransport, call: Call, parse: Callable[[str, str, int], Piece | CommandExit | None]
    ) -> None:
        self.exit = None
        self._transport = transport
        self._call = call
        self._parse = parse
        self._has_begun = False
        self._stream: AsyncByteStream | None = None

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """Starts the command and yields its output. There may be one loop.

        Raises `CoppiceError`; the code is `connection_failed` if the stream ends before the command.
        """
        if self._has_begun:
            raise RuntimeError("the output of this command was already read: start another stream to run it again")
        self._has_begun = True
        self._stream = await self._transport.call_stream(self._call)
        try:
            async for data in self._stream.events(MAX_FRAME_LENGTH):
                frame = self._parse(data, self._call.label, 200)
                if isinstance(frame, CommandExit):
                    self.exit = frame
                    return
                if frame is not None:
                    yield frame
        finally:
            await self.aclose()
        raise ended_early(self._call.label)

    async def aclose(self) -> None:
        """Closes the connection, which kills the command."""
        if self._stream is not None:
            await self._stream.aclose()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncCommandStream(AsyncCommandFrames[OutputChunk]):
    """The output of a command that runs while it is read. Closing the stream kills the command.

    Example:
        async with sandbox.stream("npm run build", timeout=600) as output:
            async for chunk in output:
                print(chunk.data, end="")
        print(output.exit)
    """

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        super().__init__(transport, call, parse_exec_frame)

    async def __aenter__(self) -> AsyncCommandStream:
        return self


class AsyncCommandByteStream(AsyncCommandFrames[OutputBytes]):
    """The output of a command as bytes. Closing the stream kills the command.

    Example:
        async with sandbox.stream_bytes("tar -cz /workspace") as output:
            async for chunk in output:
                print(chunk.type, len(chunk.data))
    """

    def __init__(self, transport: AsyncTransport, call: Call) -> None:
        super().__init__(transport, call, parse_bytes_frame)

    async def __aenter__(self) -> AsyncCommandByteStream:
        return self


async def exec_with_listeners(
    output: AsyncCommandStream, on_stdout: Listener | None, on_stderr: Listener | None
) -> ExecResult:
    """Runs a command to its end and passes its output to the listeners. If one raises, the command is killed."""
    collected = CollectedOutput()
    async with output:
        async for chunk in output:
            collected.add(chunk)
            await call_listener(on_stdout if chunk.type == "stdout" else on_stderr, chunk.data)
    if output.exit is None:
        raise ended_early("exec")
    return ExecResult(
        exit_code=output.exit.exit_code,
        timed_out=output.exit.timed_out,
        stdout=collected.stdout,
        stderr=collected.stderr,
        truncated=collected.truncated,
    )

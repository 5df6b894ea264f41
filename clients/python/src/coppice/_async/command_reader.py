"""The output of commands that outlive their client."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.runtime import sleep
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.frames import (
    MAX_OUTPUT_EVENT_LENGTH,
    CommandExit,
    CommandOutput,
    StreamName,
    ended_early,
)
from coppice._core.output_reading import OutputReading
from coppice._core.paths import build_query
from coppice._core.retry import Persistence
from coppice.errors import CoppiceError


class AsyncCommandReader:
    """The output of a command that outlives its client. Leaving a loop over it has no effect on the command."""

    exit: CommandExit | None
    """How the command ended. None until all output was read."""

    def __init__(self, transport: AsyncTransport, path: str, offset: int, stream: StreamName | None) -> None:
        self.exit = None
        self._transport = transport
        self._call = Call(method="GET", path=f"{path}/output", headers={"accept": "text/event-stream"}, idempotent=True)
        self._stream_name = stream
        self._reading = OutputReading(offset, self._call.label)
        self._stream: AsyncByteStream | None = None
        self._events: AsyncIterator[str] | None = None
        self._loops = 0
        # An event may have several pieces, and a loop may be left between them.
        self._pending: deque[CommandOutput] = deque()

    async def __aiter__(self) -> AsyncIterator[CommandOutput]:
        """Yields the output up to the end of the command.

        After a lost connection it continues where it was: nothing is repeated, and a part that is lost is yielded as
        `DroppedOutput`. A later loop continues where the last one stopped.
        """
        persistence = Persistence()
        self._loops += 1
        number = self._loops
        try:
            while True:
                while self._pending:
                    yield self._pending.popleft()
                if self._reading.exit is not None:
                    break
                try:
                    self._pending.extend(await self._read_event())
                    persistence.note_progress()
                except CoppiceError as error:
                    await self.aclose()
                    await sleep(persistence.next_delay_s(error))
        finally:
            # A loop that was left may end only after the next one has begun, which uses the same connection.
            if number == self._loops:
                await self.aclose()
        self.exit = self._reading.exit

    async def aclose(self) -> None:
        """Closes the connection. The command continues."""
        self._events = None
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> AsyncCommandReader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _read_event(self) -> list[CommandOutput]:
        """Returns the pieces of the next event, on a new connection if there is none."""
        if self._events is None:
            query = {"offset": self._reading.offset, "stream": self._stream_name, "encoding": "base64"}
            call = replace(self._call, query=build_query(query))
            self._stream = await self._transport.call_stream(call)
            self._events = self._stream.events(MAX_OUTPUT_EVENT_LENGTH)
        async for event in self._events:
            return self._reading.take(event)
        raise ended_early(self._call.label)

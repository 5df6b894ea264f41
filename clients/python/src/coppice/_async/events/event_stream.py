"""The events of the organization, as they happen."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.runtime import sleep
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.events import EVENTS_PATH, EVENTS_STALL_S, MAX_EVENT_LENGTH, LostEvents, parse_event_frame
from coppice._core.paths import Parameter, build_query
from coppice._core.retry import MAX_DELAY_S, Persistence
from coppice.errors import CoppiceError
from coppice.models import EventInfo

# Attempts to continue, one after the other, before the error is the caller's: about five minutes.
_MAX_FAILURES = 35
_LABEL = f"GET {EVENTS_PATH}"


class AsyncEventStream:
    """The events of your organization, without an end. Leave its block, or close it, to stop.

    Example:
        async with client.events(types=["sandbox.failed"]) as events:
            async for event in events:
                print(event)
    """

    after: int | None
    """Id of the last event that was received, or that the filter left out. Keep it to continue in another process."""

    def __init__(self, transport: AsyncTransport, wanted: Mapping[str, Parameter], after: int | None) -> None:
        self.after = after
        self._transport = transport
        self._wanted = wanted
        self._stream: AsyncByteStream | None = None
        self._events: AsyncIterator[str] | None = None
        self._connected_at_s: float | None = None
        self._loops = 0

    async def __aiter__(self) -> AsyncIterator[EventInfo | LostEvents]:
        """Yields the events.

        After a lost connection it continues where it was: nothing is repeated, and events that the service no longer
        keeps are reported as one `LostEvents`. A later loop continues where the last one stopped.
        """
        persistence = Persistence(_MAX_FAILURES)
        self._loops += 1
        number = self._loops
        try:
            while True:
                before = self.after
                try:
                    event = await self._read_event()
                except CoppiceError as error:
                    has_worked = self._has_lasted()
                    await self.aclose()
                    if has_worked:
                        persistence.note_progress()
                    await sleep(persistence.next_delay_s(error))
                    continue
                # A service that only repeats the position, and then fails, makes no progress.
                if self.after != before:
                    persistence.note_progress()
                if event is not None:
                    yield event
        finally:
            # A loop that was left may end only after the next one has begun, which uses the same connection.
            if number == self._loops:
                await self.aclose()

    async def aclose(self) -> None:
        """Closes the connection."""
        self._events = None
        self._connected_at_s = None
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _has_lasted(self) -> bool:
        """Returns true if the connection worked for a while, so that its loss is the first failure of a new series."""
        return self._connected_at_s is not None and time.monotonic() - self._connected_at_s > MAX_DELAY_S

    async def _read_event(self) -> EventInfo | LostEvents | None:
        """Returns the event of the next frame, on a new connection if there is none. A position has no event."""
        if self._events is None:
            call = Call(
                method="GET",
                path=EVENTS_PATH,
                query=build_query({**self._wanted, "after": self.after}),
                headers={"accept": "text/event-stream"},
                idempotent=True,
                stall_s=max(EVENTS_STALL_S, self._transport.timeout_s),
            )
            self._stream = await self._transport.call_stream(call)
            self._events = self._stream.events(MAX_EVENT_LENGTH)
            self._connected_at_s = time.monotonic()
        async for text in self._events:
            self.after, event = parse_event_frame(text, _LABEL)
            return event
        raise CoppiceError(f"{_LABEL}: the service has ended the stream", status=0, code="connection_failed")

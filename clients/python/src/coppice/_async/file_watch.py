"""The changes below a directory, as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

from coppice._async.byte_stream import AsyncByteStream
from coppice._core.file_events import MAX_FILE_EVENT, FileEvent, parse_file_event
from coppice._core.frames import parse_frame
from coppice.errors import CoppiceError


class AsyncFileWatch:
    """The changes of a watched directory. Close it, or leave its block, to end the watch."""

    def __init__(self, stream: AsyncByteStream, label: str) -> None:
        self._stream = stream
        self._label = label

    async def __aiter__(self) -> AsyncIterator[FileEvent]:
        """Yields the changes, and ends when the directory is gone. There may be one loop."""
        try:
            async for text in self._stream.events(MAX_FILE_EVENT):
                frame = parse_frame(text, self._label, 200)
                if frame["type"] == "ended":
                    return
                event = parse_file_event(frame, self._label)
                if event is not None:
                    yield event
        finally:
            await self.aclose()
        raise CoppiceError(f"{self._label}: the stream ended before the directory", status=0, code="connection_failed")

    async def aclose(self) -> None:
        """Ends the watch."""
        await self._stream.aclose()

    async def __aenter__(self) -> AsyncFileWatch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

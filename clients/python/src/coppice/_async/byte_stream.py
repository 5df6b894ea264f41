"""Answers that are read as they arrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType

import httpx

from coppice._core.byte_range import RangeCutter
from coppice._core.call import Call
from coppice._core.lines import EventSplitter, LineSplitter
from coppice._core.retry import build_connection_error


class AsyncByteStream:
    """The bytes of an answer. Read it to its end or close it: until then it holds a connection.

    Example:
        async with await sandbox.download_stream("/workspace/big.tar") as stream:
            async for chunk in stream:
                file.write(chunk)
    """

    def __init__(self, response: httpx.Response, call: Call, stall_s: float, cutter: RangeCutter | None = None) -> None:
        self._response = response
        self._call = call
        self._stall_s = stall_s
        self._cutter = cutter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields pieces of any size. Raises `CoppiceError` if the connection breaks."""
        try:
            async for chunk in self._response.aiter_bytes():
                part = chunk if self._cutter is None else self._cutter.take(chunk)
                if part:
                    yield part
                if self._cutter is not None and self._cutter.is_done:
                    return
        except httpx.HTTPError as error:
            raise build_connection_error(self._call, error, self._stall_s) from error
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Ends the transfer."""
        await self._response.aclose()

    async def __aenter__(self) -> AsyncByteStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def lines(self, max_length: int) -> AsyncIterator[str]:
        """Yields lines. Text after the last line end is dropped because it was cut off."""
        splitter = LineSplitter(max_length)
        async for chunk in self:
            for line in splitter.feed(chunk):
                yield line

    async def events(self, max_length: int) -> AsyncIterator[str]:
        """Yields the data of server-sent events."""
        splitter = EventSplitter(max_length)
        async for line in self.lines(max_length):
            data = splitter.feed(line)
            if data is not None:
                yield data

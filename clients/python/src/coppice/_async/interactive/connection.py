"""WebSockets of a client. The synchronous client has a module of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import httpx

from coppice._core.settings import Settings
from coppice._streams.shell_runs import ShellFrame, ShellRuns
from coppice._streams.stream_connection import StreamConnection, StreamRequest

if TYPE_CHECKING:
    from coppice._async.transport import AsyncTransport

Item = TypeVar("Item")
Final = TypeVar("Final")

AsyncConnection = StreamConnection
AsyncShellRuns = ShellRuns


class AsyncStreams:
    """Opens WebSockets, and closes them with the client."""

    def __init__(
        self,
        transport: AsyncTransport,
        settings: Settings,
        http_transport: httpx.AsyncBaseTransport | None,
        stream_transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._transport = transport
        self._own: AsyncTransport | None = None
        self._open: WeakSet[StreamConnection[Any, Any]] = WeakSet()
        if stream_transport is not None:
            self._own = type(transport)(settings, stream_transport)

    async def open(self, request: StreamRequest[Item, Final]) -> AsyncConnection[Item, Final]:
        """Opens a WebSocket."""
        # It imports the transport, which imports this module.
        from coppice._streams.connect import connect

        connection = await connect(self._own or self._transport, request)
        self._open.add(connection)
        return connection

    async def open_shell(self, request: StreamRequest[ShellFrame, bool]) -> AsyncShellRuns:
        """Opens a shell."""
        return ShellRuns(await self.open(request))

    async def aclose(self) -> None:
        """Closes all WebSockets."""
        try:
            await asyncio.gather(*[connection.aclose() for connection in list(self._open)])
        finally:
            if self._own is not None:
                await self._own.aclose()

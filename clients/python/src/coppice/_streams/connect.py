"""Opens WebSockets. The handshake carries the API key, as every other request does."""

from __future__ import annotations

import base64
import secrets
from typing import TypeVar

from websockets.utils import accept_key

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._streams.stream_connection import StreamConnection, StreamRequest, require_message_size
from coppice._streams.stream_errors import stream_error
from coppice._streams.web_socket import WebSocket

Item = TypeVar("Item")
Final = TypeVar("Final")


async def connect(transport: AsyncTransport, request: StreamRequest[Item, Final]) -> StreamConnection[Item, Final]:
    """Opens a WebSocket. A refused handshake is an error of the service, such as `not_found`.

    It is retried as other requests are: the service has started nothing when it refuses.
    """
    if request.first is not None:
        require_message_size(request.first)
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    call = Call(
        method="GET",
        path=request.path,
        query=request.query,
        headers={
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": key,
        },
        idempotent=True,
        upgrades=True,
    )
    response = await transport.call_upgrade(call)
    if response.headers.get("sec-websocket-accept") != accept_key(key):
        await response.aclose()
        raise stream_error(call.label, "invalid_response", "the answer is not that of a WebSocket")
    return StreamConnection(WebSocket(response), request, timeout_s=transport.timeout_s)

"""Makes the HTTP calls of the service: address, bearer header, deadline, retries, and uniform errors.

call ──► attempt ──► 2xx ──► body, read under the same deadline
           ▲  └────► 429/503 with Retry-After, or connection refused ──► wait ─┐
           └───────────────── idempotent requests only ────────────────────────┘
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.interactive.connection import AsyncStreams
from coppice._async.runtime import StreamTransport, sleep
from coppice._core.answers import (
    MAX_BUFFERED_BYTES,
    MAX_ERROR_BODY_BYTES,
    build_answer_error,
    build_late_error,
    parse_answer,
    too_large,
)
from coppice._core.byte_range import ByteRange, RangeCutter
from coppice._core.call import SLOW_CALL_S, Call, Deadline
from coppice._core.retry import build_connection_error, retry_delay_s
from coppice._core.settings import Settings
from coppice.errors import CoppiceError

Value = TypeVar("Value")

# Below the service's own limit, so that the client does not send a request on a connection that is being closed.
_KEEP_ALIVE_S = 4.0
_SWITCHING_PROTOCOLS = 101
_PARTIAL_CONTENT = 206


class AsyncTransport:
    """Sends requests to one service with one API key. Failed calls raise `CoppiceError`."""

    streams: AsyncStreams
    """Opens WebSockets."""

    def __init__(
        self,
        settings: Settings,
        http_transport: httpx.AsyncBaseTransport | None,
        stream_transport: StreamTransport | None = None,
    ) -> None:
        self.base_url = settings.base_url
        self.timeout_s = settings.timeout_s
        self.key = settings.key
        self.streams = AsyncStreams(self, settings, http_transport, stream_transport)
        self._max_retries = settings.max_retries
        self._client = httpx.AsyncClient(
            auth=settings.key,
            transport=http_transport,
            trust_env=settings.trusts_proxies,
            # A compressed event would be held back until its block is full.
            headers={"accept-encoding": "identity", "user-agent": "coppice-python"},
            limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_ALIVE_S),
            # A redirect would turn a POST into a GET, and would send the key to another host.
            follow_redirects=False,
        )

    @property
    def slow_timeout_s(self) -> float:
        """Timeout of calls that may take minutes."""
        return max(self.timeout_s, SLOW_CALL_S)

    async def aclose(self) -> None:
        try:
            await self.streams.aclose()
        finally:
            await self._client.aclose()

    async def call_json(self, call: Call, parse: Callable[[Any], Value]) -> Value:
        """Sends a request and parses its JSON answer. `parse` raises `TypeError` for a value of another shape."""
        value, _ = await self.call_page(call, parse)
        return value

    async def call_page(self, call: Call, parse: Callable[[Any], Value]) -> tuple[Value, httpx.Headers]:
        """Does the same, and also returns the headers of the answer."""
        deadline = self._start_deadline(call)
        response = await self._send(call, deadline)
        body = await self._read_body(call, response, deadline)
        return parse_answer(call.label, response, body, parse), response.headers

    async def find_json(self, call: Call, parse: Callable[[Any], Value]) -> Value | None:
        """Does the same, and returns None when the service answers that there is no such thing."""
        try:
            return await self.call_json(call, parse)
        except CoppiceError as error:
            if error.status == 404:
                return None
            raise

    async def call_empty(self, call: Call) -> None:
        """Sends a request and ignores the body of its answer."""
        response = await self._send(call, self._start_deadline(call))
        await response.aclose()

    async def call_stream(self, call: Call) -> AsyncByteStream:
        """Sends a request and returns the body of its answer as a stream."""
        response = await self._send(call, Deadline(call.label, self._timeout_of(call)))
        return AsyncByteStream(response, call, call.stall_s or self._timeout_of(call))

    async def call_range(self, call: Call, wanted: ByteRange) -> AsyncByteStream:
        """Does the same for a part of the body."""
        call = replace(call, headers={**call.headers, **wanted.headers})
        response = await self._send(call, Deadline(call.label, self._timeout_of(call)))
        # The service sends all of a file that the kernel generates.
        cutter = None if response.status_code == _PARTIAL_CONTENT else RangeCutter(wanted)
        return AsyncByteStream(response, call, self._timeout_of(call), cutter)

    async def call_upgrade(self, call: Call) -> httpx.Response:
        """Sends a request for another protocol, and returns the answer with the connection."""
        return await self._send(call, self._start_deadline(call))

    def _timeout_of(self, call: Call) -> float:
        return self.timeout_s if call.timeout_s is None else call.timeout_s

    def _start_deadline(self, call: Call) -> Deadline:
        return Deadline(call.label, self._timeout_of(call) if call.stall_s is None else math.inf)

    async def _send(self, call: Call, deadline: Deadline) -> httpx.Response:
        """Returns a 2xx answer whose body is not yet read."""
        attempt = 0
        while True:
            outcome = await self._attempt(call, deadline)
            if isinstance(outcome, httpx.Response):
                return outcome
            may_retry = call.idempotent and attempt < self._max_retries
            delay_s = retry_delay_s(outcome, attempt) if may_retry else None
            if delay_s is None or delay_s > deadline.remaining_s:
                raise outcome
            await sleep(delay_s)
            call.on_retry()
            attempt += 1

    async def _attempt(self, call: Call, deadline: Deadline) -> httpx.Response | CoppiceError:
        """Returns the answer, or an error after which the request may be repeated."""
        timeout_s = deadline.require() if call.stall_s is None else call.stall_s
        request = self._client.build_request(
            call.method,
            f"{self.base_url}{call.path}{call.query}",
            headers=dict(call.headers),
            content=call.content,
            timeout=timeout_s,
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            failure = build_connection_error(call, error, timeout_s)
            if failure.code != "connection_refused":
                raise failure from error
            failure.__cause__ = error
            return failure
        if response.status_code == _SWITCHING_PROTOCOLS if call.upgrades else response.is_success:
            return response
        return build_answer_error(call.label, response, await self._read_prefix(response, timeout_s))

    async def _read_body(self, call: Call, response: httpx.Response, deadline: Deadline) -> bytes:
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                deadline.require()
                body += chunk
                if len(body) > MAX_BUFFERED_BYTES:
                    raise too_large(MAX_BUFFERED_BYTES)
        except httpx.HTTPError as error:
            late = build_late_error(call.label, response, bytes(body))
            if late is not None and not isinstance(error, httpx.TimeoutException):
                raise late from error
            raise build_connection_error(call, error, self._timeout_of(call)) from error
        finally:
            await response.aclose()
        return bytes(body)

    async def _read_prefix(self, response: httpx.Response, timeout_s: float) -> bytes:
        """Reads the body of an error. A service that refuses an upload may close the connection at once."""
        body = bytearray()
        deadline = Deadline("", timeout_s)
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= MAX_ERROR_BODY_BYTES or deadline.remaining_s <= 0:
                    break
        except httpx.HTTPError:
            # The status of the error counts, not the break.
            pass
        finally:
            await response.aclose()
        return bytes(body[:MAX_ERROR_BODY_BYTES])

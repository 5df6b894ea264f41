"""Errors of WebSockets. They have no HTTP status."""

from __future__ import annotations

from coppice._streams.unread_queue import UNREAD_LIMIT_BYTES
from coppice._streams.web_socket import Closed
from coppice.errors import CoppiceError

# https://www.rfc-editor.org/rfc/rfc6455#section-11.7
_SERVICE_RESTART = 1012


def stream_error(label: str, code: str, what: str) -> CoppiceError:
    return CoppiceError(f"{label}: {what}", status=0, code=code)


def close_error(label: str, closed: Closed) -> CoppiceError:
    """Returns the error for a close that follows no final or error frame."""
    why = f"{closed.code} ({closed.reason})" if closed.reason else str(closed.code)
    if closed.code == _SERVICE_RESTART:
        return stream_error(label, "unavailable", f"the service restarts and closed the connection: {why}")
    return stream_error(label, "connection_failed", f"the connection was closed too early: {why}")


def broken_error(label: str, error: BaseException) -> CoppiceError:
    """Returns the error for a connection that broke."""
    return stream_error(label, "connection_failed", f"the connection failed: {str(error) or type(error).__name__}")


def slow_error(label: str) -> CoppiceError:
    limit = f"{UNREAD_LIMIT_BYTES // 2**20} MiB"
    return stream_error(
        label, "reader_too_slow", f"over {limit} of output were dropped, because wait() was called and none was read"
    )

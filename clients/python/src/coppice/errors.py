"""The errors of the client."""

from __future__ import annotations


class CoppiceError(Exception):
    """The error of every failed call. An invalid argument is a `TypeError` or a `ValueError` instead.

    Codes of the service are listed in docs/reference/errors.md. The client adds `connection_refused`,
    `connection_failed`, `timeout`, `invalid_response` and `response_too_large`; for a spawned command, a shell and a
    terminal also `no_websocket`, `reader_too_slow`, `closed` and `shell_closed`; for `get_or_create` also
    `ambiguous_name`, when sandboxes of several teams have the name.

    Example:
        try:
            sandbox.exec("true")
        except CoppiceError as error:
            if error.code != "invalid_state":
                raise
            print(error.detail)
    """

    status: int
    """HTTP status of the answer. 0 when there was none."""
    code: str
    """Machine-readable cause, for example `not_found`. `http_<status>` if the answer did not come from the service."""
    request_id: str | None
    """Id of the request in the service's log."""
    detail: str | None
    """The full explanation of the service. The message includes only the first 200 bytes of the body."""
    retry_after_ms: int | None
    """Milliseconds that the service asks to wait before a retry."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        request_id: str | None = None,
        detail: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.request_id = request_id
        self.detail = detail
        self.retry_after_ms = retry_after_ms

    def __reduce__(self) -> tuple[object, ...]:
        # An error must survive the way back from a process pool; the default would call __init__ without keywords.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[CoppiceError], args: tuple[object, ...], fields: dict[str, object]) -> CoppiceError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error

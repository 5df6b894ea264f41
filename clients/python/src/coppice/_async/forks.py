"""Forks of a sandbox."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from coppice._async.creation import parse_sandbox
from coppice._core.answers import first_bytes, read_error_fields
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo

if TYPE_CHECKING:
    from coppice._async.sandbox import AsyncSandbox

# The service answers 207 when some children of a fork are errors.
_PARTIAL_STATUS = 207


class AsyncForkError(CoppiceError):
    """Error of `fork()` when some of the children could not be created.

    The other children run; the caller uses or destroys them. `code` and `detail` are those of the first of `errors`;
    `status` is 207.
    """

    children: list[AsyncSandbox]
    """The children that run, in order."""
    errors: list[CoppiceError]
    """One error for each child that could not be created, in order."""

    def __init__(self, children: list[AsyncSandbox], errors: list[CoppiceError]) -> None:
        first = errors[0]
        total = len(children) + len(errors)
        super().__init__(
            f"{len(errors)} of {total} children could not be made: {first}",
            status=_PARTIAL_STATUS,
            code=first.code,
            request_id=first.request_id,
            detail=first.detail,
        )
        self.children = children
        self.errors = errors


def parse_children(value: Any, count: int, label: str) -> tuple[list[SandboxInfo], list[CoppiceError]]:
    """Returns the records and the errors of the children, each list in order."""
    if not isinstance(value, list) or len(value) != count:
        raise TypeError(f"the answer is not a list of {count} children")
    records: list[SandboxInfo] = []
    errors: list[CoppiceError] = []
    for number, child in enumerate(value, start=1):
        error = _parse_child_error(child, f"{label}, child {number} of {count}")
        if error is None:
            records.append(parse_sandbox(child))
        else:
            errors.append(error)
    return records, errors


def _parse_child_error(child: Any, label: str) -> CoppiceError | None:
    """Returns the error of a child, or None for a child that runs."""
    fields = read_error_fields(child)
    if fields.code is None:
        return None
    body = first_bytes(json.dumps(child).encode())
    return CoppiceError(
        f"HTTP {_PARTIAL_STATUS} from {label}: {body}",
        status=_PARTIAL_STATUS,
        code=fields.code,
        request_id=fields.request_id,
        detail=fields.message,
    )

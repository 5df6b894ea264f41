"""Marks for options for which None has a meaning of its own."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final


class Unset(Enum):
    """An option that the caller left out."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


class JsonNull(Enum):
    """A member of a request that is null. A member that is None is left out."""

    JSON_NULL = "null"


UNSET: Final = Unset.UNSET
JSON_NULL: Final = JsonNull.JSON_NULL


def or_null(value: Any) -> Any:
    """Returns the member of a request for an option: None sends null, and an option left out is left out."""
    if value is UNSET:
        return None
    return JSON_NULL if value is None else value

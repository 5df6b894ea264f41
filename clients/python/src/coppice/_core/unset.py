"""Marks for options for which None has a meaning of its own."""

from __future__ import annotations

from enum import Enum
from typing import Final


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

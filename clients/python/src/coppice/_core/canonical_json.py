"""The canonical JSON of RFC 8785, which the service hashes."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

# Above it, integers are not exact as numbers of JavaScript, in which the RFC defines them.
_MAX_EXACT = 2**53
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def canonicalize(value: Any) -> str:
    """Returns the canonical text. `value` must come from `json.loads`."""
    if isinstance(value, dict):
        # The RFC orders members by UTF-16 code units.
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_quote(name)}:{canonicalize(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonicalize, value)) + "]"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return format_number(value)


def format_number(value: float) -> str:
    """Formats a number as JavaScript does."""
    if isinstance(value, int) and abs(value) <= _MAX_EXACT:
        return str(value)
    number = float(value)
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    # The decimal point stands after this many digits.
    point = len(text) + int(exponent)
    return f"{'-' if sign else ''}{_place_point(text, point)}"


def _place_point(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{point - 1:+d}"


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)

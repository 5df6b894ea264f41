"""Durations such as `45s`, `10m` and `1h30m`, in seconds."""

UNITS = {"s": 1, "m": 60, "h": 3600}


def parse(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]]

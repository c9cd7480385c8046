"""Durations (`500ms 5s 2m 1h 7d`), rates (`20/s`) and sizes (`32MiB`). Whole numbers only."""

import re
from typing import Final

from schemas.definitions.problems import NotationError

_UNITS_US: Final = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_BYTES: Final = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_DURATION = re.compile(r"([0-9]{1,15})(us|ms|s|m|h|d)")
_RATE = re.compile(r"([0-9]{1,9})/(s|m|h)")
_SIZE = re.compile(r"([0-9]{1,15}) ?([A-Za-z]*)")


def parse_duration_us(text: str) -> int:
    """A duration in microseconds. Raises NotationError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise NotationError(
            f'"{text}" is no duration',
            "Write a whole number and a unit, such as `500ms`, `5s`, `2m`, `1h` or `7d`.",
        )
    return int(found[1]) * _UNITS_US[found[2]]


def format_duration(us: int) -> str:
    """The shortest text that `parse_duration_us` reads as this many microseconds."""
    if us < 0:
        raise ValueError(f"a duration is never negative: {us}")
    if us == 0:
        return "0s"
    unit, size = next((unit, size) for unit, size in _UNITS_US.items() if us % size == 0)
    return f"{us // size}{unit}"


def parse_rate_per_s(text: str) -> float:
    """A rate in units per second. Raises NotationError."""
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise NotationError(
            f'"{text}" is no rate', "Write for example `20/s`, `300/m` or `4500/h`."
        )
    return int(found[1]) * 1_000_000 / _UNITS_US[found[2]]


def parse_size_bytes(text: str) -> int:
    """A size in bytes. Raises NotationError."""
    found = _SIZE.fullmatch(text)
    if found is None or found[2] not in _BYTES or int(found[1]) == 0:
        raise NotationError(f'"{text}" is no size', "Write for example `512KiB` or `32MiB`.")
    return int(found[1]) * _BYTES[found[2]]

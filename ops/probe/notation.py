"""Times written finer than a definition's format does, and how finely a provider shows its own. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from schemas.definitions.times import TimeFormat, TimeKind

S = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"[.,]([0-9]+)")


def fine_time(us: int, time_format: TimeFormat, unit: int) -> str:
    """A time with milli- or microseconds (`unit` 1000 or 1), in the notation of the format."""
    digits = 3 if unit == 1_000 else 6
    if time_format.kind is TimeKind.UNIX_S:
        return f"{Decimal(us) / S:.{digits}f}"
    if time_format.kind is TimeKind.UNIX_MS:
        return f"{Decimal(us) / 1_000:.3f}"
    if time_format.kind is TimeKind.PATTERN:
        raise ValueError("a pattern has no finer notation")
    moment = (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if digits == 3 else "microseconds") + "Z"


def shown_unit(value: object, time_format: TimeFormat) -> int:
    """The step in microseconds in which a value of a record shows its time: 1, 1000 or a second."""
    text = format(Decimal(repr(value)), "f") if isinstance(value, float) else str(value)
    if time_format.kind is TimeKind.UNIX_MS:
        return 1 if _digits(text) else 1_000
    if time_format.kind is TimeKind.PATTERN:
        return time_format.unit_us
    digits = _digits(text)
    return S if digits == 0 else 1_000 if digits <= 3 else 1


def _digits(text: str) -> int:
    found = _FRACTION.search(text)
    return 0 if found is None else len(found[1])

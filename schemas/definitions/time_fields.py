"""From the fields of a written time to microseconds since 1970 in UTC, with whole numbers only."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ONE_US: Final = timedelta(microseconds=1)
_MIN_US: Final = (datetime(1, 1, 2, tzinfo=UTC) - EPOCH) // ONE_US
_MAX_US: Final = (datetime(9999, 12, 30, tzinfo=UTC) - EPOCH) // ONE_US


class TimeFault(ValueError):
    """A value is no time in the declared notation; the text says why and never repeats it."""


class UndecidedTime(TimeFault):
    """A time of day that its zone has twice, or skips: two moments or none, and none is picked."""


def within(us: int) -> int:
    """The time itself, or TimeFault outside the years 1 to 9999."""
    if not _MIN_US <= us <= _MAX_US:
        raise TimeFault("outside the years 1 to 9999")
    return us


def offset_s(text: str) -> int:
    """Seconds east of UTC of `Z`, `+01`, `+0100` or `+01:00`."""
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise TimeFault("no offset from UTC")
    seconds = hours * 3600 + minutes * 60
    return -seconds if text[0] == "-" else seconds


def from_fields(fields: Mapping[str, int], tz: tzinfo | None, *, first: bool = True) -> int:
    """Microseconds since 1970 of year, month, day and what else is given.

    `offset_s` (seconds east of UTC) wins over `tz`; without both the time is naive: TimeFault.
    Second 60, a leap second, is the first moment of the next minute. `first`: of an hour that `tz`
    has twice the first is meant; else such a time, and one that `tz` skips, is UndecidedTime.
    """
    second = fields.get("second", 0)
    try:
        local = datetime(
            fields["year"],
            fields["month"],
            fields["day"],
            fields.get("hour", 0),
            fields.get("minute", 0),
            min(second, 59),
            fields.get("us", 0) if second < 60 else 0,
            tzinfo=UTC,  # only until the zone is known
        )
    except ValueError:
        raise TimeFault("no such day or time of day") from None
    if second > 60:
        raise TimeFault("no such second")
    offset = fields.get("offset_s")
    if offset is None:
        if tz is None:
            raise TimeFault("a time without a zone; the definition names no `zone`")
        found = local.replace(tzinfo=tz).utcoffset()
        if not first and found != local.replace(tzinfo=tz, fold=1).utcoffset():
            raise UndecidedTime("its zone has this time of day twice on that day, or not at all")
        offset = 0 if found is None else int(found.total_seconds())
    us = (local - EPOCH) // ONE_US
    return within(us + (second // 60) * 1_000_000 - offset * 1_000_000)

"""Times as providers write them, read and printed as integer microseconds since 1970 in UTC.

Nothing here is a float. What a notation shows beyond microseconds is cut off. A time without a zone
is refused unless the definition names one; of an hour that a zone has twice the first is meant, or
the time is refused, as the reader is asked for.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Context, Decimal, InvalidOperation
from enum import StrEnum
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from schemas.definitions.problems import NotationError, closest
from schemas.definitions.time_fields import EPOCH, ONE_US, from_fields, offset_s, within
from schemas.definitions.time_fields import TimeFault as TimeFault
from schemas.definitions.time_fields import UndecidedTime as UndecidedTime
from schemas.definitions.time_patterns import TimePattern, compile_pattern

_EXACT = Context(prec=60)
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?)?"
    r" ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)


class TimeKind(StrEnum):
    """How a provider writes a time."""

    RFC3339 = "rfc3339"  # seconds; read with any fraction
    RFC3339_MS = "rfc3339_ms"  # milliseconds
    UNIX_S = "unix_s"  # a number of seconds
    UNIX_MS = "unix_ms"  # a number of milliseconds
    UNIX_US = "unix_us"  # a number of microseconds
    UNIX_NS = "unix_ns"  # a number of nanoseconds, read to the microsecond
    PATTERN = "pattern"  # strptime-like, with %3f and %6f


_PER_SECOND: Final = {
    TimeKind.UNIX_S: 1,
    TimeKind.UNIX_MS: 1_000,
    TimeKind.UNIX_US: 1_000_000,
    TimeKind.UNIX_NS: 1_000_000_000,
}


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A time's notation; `pattern` only with PATTERN."""

    kind: TimeKind
    pattern: str | None = None

    @property
    def unit_us(self) -> int:
        """The smallest step that the notation can print, in microseconds."""
        if self.kind is TimeKind.PATTERN:
            return _compiled(self).unit_us
        if self.kind in (TimeKind.RFC3339, TimeKind.UNIX_S):
            return 1_000_000
        return 1 if self.kind in (TimeKind.UNIX_US, TimeKind.UNIX_NS) else 1_000


RFC3339: Final = TimeFormat(TimeKind.RFC3339)


def parse_format(text: str) -> TimeFormat:
    """The format that a definition names. Raises NotationError."""
    if "%" in text:
        compile_pattern(text)
        return TimeFormat(TimeKind.PATTERN, text)
    names = [kind.value for kind in TimeKind if kind is not TimeKind.PATTERN]
    if text not in names:
        near = closest(text, names)
        advice = f"Write {', '.join(names)} or a pattern such as `%Y-%m-%d %H:%M:%S.%3fZ`."
        raise NotationError(
            f'"{text}" is no format of times', (f"Did you mean `{near}`? " if near else "") + advice
        )
    return TimeFormat(TimeKind(text))


def parse_zone(text: str) -> str:
    """The name of an IANA zone. Raises NotationError."""
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError):
        raise NotationError(
            f'"{text}" is no time zone', "Write a name such as `Europe/Berlin`."
        ) from None
    return text


def parse_time(value: object, time_format: TimeFormat = RFC3339, zone: str | None = None) -> int:
    """Microseconds since 1970. Raises TimeFault."""
    return time_reader(time_format, zone)(value)


@lru_cache(maxsize=256)
def time_reader(
    time_format: TimeFormat = RFC3339, zone: str | None = None, *, first: bool = True
) -> Callable[[object], int]:
    """A function that reads one provider's times; it raises TimeFault.

    `first`: of an hour that `zone` has twice the first is meant; else UndecidedTime is raised.
    """
    tz: tzinfo | None = None if zone is None else ZoneInfo(zone)
    if time_format.kind in _PER_SECOND:
        per_second = _PER_SECOND[time_format.kind]
        return lambda value: _from_number(value, per_second)
    if time_format.kind is TimeKind.PATTERN:
        pattern = _compiled(time_format)
        return lambda value: from_fields(pattern.read(_text(value)), tz, first=first)
    return lambda value: _from_iso(_text(value), tz, first=first)


def print_time(us: int, time_format: TimeFormat = RFC3339, zone: str | None = None) -> str | int:
    """The time as the provider is asked for it: a number for the unix formats, else a text.

    Patterns without a zone of their own are printed in `zone`. Raises ValueError for a time between
    two steps of the notation, since to round it would ask for something else.
    """
    if us % time_format.unit_us:
        raise ValueError(f"{us} us is between two steps of {time_format.unit_us} us")
    if time_format.kind in _PER_SECOND:
        return us * _PER_SECOND[time_format.kind] // 1_000_000
    moment = EPOCH + timedelta(microseconds=us)
    if time_format.kind is TimeKind.PATTERN:
        pattern = _compiled(time_format)
        return pattern.print(
            moment if zone is None or pattern.utc else moment.astimezone(ZoneInfo(zone))
        )
    precision = "seconds" if time_format.kind is TimeKind.RFC3339 else "milliseconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def is_ambiguous(time_format: TimeFormat, zone: str) -> bool:
    """Whether times are printed without an offset in a zone that changes its clocks."""
    if time_format.kind is not TimeKind.PATTERN or _compiled(time_format).utc:
        return False
    months = (
        EPOCH.replace(year=2026, month=month).astimezone(ZoneInfo(zone)) for month in range(1, 13)
    )
    return len({moment.utcoffset() for moment in months}) > 1


def _compiled(time_format: TimeFormat) -> TimePattern:
    if time_format.pattern is None:
        raise ValueError("a format of kind pattern has a pattern")
    return compile_pattern(time_format.pattern)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TimeFault("a text was expected")
    return value


def _from_number(value: object, per_second: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return within(value * 1_000_000 // per_second)
    if not isinstance(value, float | str | Decimal):
        raise TimeFault("a number was expected")
    try:
        number = Decimal(str(value)) if len(str(value)) <= 40 else Decimal("NaN")
    except InvalidOperation:
        raise TimeFault("a number was expected") from None
    if not number.is_finite() or number.adjusted() > 21:
        raise TimeFault("not a number that is a time")
    us = _EXACT.multiply(number, Decimal(1_000_000) / per_second)
    return within(int(us.to_integral_value("ROUND_FLOOR")))


def _from_iso(text: str, tz: tzinfo | None, *, first: bool) -> int:
    if (
        len(text) in (20, 24, 27)
        and text[4] == text[7] == "-"
        and text[10] == "T"
        and text[-1] == "Z"
    ):
        try:  # the usual shapes, at a third of the cost
            return (datetime.fromisoformat(text) - EPOCH) // ONE_US
        except ValueError:
            pass
    found = _ISO.fullmatch(text)
    if found is None:
        raise TimeFault("not an ISO 8601 time")
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    fields = {
        "year": int(year), "month": int(month), "day": int(day),
        "hour": int(hour or 0), "minute": int(minute or 0), "second": int(second or 0),
        "us": int((fraction or "")[:6].ljust(6, "0")),
    }  # fmt: skip
    if offset is not None:
        fields["offset_s"] = offset_s(offset)
    return from_fields(fields, tz, first=first)

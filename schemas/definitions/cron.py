"""Cron expressions of five fields, and the moments at which they occur in a time zone. Pure.

Where clocks change: an hour field that begins with `*` follows the clock as it runs, so an hour that
comes twice occurs twice and one that is left out does not. Any other names a time of day, and occurs
once: the first time where it comes twice, at the end of the gap where it does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from schemas.definitions.problems import NotationError
from schemas.definitions.time_fields import EPOCH, ONE_US

_MONTHS: Final = dict(zip(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], range(1, 13), strict=True))  # fmt: skip
_DAYS: Final = dict(zip(["sun", "mon", "tue", "wed", "thu", "fri", "sat"], range(7), strict=True))
_FIELDS: Final[tuple[tuple[str, int, int, Mapping[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART = re.compile(r"(?:(\*)|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?")
_ADVICE: Final = "Write minute, hour, day of the month, month and day of the week: `30 5 * * *` is every day at 5:30."
_YEARS_MAX: Final = 28  # after so many years, days of the month and of the week meet as before
_DAY = timedelta(days=1)
_DAY_MINUTES: Final = 1440
_MINUTE_US: Final = 60_000_000


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. Sunday is 0. `either_day`: both day fields are given, one is enough."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    by_clock: bool  # the hour field begins with `*`
    either_day: bool

    def on(self, day: date) -> bool:
        """Whether it occurs on this day of the calendar."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month or of_week) if self.either_day else (of_month and of_week)


def parse_cron(text: str) -> Cron:
    """Raises NotationError for what is not five fields, or never occurs."""
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise NotationError(f'"{text}" has {len(fields)} fields, a schedule has five', _ADVICE)
    minutes, hours, days, months, weekdays = (
        _values(field, *known) for field, known in zip(fields, _FIELDS, strict=True)
    )
    found = Cron(
        text=" ".join(fields),
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        by_clock=fields[1].startswith("*"),
        either_day=not (fields[2].startswith("*") or fields[4].startswith("*")),
    )
    first = date(2000, 1, 1)
    if not any(found.on(first + n * _DAY) for n in range(_YEARS_MAX * 366)):
        raise NotationError(f'"{text}" never occurs', "No month that it names has such a day.")
    return found


@dataclass(frozen=True, slots=True)
class Occurrences:
    """When a cron expression occurs in a zone; microseconds since 1970, UTC."""

    cron: Cron
    zone: str

    def after(self, us: int) -> int:
        """The first occurrence behind `us`."""
        day = self.date(us) - _DAY
        while True:
            found = [at for at in _moments(self.cron, self.zone, day) if at > us]
            if found:
                # An hour that comes twice around midnight makes two days of the calendar overlap.
                following = _moments(self.cron, self.zone, day + _DAY)
                return min(found + [at for at in following if at > us])
            day += _DAY

    def upto(self, us: int) -> int:
        """The last occurrence that is not behind `us`."""
        day = self.date(us) + _DAY
        while True:
            found = [at for at in _moments(self.cron, self.zone, day) if at <= us]
            if found:
                earlier = _moments(self.cron, self.zone, day - _DAY)
                return max(found + [at for at in earlier if at <= us])
            day -= _DAY

    @property
    def longest_us(self) -> int:
        """The longest time between two occurrences, by a clock that never changes."""
        minutes = [60 * hour + minute for hour in self.cron.hours for minute in self.cron.minutes]
        first = date(2000, 1, 1)
        days = [n for n in range(_YEARS_MAX * 366) if self.cron.on(first + n * _DAY)]
        nights = [(b - a) * _DAY_MINUTES + minutes[0] - minutes[-1] for a, b in pairwise(days)]
        return _MINUTE_US * max([*(b - a for a, b in pairwise(minutes)), *nights])

    def date(self, us: int) -> date:
        """The day of the calendar, in the zone."""
        return (EPOCH + us * ONE_US).astimezone(ZoneInfo(self.zone)).date()


@lru_cache(maxsize=512)
def _moments(cron: Cron, zone: str, day: date) -> tuple[int, ...]:
    """The occurrences of one day of the local calendar, in order."""
    if not cron.on(day):
        return ()
    tz = ZoneInfo(zone)
    found: set[int] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=tz)
            first, second = _us(local), _us(local.replace(fold=1))
            if first < second:  # it comes twice
                found |= {first, second} if cron.by_clock else {first}
            elif first == second:
                found.add(first)
            elif not cron.by_clock:  # it does not exist
                found.add(_change(tz, second, first))
    return tuple(sorted(found))


def _us(moment: datetime) -> int:
    return (moment.astimezone(UTC) - EPOCH) // ONE_US


def _change(tz: ZoneInfo, before: int, after: int) -> int:
    """The moment between these two at which the clock is set forward."""
    low, high = before // 1_000_000, after // 1_000_000
    offset = _offset(tz, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _offset(tz, middle) == offset else (middle, high)
    return high * 1_000_000


def _offset(tz: ZoneInfo, second: int) -> timedelta | None:
    return (EPOCH + timedelta(seconds=second)).astimezone(tz).utcoffset()


def _values(field: str, what: str, lowest: int, highest: int, names: Mapping[str, int]) -> set[int]:
    """The numbers that one field allows: `*`, `a`, `a-b`, each with `/step`, joined by commas."""
    found: set[int] = set()
    for part in field.split(","):
        read = _PART.fullmatch(part)
        if read is None:
            raise NotationError(f'"{part}" is no {what}', _ADVICE)
        every, first, last, step = read.groups()
        start = lowest if every else _number(first, what, lowest, highest, names)
        end = highest if every or (step and not last) else start
        if last:
            end = _number(last, what, lowest, highest, names)
        if end < start or step == "0":
            raise NotationError(f'"{part}" holds no {what}', _ADVICE)
        found.update(range(start, end + 1, int(step or 1)))
    return found


def _number(text: str, what: str, lowest: int, highest: int, names: Mapping[str, int]) -> int:
    value = names.get(text)
    if value is None and text.isdecimal():
        value = int(text)
    if value is None or not lowest <= value <= highest:
        raise NotationError(f'"{text}" is no {what}', f"It is {lowest} to {highest}.")
    return value

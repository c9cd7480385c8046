"""Cron expressions against a naive reading of the clock, minute by minute, also where it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.definitions.cron import Occurrences, parse_cron
from schemas.definitions.problems import NotationError

MINUTE = timedelta(minutes=1)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",  # changes by half an hour
    "Pacific/Apia",  # had no 30 December 2011
    "America/Havana",  # changes at midnight
    "Asia/Kathmandu",
]
MOMENTS = st.sampled_from(
    [
        datetime(2024, 3, 31, tzinfo=UTC),
        datetime(2024, 10, 27, tzinfo=UTC),
        datetime(2024, 3, 10, tzinfo=UTC),
        datetime(2024, 11, 3, tzinfo=UTC),
        datetime(2024, 4, 7, tzinfo=UTC),
        datetime(2024, 10, 6, tzinfo=UTC),
        datetime(2011, 12, 30, tzinfo=UTC),
        datetime(2024, 2, 29, tzinfo=UTC),
    ]
)


@dataclass(frozen=True)
class Field:
    """One field: its text, and what it allows."""

    text: str
    values: frozenset[int]


def field(lowest: int, highest: int, fixed: bool = False) -> st.SearchStrategy[Field]:
    """`*`, a step, a range or a list."""
    numbers = st.integers(lowest, highest)
    every = st.just(Field("*", frozenset(range(lowest, highest + 1))))
    steps = st.integers(1, highest).map(
        lambda n: Field(f"*/{n}", frozenset(range(lowest, highest + 1, n)))
    )
    ranges = st.tuples(numbers, numbers, st.integers(1, 5)).map(
        lambda t: Field(
            f"{min(t[:2])}-{max(t[:2])}/{t[2]}",
            frozenset(range(min(t[:2]), max(t[:2]) + 1, t[2])),
        )
    )
    lists = st.lists(numbers, min_size=1, max_size=3).map(
        lambda some: Field(",".join(map(str, some)), frozenset(some))
    )
    return st.one_of(lists, ranges) if fixed else st.one_of(every, every, steps, lists, ranges)


@dataclass(frozen=True)
class Written:
    """An expression as it was made up."""

    fields: tuple[Field, ...]

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.fields)

    def matches(self, local: datetime) -> bool:
        minute, hour, day, month, weekday = self.fields
        if local.minute not in minute.values or local.hour not in hour.values:
            return False
        if local.month not in month.values:
            return False
        of_month = local.day in day.values
        of_week = local.isoweekday() % 7 in {n % 7 for n in weekday.values}
        if day.text.startswith("*") or weekday.text.startswith("*"):
            return of_month and of_week
        return of_month or of_week


EXPRESSIONS = st.tuples(
    field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)
).map(Written)  # fmt: skip


def naive(written: Written, zone: str, first: datetime, last: datetime) -> list[datetime]:
    """Every minute is looked at; `first` and `last` inclusive."""
    tz = ZoneInfo(zone)
    by_clock = written.fields[1].text.startswith("*")
    found = []
    at = first - timedelta(days=2)
    latest = at.astimezone(tz).replace(tzinfo=None) - MINUTE
    while at <= last:
        local = at.astimezone(tz).replace(tzinfo=None)
        if by_clock:
            hit = written.matches(local)
        else:
            # What the clock has not shown before, also what it jumps over just now.
            shown = (local - latest) // MINUTE
            hit = any(written.matches(local - n * MINUTE) for n in range(shown))
            latest = max(latest, local)
        if hit and at >= first:
            found.append(at)
        at += MINUTE
    return found


def us(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS, st.integers(-1440, 1440))
def test_occurrences_are_those_that_a_naive_reading_of_the_clock_finds(
    written: Written, zone: str, around: datetime, minutes: int
) -> None:
    first = around + minutes * MINUTE
    last = first + timedelta(days=2)
    try:
        occurrences = Occurrences(parse_cron(written.text), zone)
    except NotationError:
        assume(False)
    expected = [us(at) for at in naive(written, zone, first, last)]
    found = []
    at = us(first) - 1
    while (at := occurrences.after(at)) <= us(last):
        found.append(at)
    assert found == expected
    for earlier, later in pairwise(found):
        assert occurrences.upto(later) == later
        assert occurrences.upto(later - 1) == earlier


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.integers(0, 10_000))
def test_the_longest_time_between_two_occurrences(written: Written, days: int) -> None:
    try:
        occurrences = Occurrences(parse_cron(written.text), "UTC")
    except NotationError:
        assume(False)
    at = occurrences.after(us(datetime(2001, 1, 1, tzinfo=UTC)) + days * 86_400_000_000)
    longest = occurrences.longest_us
    for _ in range(50):
        following = occurrences.after(at)
        assert following - at <= longest
        at = following


@pytest.mark.parametrize(
    ("text", "day", "expected"),
    [
        # 02:30 does not exist on 31 March: at the end of the gap, once.
        ("30 2 * * *", "2024-03-31", ["01:00"]),
        ("0,30 2 * * *", "2024-03-31", ["01:00"]),
        ("0 2,3 * * *", "2024-03-31", ["01:00"]),
        # 02:30 comes twice on 27 October: the first time.
        ("30 2 * * *", "2024-10-27", ["00:30"]),
        # An hour field that begins with * follows the clock as it runs.
        ("30 * * * *", "2024-10-27", [f"{hour:02d}:30" for hour in range(24)]),
        ("30 */2 * * *", "2024-10-27", ["00:30", "01:30", "03:30"]),
    ],
)
def test_where_the_clocks_change(text: str, day: str, expected: list[str]) -> None:
    occurrences = Occurrences(parse_cron(text), "Europe/Berlin")
    start = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    found: list[str] = []
    at = us(start) - 1
    while len(found) < len(expected) and (at := occurrences.after(at)) < us(start + timedelta(1)):
        found.append(f"{datetime.fromtimestamp(at / 1e6, UTC):%H:%M}")
    assert found == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("30 5 * *", "has 4 fields"),
        ("0 30 5 * * *", "has 6 fields"),
        ("60 * * * *", '"60" is no minute'),
        ("* 24 * * *", '"24" is no hour'),
        ("* * 0 * *", '"0" is no day of the month'),
        ("* * * foo *", '"foo" is no month'),
        ("5-1 * * * *", "holds no minute"),
        ("*/0 * * * *", "holds no minute"),
        ("@daily", "has 1 fields"),
        ("* * ? * *", "is no day of the month"),
        ("0 0 30 2 *", "never occurs"),
        ("0 0 31 4,6,9,11 *", "never occurs"),
    ],
)
def test_what_is_no_schedule(text: str, says: str) -> None:
    with pytest.raises(NotationError) as error:
        parse_cron(text)
    assert says in error.value.message
    assert error.value.advice


def test_names_and_sundays() -> None:
    named = parse_cron("0 12 * JAN-mar mon-fri")
    assert (named.months, named.weekdays) == (frozenset({1, 2, 3}), frozenset({1, 2, 3, 4, 5}))
    assert parse_cron("0 0 * * 5-7").weekdays == frozenset({5, 6, 0})
    assert parse_cron("0 0 29 2 *").on(datetime(2024, 2, 29, tzinfo=UTC).date())

"""Times and lengths: round trips are exact, and nothing is ever a float or a guess."""

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.definitions.durations import (
    format_duration,
    parse_duration_us,
    parse_rate_per_s,
    parse_size_bytes,
)
from schemas.definitions.problems import NotationError
from schemas.definitions.times import (
    TimeFault,
    UndecidedTime,
    parse_format,
    parse_time,
    print_time,
    time_reader,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


FORMATS = [
    "rfc3339",
    "rfc3339_ms",
    "unix_s",
    "unix_ms",
    "%Y-%m-%d %H:%M:%S.%3fZ",
    "%d.%m.%Y %H:%M:%S.%6f %z",
    "%A, %d %B %Y %I:%M:%S %p UTC",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%Y%m%d%H%M%S%fZ",
    "unix_us",
    "unix_ns",
    "%-m/%-d/%Y %-I:%M:%S %p %Z",
    "%a, %-d %b %Y %H:%M:%S %z",
]
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2199, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(MOMENTS, st.sampled_from(FORMATS))
def test_times_round_trip_exactly(moment: datetime, name: str) -> None:
    time_format = parse_format(name)
    us = (moment - EPOCH) // timedelta(microseconds=1)
    us -= us % time_format.unit_us
    printed = print_time(us, time_format)
    assert parse_time(printed, time_format) == us
    assert isinstance(printed, int) == name.startswith("unix")


@given(MOMENTS, st.sampled_from(["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "UTC"]))
def test_local_times_round_trip_where_the_clock_is_not_ambiguous(
    moment: datetime, zone: str
) -> None:
    local = moment.astimezone(ZoneInfo(zone))
    before, after = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    time_format = parse_format("%Y-%m-%dT%H:%M:%S.%6f")
    us = (moment - EPOCH) // timedelta(microseconds=1)
    if before == after and before is not None and before.seconds % 60 == 0:
        assert parse_time(print_time(us, time_format, zone), time_format, zone) == us
    with pytest.raises(TimeFault, match="without a zone"):
        parse_time(print_time(us, time_format, zone), time_format)


@given(MOMENTS, st.sampled_from(["seconds", "milliseconds", "microseconds"]))
def test_iso_is_read_as_python_reads_it(moment: datetime, precision: str) -> None:
    text = moment.isoformat(timespec=precision)
    expected = (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)
    assert parse_time(text) == parse_time(text.replace("+00:00", "Z")) == expected


@pytest.mark.parametrize(
    ("value", "name", "us"),
    [
        ("2024-01-01", "rfc3339", 1_704_067_200_000_000),
        ("2024-01-01T01:00:00.9999999+01:00", "rfc3339", 1_704_067_200_999_999),
        ("2024-01-01t00:00:00z", "rfc3339", 1_704_067_200_000_000),
        ("2016-12-31T23:59:60Z", "rfc3339", 1_483_228_800_000_000),
        (1_704_067_200.123, "unix_s", 1_704_067_200_123_000),
        ("1704067200.1234567", "unix_s", 1_704_067_200_123_456),
        (-1, "unix_ms", -1_000),
        (0.1, "unix_s", 100_000),
        (1_704_067_200_123_456, "unix_us", 1_704_067_200_123_456),
        (1_704_067_200_123_456_789, "unix_ns", 1_704_067_200_123_456),
        ("1704067200123456789.9", "unix_ns", 1_704_067_200_123_456),
        ("0." + "9" * 37, "unix_s", 999_999),
        ("Mon, 1 Jan 2024 01:00:00 +0100", "%a, %-d %b %Y %H:%M:%S %z", 1_704_067_200_000_000),
        ("Mon, 01 Jan 2024 00:00:00 GMT", "%a, %-d %b %Y %H:%M:%S %Z", 1_704_067_200_000_000),
        ("1/1/2024 12:00 AM", "%-m/%-d/%Y %-I:%M %p", 1_704_067_200_000_000),
    ],
)
def test_times_as_providers_write_them(value: object, name: str, us: int) -> None:
    assert parse_time(value, parse_format(name), "UTC") == us


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("2024-02-30T00:00:00Z", "rfc3339"),
        ("2024-01-01T24:00:00Z", "rfc3339"),
        ("2024-01-01T00:00:00", "rfc3339"),
        ("2024-W01-1", "rfc3339"),
        ("20240101T000000Z", "rfc3339"),
        ("2024-01-01T00:00:00+25:00", "rfc3339"),
        ("２０２４-01-01T00:00:00Z", "rfc3339"),
        (1_704_067_200, "rfc3339"),
        (None, "rfc3339"),
        (True, "unix_s"),
        (float("nan"), "unix_s"),
        (float("inf"), "unix_ms"),
        ("1e999999999", "unix_s"),
        (10**30, "unix_s"),
        ("soon", "unix_s"),
        ([], "unix_s"),
        ("2024-01-01 00:00:00.12Z", "%Y-%m-%d %H:%M:%S.%3fZ"),
        ("Foo, 01 Jan 2024 00:00:00 GMT", "%a, %d %b %Y %H:%M:%S GMT"),
        ("01 2024 01 13 PM Z", "%d %Y %m %I %p Z"),
    ],
)
def test_what_is_no_time_is_a_fault_that_repeats_nothing(value: object, name: str) -> None:
    with pytest.raises(TimeFault) as caught:
        parse_time(value, parse_format(name))
    assert str(value) not in str(caught.value)


@given(
    st.one_of(TEXTS, st.floats(), st.integers(), st.none(), st.booleans()), st.sampled_from(FORMATS)
)
def test_no_value_does_more_than_fault(value: object, name: str) -> None:
    with contextlib.suppress(TimeFault):
        assert isinstance(parse_time(value, parse_format(name)), int)


def test_a_time_between_two_steps_is_never_rounded() -> None:
    with pytest.raises(ValueError, match="between two steps"):
        print_time(1_500_000, parse_format("unix_s"))


def test_an_hour_that_a_zone_has_twice_or_never_is_the_first_or_refused() -> None:
    for text, us in (
        ("2026-10-25T02:30:00", 1_792_888_200_000_000),  # summer time first
        ("2026-03-29T02:30:00", 1_774_747_800_000_000),  # the clocks go from 2 to 3
    ):
        assert parse_time(text, zone="Europe/Berlin") == us
        for time_format in ("rfc3339", "%Y-%m-%dT%H:%M:%S"):
            read = time_reader(parse_format(time_format), "Europe/Berlin", first=False)
            with pytest.raises(UndecidedTime):
                read(text)
            assert read(text.replace("T02", "T04")) > us
    offset = time_reader(zone="Europe/Berlin", first=False)("2026-10-25T02:30:00+01:00")
    assert offset == 1_792_891_800_000_000, "who says the offset says which"


@pytest.mark.parametrize(
    "text",
    [
        "%-m%-d%Y",
        "%Y%-m2%d",
        "%y-%m-%d",
        "%Y-%m",
        "%Y-%m-%d %Q",
        "%Y-%m-%d %d",
        "%Y-%m-%d %I",
        "%H:%M",
        "%Y-%m-%d %",
    ],
)
def test_patterns_that_determine_no_moment(text: str) -> None:
    with pytest.raises(NotationError):
        parse_format(text)


@given(st.integers(0, 10**15))
def test_durations_round_trip(us: int) -> None:
    assert parse_duration_us(format_duration(us)) == us


def test_lengths() -> None:
    assert parse_duration_us("500ms") == 500_000
    assert parse_rate_per_s("4500/h") == 1.25
    assert parse_size_bytes("32MiB") == 33_554_432
    for wrong in ("5", "1.5h", "-1s", "1 h", "1w", ""):
        with pytest.raises(NotationError):
            parse_duration_us(wrong)

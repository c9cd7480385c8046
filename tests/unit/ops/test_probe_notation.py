"""How finely times are shown and written, and which records say that they were deleted."""

from __future__ import annotations

import pytest

from ops.probe.notation import fine_time, shown_unit
from ops.probe.tombstones import says_gone
from schemas.definitions.times import parse_format, parse_time

MOMENT = 1_700_000_000_123_456


@pytest.mark.parametrize(
    ("name", "unit", "text"),
    [
        ("rfc3339", 1_000, "2023-11-14T22:13:20.123Z"),
        ("rfc3339", 1, "2023-11-14T22:13:20.123456Z"),
        ("rfc3339_ms", 1, "2023-11-14T22:13:20.123456Z"),
        ("unix_s", 1_000, "1700000000.123"),
        ("unix_ms", 1, "1700000000123.456"),
    ],
)
def test_finer_than_the_format(name: str, unit: int, text: str) -> None:
    time_format = parse_format(name)
    moment = MOMENT - MOMENT % unit
    assert fine_time(moment, time_format, unit) == text
    assert parse_time(text, time_format) == moment


@pytest.mark.parametrize(
    ("value", "name", "unit"),
    [
        ("2024-01-01T00:00:00Z", "rfc3339", 1_000_000),
        ("2024-01-01T00:00:00.120Z", "rfc3339", 1_000),
        ("2024-01-01T00:00:00.120000+02:00", "rfc3339_ms", 1),
        (1_700_000_000, "unix_s", 1_000_000),
        (1_700_000_000.5, "unix_s", 1_000),
        (1_700_000_000_123, "unix_ms", 1_000),
        ("2024-01-01 00:00:00.120Z", "%Y-%m-%d %H:%M:%S.%3fZ", 1_000),
    ],
)
def test_the_step_that_is_shown(value: object, name: str, unit: int) -> None:
    assert shown_unit(value, parse_format(name)) == unit


@pytest.mark.parametrize(
    ("record", "gone"),
    [
        ({"id": 1, "deleted": True}, True),
        ({"id": 1, "deleted": False}, False),
        ({"id": 1, "deleted_at": "2024-01-01"}, True),
        ({"id": 1, "deleted_at": None}, False),
        ({"type": "customer.deleted"}, True),
        ({"id": 1}, False),
        ([1], False),
    ],
)
def test_tombstones_by_their_looks(record: object, gone: bool) -> None:
    assert says_gone(record, "interval", ()) is gone

"""What a person may name as a part of the log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apply.scope import Scope, parse_since, parse_start


def test_times_have_a_zone_or_are_dates() -> None:
    assert parse_since("2026-03-01") == datetime(2026, 3, 1, tzinfo=UTC)
    assert parse_since("2026-03-01T10:00:00+01:00") == datetime(2026, 3, 1, 9, tzinfo=UTC)
    for text in ("2026-03-01T10:00:00", "yesterday", ""):
        with pytest.raises(ValueError, match="write it like"):
            parse_since(text)


def test_a_place_is_a_partition_and_an_offset() -> None:
    assert parse_start("3:120000") == (3, 120_000)
    for text in ("3", "3:", ":3", "-1:2", "a:b", "1:2:3"):
        with pytest.raises(ValueError, match="PARTITION:OFFSET"):
            parse_start(text)


def test_each_part_has_positions_of_its_own() -> None:
    scopes = [
        Scope(), Scope(tenant="a"), Scope(tenant="b"), Scope(start=(0, 1)), Scope(start=(0, 2)),
        Scope(since=datetime(2026, 1, 1, tzinfo=UTC)), Scope(start=(0, 1), tenant="a"),
    ]  # fmt: skip
    assert scopes[0].suffix() == ""
    assert len({scope.suffix() for scope in scopes}) == len(scopes)
    assert Scope(tenant="a b/c").partition_id("s", "t") == "s/t/a%20b%2Fc"
    assert Scope().partition_id("s", "t") is None

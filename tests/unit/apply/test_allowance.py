"""What a sweep may delete without an operator: a share, or a few rows while others stay."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply.allowance import ALWAYS, allowed

TENTH = Decimal("0.1")
rows = st.integers(0, 10_000)
shares = st.decimals(0, 1, places=3)


@pytest.mark.parametrize(
    ("absent", "living", "goes"),
    [
        (0, 0, True),
        (0, 5, True),
        (1, 2, True),  # the first delete of a small table
        (3, 4, True),
        (3, 10, True),
        (4, 10, False),  # more than a few, and more than a tenth
        (4, 40, True),
        (5, 40, False),
        (1, 1, False),  # nothing would be left
        (3, 3, False),
    ],
)
def test_of_a_tenth(absent: int, living: int, goes: bool) -> None:
    assert allowed(absent, living, TENTH) is goes


def test_none_at_all_asks_about_every_row() -> None:
    assert not allowed(1, 1000, Decimal(0))
    assert allowed(0, 1000, Decimal(0))


def test_all_asks_about_none() -> None:
    assert allowed(3, 3, Decimal(1))
    assert allowed(1000, 1000, Decimal(1))


@given(rows, rows, shares)
def test_more_than_both_is_held(absent: int, living: int, share: Decimal) -> None:
    if absent > ALWAYS and absent > share * living:
        assert not allowed(absent, living, share)


@given(rows, rows, shares)
def test_what_the_share_allows_goes(absent: int, living: int, share: Decimal) -> None:
    if absent <= share * living:
        assert allowed(absent, living, share)


@given(st.integers(1, 10_000), shares)
def test_a_table_is_never_emptied_unasked(living: int, share: Decimal) -> None:
    assert allowed(living, living, share) is (share == 1)

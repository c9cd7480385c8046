"""How much of the log is held at once, however large its records are."""

from __future__ import annotations

import pytest

from schemas.log.reader import fitting


@pytest.mark.parametrize("size", [1, 100, 75_000, 1_000_000, 20_000_000])
def test_records_held_at_once_stay_within_some_megabytes(size: int) -> None:
    wanted = fitting([size] * 10)
    assert wanted == 1 or wanted * size <= 4_000_000
    assert wanted >= 1
    assert (wanted + 1) * size > 4_000_000, "no fewer than fit"


def test_what_has_no_size_says_nothing() -> None:
    assert fitting([]) == fitting([0, 0]) == 20

"""A provider whose `Date` runs ahead of the clock that stamps its rows, now and then or for ever.

Polls are no further apart than the lookback: the state does not say which clock an earlier end came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from ingest.plans.protocol import Now
from tests.property.plan_intervals import LOOKBACK, SETTLE, driver_of, stable
from tests.property.plan_source import S, Source

HOUR = 3_600 * S


@dataclass
class Ahead(Source):
    """`now` stamps the rows and is the local clock, too; answers tell a time that is `ahead` of it."""

    ahead: int = 0

    def clock(self) -> Now:
        now = super().clock()
        return Now(now.local, now.server + self.ahead, now.server_max + self.ahead)


polls = st.tuples(
    st.integers(1, (LOOKBACK - SETTLE) // S - 2),  # seconds since the last one
    st.sampled_from([0, 0, 30 * S, 600 * S, 2 * HOUR]),
    st.booleans(),
)


@given(st.lists(polls, min_size=1, max_size=30), st.booleans())
@example([(50, 2 * HOUR, False), (50, 2 * HOUR, False), (50, 0, False)], False)
@example([(50, 120 * S, True), *[(50, 0, False)] * 4], True)
def test_no_row_is_passed_over_whatever_the_answers_say_of_the_time(
    made: list[tuple[int, int, bool]], desc: bool
) -> None:
    source = Ahead(pages=stable(), order=-1 if desc else 0)
    driver = driver_of(source)
    for seconds, ahead, crash in made:
        for step in range(4):  # rows all along the way
            source.add(source.now)
            source.now += seconds * S // 4 if step < 3 else seconds * S - 3 * (seconds * S // 4)
        source.ahead = ahead
        driver.poll()
        driver.keep()
        if crash:
            driver.crash()
        due = {f.number for f in source.facts if f.stamp < source.now - SETTLE - 2 * S}
        assert due <= driver.seen()


@pytest.mark.parametrize("ahead", [0, 30 * S, 2 * HOUR])
def test_only_a_clock_in_doubt_costs_requests(ahead: int) -> None:
    source = Ahead(pages=stable(), ahead=ahead)
    driver = driver_of(source)
    driver.poll()
    for _ in range(3):
        source.now += 60 * S
        driver.poll()
    [start, end] = [driver.asked[-1].values[name] for name in ("start", "end")]
    assert isinstance(start, int) and isinstance(end, int)
    behind = 0 if ahead < HOUR else ahead
    assert 58 * S + LOOKBACK + behind <= end - start <= 60 * S + LOOKBACK + behind + 2 * SETTLE


def test_what_the_provider_has_purged_is_not_looked_for_again_and_again() -> None:
    source = Ahead(pages=stable(), ahead=50 * HOUR, retention=24 * HOUR)
    driver = driver_of(source, retention=24 * HOUR, start_us=None)
    source.retention = None  # it keeps more than it says, by the clock of its rows
    for _ in range(5):
        driver.poll()
        source.now += 60 * S
    assert driver.marks("gap") == []

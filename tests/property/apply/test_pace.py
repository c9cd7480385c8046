"""Rate, lag and throttle of a replay, whatever the readings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apply.pace import LONGEST_S, Lag, Rate, Throttle

LAGS = st.lists(st.floats(0, 1000), min_size=1, max_size=60)
STEPS = st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 10_000)), min_size=2, max_size=60)


@given(lags=LAGS, bound_s=st.floats(0.1, 100), least_s=st.floats(0, 5))
def test_the_rest_stays_in_its_bounds(lags: list[float], bound_s: float, least_s: float) -> None:
    throttle = Throttle(bound_s, least_s)
    for lag_s in lags:
        before = throttle.rest_s
        rest_s = throttle.heard(lag_s)
        assert least_s <= rest_s <= LONGEST_S
        if lag_s > bound_s:
            assert rest_s > before or rest_s == LONGEST_S
        elif lag_s > bound_s / 2:
            assert rest_s == before  # neither faster nor slower, or it would swing
        else:
            assert rest_s < before or rest_s == least_s


@given(bound_s=st.floats(0.1, 100), least_s=st.floats(0, 5))
def test_it_backs_off_within_seconds_and_comes_back(bound_s: float, least_s: float) -> None:
    throttle = Throttle(bound_s, least_s)
    for _ in range(8):
        throttle.heard(bound_s * 2)
    assert throttle.rest_s >= min(LONGEST_S, 10)
    for _ in range(20):
        throttle.heard(0)
    assert throttle.rest_s == least_s


@given(
    moves=st.lists(
        st.tuples(st.floats(0.01, 10), st.integers(0, 100), st.integers(0, 100)),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_the_lag_is_the_age_of_the_oldest_end_that_live_has_not_reached(
    moves: list[tuple[float, int, int]],
) -> None:
    lag, now, end, at = Lag(), 0.0, 0, 0
    ends: list[tuple[float, int]] = []
    for wait_s, grown, applied in moves:
        now, end = now + wait_s, end + grown
        at = min(end, at + applied)
        ends.append((now, end))
        beyond = [when for when, seen in ends if seen > at]
        assert lag.seconds(now, {0: end}, {0: at}) == (now - beyond[0] if beyond else 0.0)
    assert lag.seconds(now, {0: end}, {}) == 0.0  # nobody applies


@given(steps=STEPS)
def test_rate_and_time_left_agree(steps: list[tuple[float, int]]) -> None:
    rate, now, done = Rate(), 0.0, 0
    for wait_s, more in steps:
        now, done = now + wait_s, done + more
        rate.add(now, done)
    per_s, total = rate.per_s(), done + 1000
    assert per_s is not None and per_s >= 0
    left_s = rate.left_s(total)
    assert (left_s is None) == (per_s == 0)
    if left_s is not None:
        assert abs(left_s * per_s - 1000) < 1
    assert rate.left_s(0) in (None, 0)


def test_nothing_is_said_of_one_reading() -> None:
    rate = Rate()
    assert rate.left_s(10) is None
    rate.add(1.0, 5)
    assert (rate.per_s(), rate.left_s(10)) == (None, None)

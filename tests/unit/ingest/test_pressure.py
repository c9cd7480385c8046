"""The adaptive concurrency: one more after good answers, a share after trouble, never out of bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest import pressure
from ingest.pressure import RAISE_AFTER, SETTLE_ANSWERS, Pressure


def settled(most: int, usual_s: float = 0.1) -> Pressure:
    state = pressure.fresh(most)
    for _ in range(SETTLE_ANSWERS):
        state = pressure.answered(state, usual_s, 0.0)
    return state


def test_it_begins_with_what_is_declared() -> None:
    assert pressure.fresh(8).allowed == 8


def test_a_refusal_halves_it_and_good_answers_raise_it_one_by_one() -> None:
    state = pressure.refused(settled(8), 0.1, 10.0)
    assert state.allowed == 4
    for _ in range(RAISE_AFTER):
        assert state.allowed == 4
        state = pressure.answered(state, 0.1, 11.0)
    assert state.allowed == 5


def test_one_wave_of_refusals_counts_once() -> None:
    state = settled(16)
    for _ in range(16):  # all that were in flight
        state = pressure.refused(state, 0.2, 10.0)
    assert state.allowed == 8
    assert pressure.refused(state, 0.2, 10.9).allowed == 8
    assert pressure.refused(state, 0.2, 11.0).allowed == 4


def test_answers_that_became_slow_lower_it_less() -> None:
    state = settled(8, usual_s=0.2)
    assert pressure.answered(state, 0.65, 1.0).allowed == 8, "slower, but not by much"
    assert pressure.answered(state, 0.75, 1.0).allowed == 6


def test_the_first_answers_only_tell_what_is_usual() -> None:
    state = pressure.fresh(8)
    for elapsed_s in (0.1, 9.0, 0.1):
        state = pressure.answered(state, elapsed_s, 1.0)
    assert state.allowed == 8


def test_a_provider_that_stays_slow_becomes_the_usual() -> None:
    state, now_s = settled(8), 0.0
    for _ in range(600):
        now_s += 4.0
        state = pressure.answered(state, 2.0, now_s)
    assert state.allowed == 8


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["answered", "refused"]), st.floats(0, 120), st.floats(0, 30)
    ),
    max_size=200,
)  # fmt: skip


@given(st.integers(1, 64), EVENTS)
def test_it_stays_within_its_bounds_and_rises_by_one(
    most: int, events: list[tuple[str, float, float]]
) -> None:
    state, now_s = pressure.fresh(most), 0.0
    for kind, elapsed_s, later_s in events:
        now_s += later_s
        step = pressure.answered if kind == "answered" else pressure.refused
        after = step(state, elapsed_s, now_s)
        assert 1 <= after.allowed <= most
        assert after.allowed <= state.allowed + 1
        if kind == "refused":
            assert after.allowed <= state.allowed
            if now_s >= state.cool_until_s and state.allowed > 1:
                assert after.allowed < state.allowed
        state = after


@given(st.integers(1, 64), EVENTS)
def test_without_trouble_it_always_comes_back(
    most: int, events: list[tuple[str, float, float]]
) -> None:
    state, now_s = pressure.fresh(most), 0.0
    for kind, elapsed_s, later_s in events:
        now_s += later_s
        step = pressure.answered if kind == "answered" else pressure.refused
        state = step(state, elapsed_s, now_s)
    for _ in range(most * RAISE_AFTER):
        state = pressure.answered(state, 0.0, now_s)
    assert state.allowed == most

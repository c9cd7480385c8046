"""Coverage under any sequence of statements: no overlap, nothing said is lost or made worse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apply.coverage import State, Stretch, add

START = datetime(2026, 1, 1, tzinfo=UTC)
STATES: tuple[State, ...] = ("complete", "complete_with_errors", "failed", "gap")
SEARCHED = ("complete", "complete_with_errors")


def stretch(begin: int, length: int, state: State, run: str | None) -> Stretch:
    errors = 1 if state == "complete_with_errors" else 0
    pages = 2 if state in SEARCHED else 0
    return Stretch(
        START + timedelta(hours=begin), START + timedelta(hours=begin + length), state, run,
        None, pages, pages * 10, errors, START,
    )  # fmt: skip


statements = st.lists(
    st.tuples(
        st.builds(
            stretch, st.integers(0, 20), st.integers(1, 8), st.sampled_from(STATES),
            st.sampled_from([None, None, "run-1"]),
        ),
        st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


def hours(one: Stretch) -> set[int]:
    begin = (one.start - START) // timedelta(hours=1)
    return set(range(begin, begin + (one.end - one.start) // timedelta(hours=1)))


def by_hour(known: list[Stretch]) -> dict[int, State]:
    found: dict[int, State] = {}
    for one in known:
        for hour in hours(one):
            assert hour not in found, "two stretches overlap"
            found[hour] = one.state
    return found


def after(said: list[tuple[Stretch, bool]]) -> list[Stretch]:
    known: list[Stretch] = []
    for one, searched in said:
        known = add(known, one, searched=searched)
    return known


@given(statements)
def test_every_hour_that_was_spoken_of_has_one_state(said: list[tuple[Stretch, bool]]) -> None:
    known = after(said)
    assert set(by_hour(known)) == set().union(*(hours(one) for one, _ in said))
    assert known == sorted(known, key=lambda one: one.start)


@given(statements)
def test_a_searched_hour_stays_searched(said: list[tuple[Stretch, bool]]) -> None:
    known: list[Stretch] = []
    for one, searched in said:
        before = by_hour(known)
        known = add(known, one, searched=searched)
        now = by_hour(known)
        for hour, state in before.items():
            if state in SEARCHED:
                assert now[hour] in SEARCHED
                if not searched or one.state not in SEARCHED:
                    assert now[hour] == state
            if state == "gap":
                assert now[hour] != "failed"


@given(statements)
def test_a_search_decides_about_all_of_its_stretch(said: list[tuple[Stretch, bool]]) -> None:
    known = after(said)
    search = stretch(5, 6, "complete_with_errors", None)
    now = by_hour(add(known, search))
    assert {now[hour] for hour in hours(search)} == {"complete_with_errors"}


@given(statements)
def test_neighbours_that_say_the_same_are_one(said: list[tuple[Stretch, bool]]) -> None:
    known = after(said)
    for one, other in pairwise(known):
        assert one.end < other.start or (one.state, one.run) != (other.state, other.run)


def test_counts_add_up_over_lookbacks() -> None:
    first, again = stretch(0, 4, "complete", None), stretch(3, 4, "complete", None)
    (one,) = add(add([], first), again)
    assert (one.pages, one.records, one.end) == (4, 40, again.end)

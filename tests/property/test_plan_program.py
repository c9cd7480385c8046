"""The durable side of a program: pages are counted, passes are fresh, a state is kept or dropped."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace

from ingest.plans.program import ProgramPlan
from ingest.plans.protocol import Now, Page
from schemas.records import PlanState


def now(seconds: int) -> Now:
    return Now(seconds * 10**6, seconds * 10**6, seconds * 10**6)


Parts = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=6)


@given(runs=st.lists(st.tuples(Parts, st.booleans()), max_size=4))
def test_a_walk_names_every_page_of_its_pass_and_no_other(
    runs: list[tuple[list[tuple[int, int]], bool]],
) -> None:
    nonces = (f"n{number}" for number in itertools.count())
    plan = ProgramPlan("singer", "h", "a/b", lambda: next(nonces))
    state = plan.adopt(None)
    used: set[tuple[str, int]] = set()
    for number, (pages, ends) in enumerate(runs, 1):
        state = plan.begin(state, now(number))
        logged: list[tuple[int, int]] = []
        pass_ = ""
        for records, parts in pages:
            ask = plan.next(state, now(number))
            pass_ = ask.pass_
            step = plan.take(ask, Page(records=records, at=now(number), parts=parts))
            assert step.log == (records > 0)
            if step.log:
                assert (ask.pass_, ask.page) not in used
                used.add((ask.pass_, ask.page))
                logged.append((records, parts))
            state = step.state
        assert state.walk is not None
        assert len(state.walk.passes) == bool(logged)
        for named in state.walk.passes:
            assert (named.pass_, named.first, named.last) == (pass_, 1, len(logged))
            assert named.records == sum(records for records, _ in logged)
            assert named.parts == sum(parts for _, parts in logged)
            assert named.parts_max == max(parts for _, parts in logged)
        if ends:
            step = plan.complete(state)
            assert [mark.kind for mark in step.marks] == ["caught_up"]
            assert (step.state.walk, step.state.polled_at) == (None, number * 10**6)
            state = step.state
        else:
            state = plan.adopt(state)  # interrupted, perhaps by a crash


def test_another_definition_begins_without_the_old_state() -> None:
    plan = ProgramPlan("python", "new", "a/b", lambda: "n")
    old = PlanState(definition_hash="old", state=b"position", polled_at=5)
    assert plan.adopt(old) == PlanState(definition_hash="new")
    same = replace(old, definition_hash="new")
    assert plan.adopt(same) == same

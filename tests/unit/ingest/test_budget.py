"""When `--once` stops asking, and what it calls unfinished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.budget import (
    SHUTDOWN_S,
    Deadline,
    Once,
    Tail,
    Tails,
    blocked,
    reserve_s,
    unfinished,
)
from ingest.committer import PERSIST_KEPT, Head, Transaction, checkpoints, head_of
from ingest.emission import Emission, StreamState
from schemas.records import Blocked, OpenInterval, PlanState, Walk

S = 1_000_000
DONE = StreamState(plans={"interval": PlanState(definition_hash="h")})


def plan(**changes: object) -> StreamState:
    return StreamState(plans={"p": PlanState(definition_hash="h", **changes)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "due_at", "left"),
    [
        (None, 9 * S, True),
        (DONE, 9 * S, False),
        (DONE, 5 * S, True),
        (StreamState(not_before=6 * S), 9 * S, True),
        (StreamState(not_before=4 * S), 9 * S, False),
        (StreamState(blocked=Blocked("x", 1, "y")), 9 * S, False),
        (StreamState(blocked=Blocked("x", 1, "y")), 1 * S, False),
        (plan(walk=Walk(scope="s")), 9 * S, True),
        (plan(open=[OpenInterval(start="a", end="b", reason="new")]), 9 * S, True),
        (plan(tombstone_due=["s1"]), 9 * S, True),
    ],
)
def test_what_is_unfinished(state: StreamState | None, due_at: int, left: bool) -> None:
    assert unfinished(state, due_at, 5 * S) is left


def test_what_is_blocked_needs_an_operator_unless_he_paused_it() -> None:
    assert blocked(StreamState(blocked=Blocked("credentials: 401", 1, "set the token")))
    assert not blocked(StreamState(blocked=Blocked("paused by ann: holiday", 1, "resume")))
    assert not blocked(None)


def test_no_request_begins_in_the_reserve() -> None:
    tail = Tail()
    pace = Once(100 * S, 60.0, lambda: reserve_s([15.0], tail.upper_s(), 0.05))
    assert pace.may_ask(144 * S)
    assert not pace.may_ask(145 * S)
    tail.note(30.0, 1.0)
    assert not pace.may_ask(int((160 - 30 - SHUTDOWN_S - 0.04) * S))
    assert pace.may_ask(int((160 - 30 - SHUTDOWN_S - 0.06) * S))


def test_a_wait_is_awaited_only_within_the_budget() -> None:
    pace = Once(100 * S, 60.0, lambda: 10.0)
    assert pace.awaits(left=True, due_at=149 * S, now=110 * S)
    assert not pace.awaits(left=True, due_at=150 * S, now=110 * S)
    assert not pace.awaits(left=False, due_at=120 * S, now=110 * S)
    assert pace.awaits(left=True, due_at=105 * S, now=110 * S)
    assert not pace.awaits(left=False, due_at=105 * S, now=110 * S)


def test_without_a_budget_only_what_is_due_is_done() -> None:
    pace = Once(100 * S, None, lambda: 10.0)
    assert pace.may_ask(10_000 * S)
    assert pace.awaits(left=True, due_at=110 * S, now=110 * S)
    assert not pace.awaits(left=True, due_at=111 * S, now=110 * S)


def test_the_reserve_is_the_configured_one_until_more_is_learnt() -> None:
    assert reserve_s([], 0.0, 0.05) == SHUTDOWN_S + 0.05
    assert reserve_s([10.0, 15.0], 1.0, 0.05) == 15.0
    assert reserve_s([10.0], 6.0, 0.0, fetch_s=5.0) == 11.0 + SHUTDOWN_S


def test_what_was_learnt_leaves_half_of_the_budget_to_ask_in() -> None:
    """One slow day would else end all runs to come: who asks nothing learns nothing better."""
    assert reserve_s([10.0], 50.0, 0.0, fetch_s=9.0, budget_s=60.0) == 30.0
    assert reserve_s([40.0], 50.0, 0.0, fetch_s=9.0, budget_s=60.0) == 40.0, "what is told counts"
    assert reserve_s([10.0], 8.0, 0.0, fetch_s=9.0, budget_s=60.0) == 17.0 + SHUTDOWN_S
    tails = Tails()
    tails.persist.note(70.0)
    assert Deadline(100.0, (10.0,), 0.5, tails, 60.0).last_ask_s == 70.0


def test_checkpoints_remember_the_latest_answers() -> None:
    heads: dict[str, Head] = {}
    for number in range(1, 3 * PERSIST_KEPT):
        taken = tuple(Emission("s/t", (), (), DONE, 1, answer_s=took) for took in (number, 0.0))
        transaction = Transaction("pages", (), {"s/t": DONE}, taken)
        [checkpoint] = checkpoints(transaction, [], heads, "w", number)
        heads["s/t"] = head_of(checkpoint)
    newest = range(2 * PERSIST_KEPT, 3 * PERSIST_KEPT)
    assert checkpoint.answer_s == list(newest), "and nothing of emissions behind no answer"


def test_an_answer_may_come_while_it_can_still_be_stored() -> None:
    tails = Tails()
    deadline = Deadline(100.0, (10.0,), 0.5, tails)
    assert (deadline.last_ask_s, deadline.answer_by_s) == (90.0, 97.5)
    tails.persist.note(3.0)
    assert (deadline.last_ask_s, deadline.answer_by_s) == (90.0, 94.5)
    tails.fetch.note(8.0)
    assert deadline.last_ask_s == 86.5, "a request that takes its time begins earlier"


@given(
    st.lists(st.floats(0, 60), max_size=5),
    st.floats(0, 60),
    st.floats(0, 60),
    st.floats(0, 5),
)
def test_what_is_asked_last_can_take_its_time_and_be_stored(
    configured: list[float], persist_s: float, fetch_s: float, linger_s: float
) -> None:
    tails = Tails()
    tails.persist.note(persist_s)
    tails.fetch.note(fetch_s)
    deadline = Deadline(1000.0, tuple(configured), linger_s, tails)
    assert deadline.last_ask_s + fetch_s <= deadline.answer_by_s + 1e-6
    assert deadline.answer_by_s + persist_s + linger_s + SHUTDOWN_S <= 1000.0 + 1e-6
    assert all(deadline.last_ask_s <= 1000.0 - one for one in configured)

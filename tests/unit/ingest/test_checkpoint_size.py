"""A checkpoint stays below 64 kB: no bound of the plans alone, and not all of them together."""

from __future__ import annotations

import pytest

from ingest.plans.cursor import CursorPlan
from ingest.plans.parents import POSITION_MAX_BYTES, Position, _at
from ingest.plans.protocol import PASS_RANGES_MAX, TOKEN_MAX_BYTES, Ask, Now, Page
from ingest.plans.snapshot import PREVIOUS_PASSES_MAX, given_up
from ingest.plans.walk import Walker
from schemas import codec
from schemas.definitions.source import End, PagesSpec, Turn
from schemas.records import KeptSnapshot, PassRange, PlanState, Walk
from tests.benchmarks.checkpoint_size import worst_checkpoints
from tests.property.test_plans_cursor import spec_of

PASSES = [PassRange(pass_=f"{n}", first=1, last=2, parts=2, records=9) for n in range(64)]
LONG = Walk(scope="parents", passes=PASSES, token="t" * TOKEN_MAX_BYTES)


def test_everything_at_its_bound_is_below_64_kb() -> None:
    sizes = [len(codec.encode(one)) for one in worst_checkpoints()]
    assert len(sizes) == 2 and max(sizes) < 64_000 and min(sizes) > 20_000


@pytest.mark.parametrize("done", [10, 500, 2_000])
@pytest.mark.parametrize("child", [None, Walk(scope="c"), LONG])
def test_a_position_among_parents_stays_in_its_bound(done: int, child: Walk | None) -> None:
    keys = [f"{n:016x}" for n in range(done)]
    walk = _at(Walk(scope="s"), Position(LONG, done=keys, parent="0" * 16, child=child))
    assert walk.token is not None and len(walk.token) <= POSITION_MAX_BYTES
    assert len(LONG.passes) == PASS_RANGES_MAX


def test_snapshots_that_were_given_up_are_forgotten_from_the_oldest_on() -> None:
    kept = [KeptSnapshot(snapshot_id=f"{n}", passes=PASSES, complete=False) for n in range(5)]
    after = given_up(PlanState(definition_hash="h", previous=kept))
    assert [one.snapshot_id for one in after.previous] == ["1", "2", "3", "4"]
    assert sum(len(one.passes) for one in after.previous) <= PREVIOUS_PASSES_MAX


NOW = Now(1_000_000, 1_000_000, 1_000_000)
TOO_LONG = "c" * (TOKEN_MAX_BYTES + 1)


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("following", [None, "t2"])
def test_a_cursor_that_no_checkpoint_could_hold_stalls(
    by_token: bool, following: str | None
) -> None:
    plan = CursorPlan(spec_of(by_token, True, False, None), "s/t", lambda: "p")
    ask = plan.next(plan.begin(plan.adopt(None), NOW), NOW)
    assert isinstance(ask, Ask)
    for cursor, stalls in ((TOO_LONG, True), (TOO_LONG[1:], False)):
        step = plan.take(ask, Page(records=1, at=NOW, next=following, cursor=cursor))
        assert (step.stall is not None and "longer than" in step.stall.reason) is stalls


def test_an_identity_that_no_checkpoint_could_hold_stalls() -> None:
    plan = CursorPlan(spec_of(False, True, True, None), "s/t", lambda: "p")
    ask = plan.next(plan.begin(plan.adopt(None), NOW), NOW)
    assert isinstance(ask, Ask) and ask.probe
    stall = plan.identified(ask, TOO_LONG, None, NOW).stall
    assert stall is not None and "plan.cursor.identity" in stall.unblocked_by


def test_an_id_that_no_checkpoint_could_hold_stalls() -> None:
    walker = Walker(PagesSpec(turn=Turn.LAST_ID, end=End.EMPTY, size=1, stable=True), lambda: "p")
    walk = Walk(scope="s")
    for last_id, said in ((None, "no id"), (TOO_LONG, "longer than")):
        stall = walker.turn(walk, Page(records=1, at=NOW, last_id=last_id)).stall
        assert stall is not None and said in stall.reason
    turned = walker.turn(walk, Page(records=1, at=NOW, last_id=TOO_LONG[1:], content=1))
    assert turned.stall is None and turned.walk.last_id == TOO_LONG[1:]

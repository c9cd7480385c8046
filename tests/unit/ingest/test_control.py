"""What operators' decisions make of a state, and which plan goes when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from ingest.control import is_paused, obey
from ingest.emission import StreamState
from ingest.schedule import NEVER, US, Schedule, changes_due, due_at, snapshot_due
from schemas.records import (
    Blocked,
    Control,
    Done,
    Failed,
    KeptSnapshot,
    OpenInterval,
    PassRange,
    PlanState,
    Walk,
)

INTERVAL = PlanState(
    definition_hash="h",
    complete_before="2024-01-01T00:00:00.000000Z",
    failed=[
        Failed("2024-01-01T00:00:00.000000Z", "2024-01-01T00:00:01.000000Z", "unsplittable"),
        Failed("2024-01-03T00:00:00.000000Z", "2024-01-03T00:00:01.000000Z", "unsplittable"),
    ],
    done=[
        Done("2024-01-01T00:00:01.000000Z", "2024-01-03T00:00:00.000000Z"),
        Done("2024-01-03T00:00:01.000000Z", "2024-01-05T00:00:00.000000Z"),
    ],
    polled_at=100 * US,
)
PASSES = [PassRange(pass_="p", first=1, last=3, parts=3, records=9)]
SNAPSHOT = PlanState(
    definition_hash="s",
    snapshot_id="snap2",
    walk=Walk(scope="snap2", page=4, passes=PASSES),
    polled_at=50 * US,
    previous=[KeptSnapshot(snapshot_id="snap1", passes=PASSES)],
)
STATE = StreamState(source_epoch=3, plans={"interval": INTERVAL, "snapshot": SNAPSHOT})
EVERY = Schedule("interval", 60 * US, 3_600 * US)


def control(action: Any, **more: Any) -> Control:
    return Control(action=action, about="s/t", by="me", note="why", at=7, **more)


def test_a_pause_holds_until_it_is_resumed() -> None:
    paused = obey(STATE, control("pause"))
    assert is_paused(paused)
    assert paused.blocked == Blocked("paused by me: why", 7, "gapless control resume")
    assert due_at(paused, EVERY, {}, 10**9) == NEVER
    assert is_paused(obey(paused, control("reset")))
    resumed = obey(paused, control("resume"))
    assert resumed.blocked is None and resumed.plans == STATE.plans


def test_an_accepted_interval_lets_complete_before_go_on_to_the_next_failed_one() -> None:
    first = INTERVAL.failed[0]
    after = obey(STATE, control("accept_failed", start=first.start, end=first.end))
    plan = after.plans["interval"]
    assert plan.complete_before == INTERVAL.failed[1].start
    assert plan.failed == INTERVAL.failed[1:] and plan.done == INTERVAL.done[1:]
    both = obey(STATE, control("accept_failed")).plans["interval"]
    assert (both.complete_before, both.failed, both.done) == (INTERVAL.done[1].end, [], [])


def test_a_failed_interval_of_a_keyset_is_accepted_by_its_own_name() -> None:
    state = StreamState(plans={"keyset": INTERVAL, "snapshot": SNAPSHOT})
    first = INTERVAL.failed[0]
    words = {"start": first.start, "end": first.end}
    assert obey(state, control("accept_failed", plan="interval", **words)) == state
    for plan in ("keyset", None):
        after = obey(state, control("accept_failed", plan=plan, **words)).plans["keyset"]
        assert after.failed == INTERVAL.failed[1:]


def test_what_is_not_wholly_named_is_not_accepted() -> None:
    first = INTERVAL.failed[0]
    half = control("accept_failed", start="2024-01-01T00:00:00.500000Z", end=first.end)
    assert obey(STATE, half) == STATE


def test_a_reset_begins_again_and_forgets_no_page_that_must_go() -> None:
    after = obey(STATE, control("reset"))
    assert after.source_epoch == 3
    assert set(after.plans) == {"snapshot"}
    snapshot = after.plans["snapshot"]
    assert (snapshot.snapshot_id, snapshot.walk, snapshot.polled_at) == (None, None, None)
    kept = [(one.snapshot_id, one.complete) for one in snapshot.previous]
    assert kept == [("snap1", True), ("snap2", False)]
    only = obey(STATE, control("reset", plan="interval"))
    assert only.plans == {"snapshot": SNAPSHOT}


def test_a_snapshot_can_be_wanted_now() -> None:
    plan = changed(SNAPSHOT, walk=None, snapshot_id=None)
    state = StreamState(plans={"interval": INTERVAL, "snapshot": plan})
    assert snapshot_due(state, EVERY, 100 * US) == (50 + 3_600) * US
    assert snapshot_due(obey(state, control("snapshot_now")), EVERY, 100 * US) == 0


def test_changes_are_due_by_their_schedule_and_at_once_in_the_middle() -> None:
    assert changes_due(StreamState(), EVERY, 0) == 0
    assert changes_due(STATE, EVERY, 120 * US) == 160 * US
    opened = changed(INTERVAL, open=[OpenInterval(start="a", end="b", reason="changes")])
    assert changes_due(StreamState(plans={"interval": opened}), EVERY, 120 * US) == 0
    ahead = changed(INTERVAL, polled_at=10**18)
    assert changes_due(StreamState(plans={"interval": ahead}), EVERY, 120 * US) == 0


def test_the_first_snapshot_waits_for_the_position_of_the_changes() -> None:
    fresh = StreamState(plans={"interval": PlanState(definition_hash="h")})
    assert snapshot_due(fresh, EVERY, 0) == NEVER
    known = StreamState(plans={"interval": INTERVAL})
    assert snapshot_due(known, EVERY, 120 * US) == 0
    assert snapshot_due(StreamState(), Schedule(None, US, US), 0) == 0


@pytest.mark.parametrize(
    ("not_before", "held", "due"),
    [(None, {}, 0), (500 * US, {}, 500 * US), (None, {"interval": 300 * US}, 0)],
)
def test_waits_are_obeyed(not_before: int | None, held: dict[str, int], due: int) -> None:
    state = StreamState(not_before=not_before, plans={"interval": INTERVAL})
    assert due_at(state, EVERY, held, 200 * US) == due
    alone = Schedule("interval", 60 * US, None)
    if held:
        assert due_at(state, alone, held, 200 * US) == 300 * US

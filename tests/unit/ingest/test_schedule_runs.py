"""When a plan is due whose schedule has runs."""

from __future__ import annotations

from ingest.clock import SLACK_US
from ingest.emission import StreamState
from ingest.plans.ranges import to_us
from ingest.schedule import US, Schedule, changes_due, due_at
from schemas.definitions.cron import Occurrences, parse_cron
from schemas.records import Failed, OpenInterval, PlanState, Walk

NIGHTLY = Occurrences(parse_cron("30 5 * * *"), "Europe/Berlin")
SETTLE = 120 * US
SCHEDULE = Schedule("interval", 300 * US, None, NIGHTLY, SETTLE)
DONE = "2026-11-01T04:30:00.000000Z"
NEXT = to_us("2026-11-02T04:30:00.000000Z")


def state_of(**plan: object) -> StreamState:
    return StreamState(plans={"interval": PlanState(definition_hash="h", **plan)})  # type: ignore[arg-type]


def test_the_next_run_is_due_when_it_is_over_and_has_settled() -> None:
    state = state_of(complete_before=DONE, polled_at=to_us(DONE) + 600 * US)
    for now in (to_us(DONE) + 700 * US, NEXT, NEXT + 5 * 86_400 * US):
        assert changes_due(state, SCHEDULE, now) == NEXT + SETTLE + SLACK_US
    assert due_at(state, SCHEDULE, {}, NEXT) == NEXT + SETTLE + SLACK_US


def test_a_poll_that_came_too_early_by_the_providers_clock_does_not_count() -> None:
    """What is due follows from what was asked for, not from when somebody looked."""
    early = state_of(complete_before=DONE, polled_at=NEXT + SETTLE + SLACK_US)
    assert changes_due(early, SCHEDULE, early.plans["interval"].polled_at or 0) <= NEXT + 130 * US
    assert SCHEDULE.pause_us == 60 * US


def test_the_first_run_and_an_open_one_are_due_at_once() -> None:
    assert changes_due(StreamState(), SCHEDULE, NEXT) == 0
    assert changes_due(state_of(), SCHEDULE, NEXT) == 0
    interval = OpenInterval(start=DONE, end="2026-11-02T04:30:00.000000Z", reason="changes")
    assert changes_due(state_of(complete_before=DONE, open=[interval]), SCHEDULE, NEXT) == 0


def test_a_feed_is_asked_once_behind_every_run() -> None:
    """It has no stretches: a poll that began when the run was over has read all of it."""
    schedule = Schedule("cursor", 300 * US, None, NIGHTLY)
    assert changes_due(StreamState(), schedule, NEXT) == 0
    for polled, due in ((to_us(DONE) + 5 * US, NEXT), (NEXT - US, NEXT)):
        plan = PlanState(definition_hash="h", cursor="c", polled_at=polled)
        assert changes_due(StreamState(plans={"cursor": plan}), schedule, polled) == due + SLACK_US
    going = PlanState(definition_hash="h", cursor="c", polled_at=NEXT, walk=Walk(scope="s"))
    assert changes_due(StreamState(plans={"cursor": going}), schedule, NEXT) == 0
    future = PlanState(definition_hash="h", polled_at=NEXT + US)
    assert changes_due(StreamState(plans={"cursor": future}), schedule, NEXT) == 0


def test_what_failed_is_tried_again_before_the_next_run() -> None:
    failed = [Failed(DONE, "2026-11-02T04:30:00.000000Z", "unsplittable")]
    polled = NEXT + 600 * US
    state = state_of(complete_before=DONE, failed=failed, polled_at=polled)
    assert changes_due(state, SCHEDULE, polled + US) == polled + 300 * US

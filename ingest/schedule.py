"""Which plan of a partition id goes next, and when. Pure; times are microseconds, local clock.

Changes go first; a snapshot fills the time between them, one request at a time, so that its marks
never stand beside a change request in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.clock import SLACK_US
from ingest.control import is_paused
from ingest.emission import StreamState
from ingest.plans.ranges import frontier
from schemas.definitions.cron import Occurrences
from schemas.records import BY_TIME, PlanState

US = 1_000_000
NEVER = 2**62
_RUN_PAUSE_US = 60 * US  # the provider's clock may be behind ours when a run should be over


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a stream declares. `changes`: its plan for changes; either may be absent.

    With `occurrences` the changes are asked for when a run is over and has settled.
    """

    changes: str | None
    changes_every_us: int
    snapshot_every_us: int | None
    occurrences: Occurrences | None = None
    settle_us: int = 0

    @property
    def pause_us(self) -> int:
        """How long a plan is left alone that was due and had nothing to ask."""
        if self.occurrences is None:
            return self.changes_every_us
        return min(self.changes_every_us, _RUN_PAUSE_US)


def due_at(state: StreamState, schedule: Schedule, held: Mapping[str, int], now: int) -> int:
    """When the next poll has something to do; `held`: until when a plan that stalled is left alone."""
    if is_paused(state):
        return NEVER
    changes = max(changes_due(state, schedule, now), held.get(schedule.changes or "", 0))
    snapshot = max(snapshot_due(state, schedule, now), held.get("snapshot", 0))
    return max(min(changes, snapshot), state.not_before or 0)


def changes_due(state: StreamState, schedule: Schedule, now: int) -> int:
    """When changes are to be asked for; 0: at once."""
    if schedule.changes is None:
        return NEVER
    plan = state.plans.get(schedule.changes)
    if plan is None or plan.open or plan.walk is not None:
        return 0
    if schedule.occurrences is not None:
        return _run_due(plan, schedule, schedule.occurrences, now)
    return _after(plan, schedule.changes_every_us, now)


def _run_due(plan: PlanState, schedule: Schedule, occurrences: Occurrences, now: int) -> int:
    """When the first run that was not asked for yet is over; what failed is tried again sooner.

    A feed or a program has no stretches of time: a poll that began behind a run has read all of it.
    """
    if schedule.changes not in BY_TIME:
        if plan.polled_at is None or plan.polled_at > now:
            return 0
        return occurrences.after(plan.polled_at) + SLACK_US
    if plan.complete_before is None:
        return 0
    due = occurrences.after(frontier(plan)) + schedule.settle_us + SLACK_US
    return min(due, _after(plan, schedule.changes_every_us, now)) if plan.failed else due


def snapshot_due(state: StreamState, schedule: Schedule, now: int) -> int:
    """When the listing is to go on or to begin; the first one waits for the position of the changes."""
    if schedule.snapshot_every_us is None:
        return NEVER
    if schedule.changes is not None:
        changes = state.plans.get(schedule.changes)
        if changes is None or changes.polled_at is None:
            return NEVER
    plan = state.plans.get("snapshot")
    if plan is None or plan.walk is not None or plan.tombstone_due:
        return 0
    return _after(plan, schedule.snapshot_every_us, now)


def _after(plan: PlanState, every_us: int, now: int) -> int:
    """A time in the future was written by a clock that was wrong: due at once."""
    if plan.polled_at is None or plan.polled_at > now:
        return 0
    return plan.polled_at + every_us

"""Which plan of a partition id goes next, and when. Pure; times are microseconds, local clock.

Changes go first; a snapshot fills the time between them, one request at a time, so that its marks
never stand beside a change request in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.control import is_paused
from ingest.emission import StreamState
from schemas.records import PlanState

US = 1_000_000
NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a stream declares. `changes`: its plan for changes; either may be absent."""

    changes: str | None
    changes_every_us: int
    snapshot_every_us: int | None


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
    return _after(plan, schedule.changes_every_us, now)


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

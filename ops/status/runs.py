"""The runs of a schedule: each with its closed interval, and how far that has been searched. Pure.

Only what is durable counts. Whether the observed pipeline succeeded in a run is for those who read
its records: that can be told once the run is searched, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator

from ops.status.expected import ExpectedRuns
from ops.status.model import PlanStatus, RunStatus, Stretch
from ops.status.parts import micros
from schemas.records import BY_TIME

SHOWN = 3
"""How many of the runs that are over are looked at; those before are part of a backlog."""


def runs_of(declared: ExpectedRuns, plan: PlanStatus | None, now_us: int) -> tuple[RunStatus, ...]:
    """The last runs that are over, oldest first, and the one that comes next.

    `plan`: what is durable of the plan of the changes; None: nothing yet.
    """
    occurrences = declared.occurrences
    ends = [occurrences.after(now_us)]
    while len(ends) <= SHOWN:
        ends.append(occurrences.upto(ends[-1] - 1))
    first = declared.start_us
    return tuple(
        _run(declared, plan, (occurrences.upto(end - 1), end), now_us)
        for end in reversed(ends)
        if first is None or end > first
    )


def _run(
    declared: ExpectedRuns, plan: PlanStatus | None, stretch: tuple[int, int], now_us: int
) -> RunStatus:
    start, end = stretch
    start = start if declared.start_us is None else max(start, declared.start_us)
    due_at = None if declared.deadline_us is None else end + declared.deadline_us
    return RunStatus(
        run_id=declared.named(end),
        start_at=start,
        end_at=end,
        due_at=due_at,
        state=_state(declared, plan, (start, end), due_at, now_us),
    )


def _state(
    declared: ExpectedRuns,
    plan: PlanStatus | None,
    stretch: tuple[int, int],
    due_at: int | None,
    now_us: int,
) -> str:
    start, end = stretch
    if plan is not None:
        if _searched(plan, start, end):
            return "searched"
        if any(a < end and start < b for a, b in _ranges(plan.failed)):
            return "failed"
    if due_at is not None and now_us > due_at:
        return "overdue"
    if now_us < end + declared.settle_us or plan is None:
        return "expected"
    if plan.plan not in BY_TIME:
        return "started" if plan.walk_pages else "expected"
    begun = (*plan.open, *plan.done)
    return "started" if any(a < end and start < b for a, b in _ranges(begun)) else "expected"


def _searched(plan: PlanStatus, start: int, end: int) -> bool:
    """Whether all of the run was searched: below `complete_before`, or in intervals beyond it; of a
    feed or a program by a poll that began when the run was over.
    """
    if plan.plan not in BY_TIME:
        return plan.polled_at is not None and plan.polled_at >= end
    if plan.complete_before is not None:
        start = max(start, min(micros(plan.complete_before), end))
    for a, b in sorted(_ranges(plan.done)):
        if a <= start < b:
            start = b
    return plan.complete_before is not None and start >= end


def _ranges(stretches: tuple[Stretch, ...]) -> Iterator[tuple[int, int]]:
    return ((micros(one.start), micros(one.end)) for one in stretches)

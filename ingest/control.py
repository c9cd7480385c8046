"""What an operator's decision makes of the state of a partition id. Pure."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from ingest.emission import StreamState
from ingest.plans.ranges import advanced, as_done, done_ranges, failed_ranges, to_text, to_us
from ingest.plans.snapshot import given_up
from schemas.records import BY_TIME, Blocked, Control, PlanState

PAUSED = "paused by "


def is_paused(state: StreamState) -> bool:
    """Whether an operator paused this partition id; only `resume` ends that."""
    return state.blocked is not None and state.blocked.reason.startswith(PAUSED)


def obey(state: StreamState, control: Control) -> StreamState:
    """The state after `control`, which is known to concern this partition id."""
    if control.action == "pause":
        reason = f"{PAUSED}{control.by}: {control.note}"
        return replace(state, blocked=Blocked(reason, control.at, "gapless control resume"))
    if control.action == "resume":
        return replace(state, blocked=None, not_before=None)
    if control.action == "reset":
        plans = dict(state.plans)
        for name in state.plans:
            if control.plan in (None, name):
                plans |= _begun_again(name, plans.pop(name))
        return replace(state, plans=plans, blocked=_unless_paused(state), not_before=None)
    if control.action == "snapshot_now":
        return _snapshot_due(state)
    return _accepted(state, control)


def _begun_again(name: str, plan: PlanState) -> dict[str, PlanState]:
    """No state is a fresh one. What snapshots left in the log stays known: it must go one day."""
    if name != "snapshot":
        return {}
    return {name: changed(given_up(plan), polled_at=None)}


def _unless_paused(state: StreamState) -> Blocked | None:
    return state.blocked if is_paused(state) else None


def _snapshot_due(state: StreamState) -> StreamState:
    plan = state.plans.get("snapshot")
    if plan is None:
        return state  # none was ever made: one is due anyway
    return replace(state, plans={**state.plans, "snapshot": changed(plan, polled_at=None)})


def _accepted(state: StreamState, control: Control) -> StreamState:
    """Failed intervals that lie within the named one count as searched from now on."""
    for name in BY_TIME:
        plan = state.plans.get(name)
        if plan is not None and control.plan in (None, name):
            state = replace(state, plans={**state.plans, name: _searched(plan, control)})
    return state


def _searched(plan: PlanState, control: Control) -> PlanState:
    if plan.complete_before is None:
        return plan
    accepted = [f for f in plan.failed if _within(f.start, f.end, control)]
    if not accepted:
        return plan
    rest = [f for f in plan.failed if f not in accepted]
    found = changed(plan, failed=rest)
    stretches = [(to_us(f.start), to_us(f.end)) for f in accepted]
    before, done = advanced(
        to_us(plan.complete_before), [*done_ranges(found), *stretches], failed_ranges(found)
    )
    return changed(found, complete_before=to_text(before), done=as_done(done))


def _within(start: str, end: str, control: Control) -> bool:
    from_start = control.start is None or to_us(control.start) <= to_us(start)
    to_end = control.end is None or to_us(end) <= to_us(control.end)
    return from_start and to_end

"""What becomes of the state of an interval plan: finished, failed, lost, bisected intervals.

Pure functions over `PlanState`; the interval in work is the first of `open`. Marks carry no source
epoch: whoever writes them knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ingest.plans.protocol import OPEN_MAX, Now, Stall, Step, Value
from ingest.plans.ranges import (
    Range,
    advanced,
    as_done,
    done_ranges,
    failed_ranges,
    scope_of,
    to_text,
    to_us,
    with_failed,
)
from ingest.plans.runs import Runs
from schemas.records import (
    Done,
    Failed,
    Mark,
    MarkKind,
    OpenInterval,
    PassRange,
    PlanState,
    Walk,
)

FAILED_MAX = 64
RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Marker:
    """Makes the marks of one partition id's plan by time."""

    partition_id: str
    plan: str = "interval"
    runs: Runs | None = None

    def run_of(self, stretch: Range) -> str | None:
        """The run that a stretch belongs to, if the schedule has runs."""
        return None if self.runs is None else self.runs.of(stretch)

    def values_of(self, stretch: Range) -> dict[str, Value]:
        """The placeholders of that run."""
        return {} if self.runs is None else self.runs.values(stretch)

    def mark(
        self,
        kind: MarkKind,
        stretch: Range,
        at: int,
        *,
        scope: str | None = None,
        passes: Sequence[PassRange] = (),
        reason: str | None = None,
    ) -> Mark:
        """A mark about `stretch`; `at` is the local clock."""
        start, end = to_text(stretch[0]), to_text(stretch[1])
        return Mark(
            kind=kind,
            partition_id=self.partition_id,
            plan=self.plan,
            scope=scope or scope_of(start, end),
            start=start,
            end=end,
            passes=list(passes),
            reason=reason,
            run=self.run_of(stretch),
            at=at,
        )


def range_of(interval: OpenInterval) -> Range:
    """An open interval in microseconds."""
    return to_us(interval.start), to_us(interval.end)


def settled(state: PlanState, stretch: Range, rest: Sequence[OpenInterval]) -> PlanState:
    """`stretch` needs no more asking, `rest` stays open: `complete_before` goes as far as it may."""
    assert state.complete_before is not None
    before, done = advanced(
        to_us(state.complete_before),
        [*done_ranges(state), stretch],
        failed_ranges(state),
    )
    return replace(state, complete_before=to_text(before), done=as_done(done), open=list(rest))


def finished(
    state: PlanState, stretch: Range, marker: Marker, at: int
) -> tuple[PlanState, tuple[Mark, ...]]:
    """The first open interval was searched: `stretch` of it is complete."""
    interval = state.open[0]
    passes = interval.walk.passes if interval.walk else []
    rest = state.open[1:]
    if passes:
        complete = marker.mark(
            "interval_complete",
            stretch,
            at,
            scope=scope_of(interval.start, interval.end),
            passes=passes,
        )
        after = replace(settled(state, stretch, rest), empty=None)
        return after, (*_closed_run(state.empty, marker, at), complete)
    return _caught_up(state, stretch, marker, at)


def _caught_up(
    state: PlanState, stretch: Range, marker: Marker, at: int
) -> tuple[PlanState, tuple[Mark, ...]]:
    """No records: one cumulative mark for all such intervals in a row (of one run of a schedule)."""
    closed: tuple[Mark, ...] = ()
    run = state.empty
    if run is not None:
        start, end = to_us(run.start), to_us(run.end)
        same_run = marker.run_of((start, end)) == marker.run_of(stretch)
        if start <= stretch[1] and stretch[0] <= end and same_run:
            stretch_of_run = (min(start, stretch[0]), max(end, stretch[1]))
        else:
            closed, stretch_of_run = _closed_run(run, marker, at), stretch
    else:
        stretch_of_run = stretch
    after = replace(
        settled(state, stretch, state.open[1:]),
        empty=Done(to_text(stretch_of_run[0]), to_text(stretch_of_run[1])),
    )
    return after, (*closed, marker.mark("caught_up", stretch_of_run, at))


def _closed_run(run: Done | None, marker: Marker, at: int) -> tuple[Mark, ...]:
    """A run of empty intervals is over; the next cumulative mark will take its mark's key."""
    if run is None:
        return ()
    stretch = (to_us(run.start), to_us(run.end))
    return (marker.mark("interval_complete", stretch, at),)


def given_up(state: PlanState, reason: str, marker: Marker, at: int) -> Step:
    """The first open interval cannot be had; the others go on, `complete_before` waits for it.

    What else of a failed interval was being tried again fails with it.
    """
    interval = state.open[0]
    along = [o for o in state.open[1:] if interval.reason == o.reason == RETRY]
    failed = state.failed
    for one in (interval, *along):
        failed = with_failed(failed, Failed(one.start, one.end, reason))
    if len(failed) > FAILED_MAX:
        return Step(
            state,
            stall=Stall(
                f"more than {FAILED_MAX} intervals failed; the last: {reason}",
                "what the failed intervals need; or accept them by name",
            ),
        )
    mark = marker.mark(
        "interval_failed",
        range_of(interval),
        at,
        passes=interval.walk.passes if interval.walk else (),
        reason=reason,
    )
    rest = [o for o in state.open[1:] if o not in along]
    return Step(replace(state, failed=failed, open=rest), marks=(mark,))


def retried(state: PlanState, start: str, width: int) -> PlanState:
    """The failed interval that begins at `start` is open again, no more than `width` of it."""
    old = next(f for f in state.failed if f.start == start)
    middle = to_text(min(to_us(old.end), to_us(start) + width))
    failed = [f for f in state.failed if f is not old]
    if middle < old.end:
        failed = with_failed(failed, Failed(middle, old.end, old.reason))
    interval = OpenInterval(start=start, end=middle, reason=RETRY)
    return replace(state, open=[interval], failed=failed)


def without_gone(state: PlanState, horizon: int, marker: Marker, now: Now) -> Step | None:
    """Failed intervals that the provider has purged meanwhile are gaps now."""
    gone = [f for f in state.failed if to_us(f.end) <= horizon]
    if not gone:
        return None
    marks: tuple[Mark, ...] = ()
    state = replace(state, failed=[f for f in state.failed if f not in gone])
    for old in gone:
        stretch = (to_us(old.start), to_us(old.end))
        why = f"{old.reason}; purged by the provider before it could be fetched"
        state, more = lost(state, stretch, why, marker, now.local)
        marks += more
    return Step(state, marks=marks, lost=True)


def with_walk(state: PlanState, walk: Walk | None) -> PlanState:
    """The first open interval's walk stands here."""
    first = replace(state.open[0], walk=walk)
    return replace(state, open=[first, *state.open[1:]])


def lost(
    state: PlanState, stretch: Range, reason: str, marker: Marker, at: int
) -> tuple[PlanState, tuple[Mark, ...]]:
    """The provider has `stretch` no more, and it was to be read: a gap. `open` stays.

    Also where it was complete before: it was to be read again for late arrivals.
    """
    if stretch[0] >= stretch[1]:
        return state, ()
    mark = marker.mark("gap", stretch, at, reason=reason)
    return settled(state, stretch, state.open), (mark,)


def bisected(
    state: PlanState, middle: int, reason: str, *, newer_first: bool = False
) -> tuple[PlanState, int | None]:
    """The first open interval as two. At most 8 stay open: the newest is dropped, and where it
    began is told, so that it is opened again from there.
    """
    interval = state.open[0]
    halves = [
        OpenInterval(start=interval.start, end=to_text(middle), reason=reason),
        OpenInterval(start=to_text(middle), end=interval.end, reason=reason),
    ]
    if newer_first:
        halves.reverse()
    open_ = [*halves, *state.open[1:]]
    dropped: int | None = None
    if len(open_) > OPEN_MAX:
        newest = max(open_[2:], key=lambda o: o.start)
        open_.remove(newest)
        dropped = to_us(newest.start)
    return replace(state, open=open_), dropped

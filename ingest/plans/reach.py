"""How far one poll of an interval plan reaches, and which stretch it opens next.

Its end is fixed when the poll begins. It begins a `lookback` before the frontier (more while the
provider's clock is in doubt), or at a hole that an earlier poll left; failed intervals are left out
until all else is read.
"""

from __future__ import annotations

from msgspec.structs import replace

from ingest.clock import FAR_US
from ingest.plans.interval_states import retried
from ingest.plans.protocol import Now
from ingest.plans.ranges import (
    Range,
    done_ranges,
    failed_ranges,
    floor_to,
    frontier,
    open_ranges,
    run_end,
    to_text,
    to_us,
)
from ingest.plans.runs import Runs
from ingest.plans.window import horizon
from schemas.definitions.source import IntervalSpec
from schemas.records import OpenInterval, PlanState

AUTO_WIDTH_US = 30 * 86_400_000_000
ALL_US = 10_000 * 366 * 86_400_000_000


class Reach:
    """The stretches of one poll after the other. `origin`: where the past begins, if nobody said so
    and the provider may already have purged what lies there. Not `windowed`: the request says neither
    end, so a part of a stretch costs as much as the whole.
    """

    def __init__(
        self,
        spec: IntervalSpec,
        unit: int,
        retention_us: int | None,
        runs: Runs | None = None,
        *,
        windowed: bool = True,
        first_width: int = AUTO_WIDTH_US,
    ) -> None:
        self._spec, self._unit, self._retention_us = spec, unit, retention_us
        self._runs, self.windowed, self._first_width = runs, windowed, first_width
        self.width_min = max(spec.width_min_us, unit)
        self.began = 0
        self.origin: int | None = None
        self.retry_failed = False
        self._end = self._at = 0
        self._retried: set[str] = set()

    def begin(self, state: PlanState, now: Now) -> PlanState:
        """A poll starts; a state without `complete_before` gets one, where the past begins."""
        spec = self._spec
        self._end = floor_to(now.server - (spec.settle_us or 0), self._unit)
        if self._runs is not None:
            self._end = self._runs.upto(self._end)
        self.began, self.retry_failed = now.local, False
        lookback, lowest = self._lookback(), self._lowest(now)
        if state.complete_before is None:
            if lowest is None:
                lowest = floor_to(self._end - lookback, self._unit)
            if spec.start_us is None:
                self.origin = lowest
            state = replace(state, complete_before=to_text(lowest))
        before = to_us(state.complete_before or "")
        known = done_ranges(state) + failed_ranges(state) + open_ranges(state)
        reached = frontier(state)
        if self._runs is not None and self._end <= reached:
            lookback = 0  # no run is over since: what was read is read again with the next one
        again = self._doubted(state, reached, now) - lookback
        at = floor_to(min(run_end(before, known), again), self._unit)
        self._at = at if lowest is None else max(at, min(lowest, before))
        if self._retried >= {f.start for f in state.failed}:
            self._retried.clear()
        return state

    def width(self, state: PlanState) -> int:
        """How wide the next interval may be."""
        if not self.windowed:
            return ALL_US
        width = state.width_us or self._spec.width_us or self._first_width
        return max(floor_to(width, self._unit), self.width_min)

    def opened(self, state: PlanState, purged: int | None) -> PlanState | None:
        """The next interval; when all is read, one failed interval again; None: nothing is left.

        What the provider has `purged` stays in one interval with what it still has, so that it
        becomes one gap, up to the horizon at the last request.
        """
        stretch = self._stretch(state, purged)
        if stretch is None:
            again = self._again(state)
            if again is None:
                return None
            self._retried.add(again)
            return retried(state, again, self._cut(to_us(again), self.width(state)))
        self._at = stretch[1]
        start, end = to_text(stretch[0]), to_text(stretch[1])
        return replace(state, open=[OpenInterval(start=start, end=end, reason="changes")])

    def back_to(self, dropped: int | None) -> None:
        """An interval that begins here was dropped and has to be opened again."""
        if dropped is not None:
            self._at = min(self._at, dropped)

    def exhausted(self, state: PlanState) -> bool:
        """Whether this poll has nothing left to ask."""
        return not (state.open or self._stretch(state, None) or self._again(state))

    def _stretch(self, state: PlanState, purged: int | None) -> Range | None:
        at, limit = self._at, self._end
        for start, end in sorted(failed_ranges(state)):
            if start <= at < end:
                at = end
            elif start > at:
                limit = min(limit, start)
        kept = at if purged is None else max(at, purged)
        if at >= limit:
            return None
        return at, min(at + self._cut(at, kept + self.width(state) - at), limit)

    def _cut(self, at: int, width: int) -> int:
        """No interval reaches into the next run."""
        return width if self._runs is None else min(width, self._runs.cut(at) - at)

    def _again(self, state: PlanState) -> str | None:
        """The start of a failed interval whose cause may be gone; None if none is to be tried."""
        starts = {f.start for f in state.failed} - self._retried
        return None if self.retry_failed or not starts else min(starts)

    def _lowest(self, now: Now) -> int | None:
        """Where the past begins: `start`, else as far back as the provider keeps it."""
        if self._spec.start_us is not None:
            return floor_to(self._spec.start_us, self._unit)
        return horizon(self._retention_us, now.server_max, self._unit)

    def _doubted(self, state: PlanState, reached: int, now: Now) -> int:
        """How far the provider has certainly been read, where its clock is or was ahead of ours.

        If it is the wrong one, rows come into being before what counts as read: what may have been
        stamped since the last poll is read again. Never so far back that every poll would look for
        what the provider has purged.
        """
        back, ahead = reached, now.server - now.local
        if ahead > FAR_US:
            back = reached - ahead
        if state.polled_at is not None and reached > now.local - (self._spec.settle_us or 0):
            back = min(back, self._end, state.polled_at - (self._spec.settle_us or 0))
        if self._retention_us is None:
            return back
        return max(back, min(reached, self._end - self._retention_us // 2))

    def _lookback(self) -> int:
        """Never so long that every poll would look for what the provider has purged."""
        lookback = self._spec.lookback_us or 0
        return lookback if self._retention_us is None else min(lookback, self._retention_us // 2)

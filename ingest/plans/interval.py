"""The interval plan: changes by the source's time, window by window, oldest first.

Both ends of a window are fixed before its first request, and nothing but a proven end of its pages
completes it. Records are never de-duplicated or dropped here.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from ingest.plans.interval_states import (
    RETRY,
    Marker,
    bisected,
    finished,
    given_up,
    lost,
    range_of,
    with_walk,
    without_gone,
)
from ingest.plans.protocol import (
    RESTARTS_MAX,
    Ask,
    Nonce,
    Now,
    Page,
    Refusal,
    Stall,
    Step,
    Value,
)
from ingest.plans.ranges import (
    Range,
    floor_to,
    scope_of,
    to_text,
    to_us,
)
from ingest.plans.reach import AUTO_WIDTH_US, Reach
from ingest.plans.runs import Runs
from ingest.plans.walk import Outcome, Walker, begun_again, walked
from ingest.plans.window import asked, disorder, horizon, is_beyond, middle, since
from schemas.definitions.source import IntervalSpec
from schemas.records import Mark, OpenInterval, PlanState, Walk

_ROOMY_PAGES = 64
_ON_ITS_WAY_US = 5_000_000
_AGED = "older than upstream_retention when it was asked for"
_REFUSED = "the provider says that it has this stretch no more"


class IntervalPlan:
    """`retention_us`: how long the provider keeps facts; `slow_us`: a first page slower than this
    asks for smaller windows; `by_start`, `by_end`: whether the request says these ends; `runs`: the
    schedule's, if it has any: a poll then reaches to the end of a run. `walker`: if not one over pages.
    `parents`: the plan by time that tells the parents of an interval, if it is not read below all.
    """

    name = "interval"
    first_width_us = AUTO_WIDTH_US

    def __init__(
        self,
        spec: IntervalSpec,
        partition_id: str,
        nonce: Nonce,
        *,
        retention_us: int | None = None,
        slow_us: int | None = None,
        by_start: bool = True,
        by_end: bool = True,
        runs: Runs | None = None,
        walker: Walker | None = None,
        parents: IntervalSpec | None = None,
    ) -> None:
        self._spec, self._parents = spec, parents
        self._marker = Marker(partition_id, self.name, runs)
        self._retention_us = retention_us
        self._slow_us = slow_us
        self._by_start, self._by_end = by_start, by_end
        self._unit = max(spec.granularity_us, spec.format.unit_us)
        self._walker = walker or Walker(spec.request.pages, nonce)
        self._reach = Reach(
            spec,
            self._unit,
            retention_us,
            runs,
            windowed=by_start or by_end,
            first_width=self.first_width_us,
        )
        self._too_wide: int | None = None

    def adopt(self, state: PlanState | None) -> PlanState:
        self._walker.forget()
        self._reach.origin = None
        if state is None or state.definition_hash != self._spec.definition_hash:
            return PlanState(definition_hash=self._spec.definition_hash)
        return state

    def begin(self, state: PlanState, now: Now) -> PlanState:
        """The end of this poll is fixed here."""
        self._too_wide = None
        self._walker.resume()
        return self._reach.begin(state, now)

    def next(self, state: PlanState, now: Now) -> Ask | Step | None:
        limit = self._horizon(now)
        gone = None if limit is None else without_gone(state, limit, self._marker, now)
        if gone is not None:
            return gone
        if not state.open:
            opened = self._reach.opened(state, limit)
            if opened is None:
                return None
            state = opened
        interval = state.open[0]
        walk = interval.walk
        if walk is None or (walk.page == 1 and not walk.passes):
            if limit is not None and to_us(interval.end) <= limit:
                return self._cut(state, limit, now)
            scope = scope_of(interval.start, interval.end)
            walk = walk or Walk(scope=scope, started_at=now.local)
        if self._walker.expired(walk, now):
            return self._expired(state, walk, now)
        return self._ask(state, interval, walk)

    def take(self, ask: Ask, page: Page) -> Step:
        state, interval, walk = _work(ask)
        stall = self._disorder(walk, page)
        if stall is not None:
            return Step(ask.state, stall=stall)
        times = [time for time in page.times if time is not None]
        cap = self._spec.result_cap
        found = max(walked(self._walker.leaf(walk)[1]) + page.records, page.total or 0)
        # What lies behind the window's end was shown, so nothing within it was cut off.
        beyond = self._beyond(times, ask)
        capped = cap is not None and found >= cap and not beyond and page.listing is None
        if capped and self._middle(interval) is not None:
            return self._split(state, "result cap", page.at)
        turned = self._walker.turn(walk, page, beyond=beyond)
        if turned.outcome is Outcome.STALL:
            return Step(ask.state, stall=turned.stall)
        if turned.outcome in (Outcome.BEGIN, Outcome.INCOMPLETE):
            return Step(with_walk(state, None), stall=turned.stall)
        state = with_walk(state, turned.walk)
        if turned.outcome is Outcome.MORE and not (capped and self._walker.divided):
            return dataclasses.replace(self._more(state, page, turned.log), save=turned.save)
        if capped:
            return self._fail(state, "unsplittable: result cap", page.at, turned.log)
        if turned.outcome is Outcome.AGAIN:
            return Step(state, log=turned.log)
        return self._finish(state, page, found, turned.log)

    def refuse(self, ask: Ask, refusal: Refusal, now: Now) -> Step:
        state, interval, walk = _work(ask)
        if refusal is Refusal.TOKEN_EXPIRED:
            return self._expired(state, walk, now)
        if refusal is Refusal.GAP:
            return self._out_of_reach(state, now)
        reason = "too slow" if refusal is Refusal.SLOW else "too many results"
        if self._middle(interval) is None:
            return self._fail(state, f"unsplittable: {reason}", now)
        if refusal is Refusal.SLOW:
            self._too_wide = to_us(interval.end) - to_us(interval.start)
        return self._split(state, reason, now)

    def can_split(self, ask: Ask) -> bool:
        _, interval, walk = _work(ask)
        first = not ask.listing and self._walker.leaf(walk)[1].page == 1
        return first and self._middle(interval) is not None

    # What to ask

    def _horizon(self, now: Now) -> int | None:
        return horizon(self._retention_us, now.server_max, self._unit)

    def _middle(self, interval: OpenInterval) -> int | None:
        if not self._reach.windowed:
            return None
        return middle(range_of(interval), self._unit, self._reach.width_min)

    def _ask(self, state: PlanState, interval: OpenInterval, walk: Walk) -> Ask:
        listing = self._walker.wants_listing(walk)
        stretch = range_of(interval)
        window = asked(stretch, self._spec.bounds, self._unit)
        bounds = self._bounds(window)
        if listing and self._parents is not None:
            bounds = {"start": since(stretch[0], self._parents)}
        return Ask(
            plan=self.name,
            state=with_walk(state, walk),
            scope=walk.scope,
            pass_=self._walker.enter(walk).pass_,
            page=walk.page,
            reason=interval.reason,
            values=bounds | self._marker.values_of(stretch) | self._walker.values(walk),
            link=self._walker.link(walk),
            window=window,
            token=self._walker.leaf(walk)[1].token,
            run=self._marker.run_of(stretch),
            listing=listing,
        )

    def _bounds(self, window: Range) -> dict[str, Value]:
        return {"start": window[0], "end": window[1]}

    # What an answer means

    def _disorder(self, walk: Walk, page: Page) -> Stall | None:
        """Pages that may shift are in order each, not one behind the other: they are walked again."""
        memory, leaf = self._walker.leaf(walk)
        times = [time for time in page.times if time is not None]
        last = memory.last_time if leaf.page > 1 and not self._walker.shifts else None
        stall = disorder(times, last, self._spec.order)
        if stall is None:
            memory.last_time = times[-1] if times else last
        return stall

    def _more(self, state: PlanState, page: Page, log: bool) -> Step:
        """The walk goes on with its next page."""
        return Step(state, log=log)

    def _beyond(self, times: list[int], ask: Ask) -> bool:
        assert ask.window is not None
        return is_beyond(
            times,
            ask.window,
            self._spec.order,
            by_start=self._by_start,
            by_end=self._by_end,
        )

    def _finish(self, state: PlanState, page: Page, found: int, log: bool) -> Step:
        width = self._learnt(state, page, found)
        state, marks, lost = self._closed(state, range_of(state.open[0]), page.at)
        state = replace(state, width_us=width)
        return self._perhaps_over(Step(state, log=log, marks=marks, lost=lost))

    def _closed(
        self, state: PlanState, stretch: Range, now: Now
    ) -> tuple[PlanState, tuple[Mark, ...], bool]:
        """The first open interval is over, `stretch` of it searched; what the provider may have
        purged meanwhile is a gap. With whether anything was lost.
        """
        start, end = stretch
        limit = self._horizon(now)
        gaps: tuple[Mark, ...] = ()
        if limit is not None and start < limit:
            kept = min(limit, end)
            state, gaps = self._lost(state, (start, kept), _AGED, now)
            start = kept
        if start >= end:
            return replace(state, open=state.open[1:]), gaps, bool(gaps)
        state, marks = finished(state, (start, end), self._marker, now.local)
        return state, gaps + marks, bool(gaps)

    def _learnt(self, state: PlanState, page: Page, found: int) -> int | None:
        """The largest width that finishes with headroom: twice as wide while there is plenty."""
        interval, width = state.open[0], self._reach.width(state)
        if not self._reach.windowed:
            return state.width_us
        walk, cap = interval.walk, self._spec.result_cap
        if self._slow_us is not None and page.elapsed_us > self._slow_us:
            self._too_wide = width
            return max(width // 2, self._reach.width_min)
        pages = self._walker.depth(walk) if walk else 1
        roomy = pages <= _ROOMY_PAGES if cap is None else found * 4 <= cap
        bounded = self._too_wide is not None and width * 2 >= self._too_wide
        restarted = walk is not None and walk.restarts > 0
        full = to_us(interval.end) - to_us(interval.start) >= width
        return width * 2 if roomy and full and not bounded and not restarted else state.width_us

    def _split(self, state: PlanState, reason: str, now: Now) -> Step:
        interval = state.open[0]
        at = self._middle(interval)
        assert at is not None
        self._walker.forget()
        width = to_us(interval.end) - to_us(interval.start)
        why = RETRY if interval.reason == RETRY else f"split: {reason}"
        state, dropped = bisected(state, at, why)
        self._reach.back_to(dropped)
        narrower = min(self._reach.width(state), max(width // 2, self._reach.width_min))
        return Step(replace(state, width_us=narrower))

    def _fail(self, state: PlanState, reason: str, now: Now, log: bool = False) -> Step:
        # What failed is tried again in a later poll, not in this one.
        self._reach.retry_failed = True
        self._walker.forget()
        step = given_up(state, reason, self._marker, now.local)
        return self._perhaps_over(dataclasses.replace(step, log=log))

    def _expired(self, state: PlanState, walk: Walk, now: Now) -> Step:
        """The interval begins again; one that outlives its token repeatedly is bisected."""
        renewed = self._walker.renewed(walk)
        if renewed is not None:
            return Step(with_walk(state, renewed))
        restarts = walk.restarts + 1
        if restarts >= 2 and self._middle(state.open[0]) is not None:
            return self._split(state, "its token expires", now)
        if restarts >= RESTARTS_MAX:
            return self._fail(state, "its token expires before its pages end", now)
        self._walker.forget()
        return Step(with_walk(state, begun_again(walk, restarts)))

    def _lost(
        self, state: PlanState, stretch: Range, reason: str, now: Now
    ) -> tuple[PlanState, tuple[Mark, ...]]:
        """Nobody asked for more than the provider had when the stream began: no gap then."""
        after, marks = lost(state, stretch, reason, self._marker, now.local)
        return after, () if stretch[0] == self._reach.origin else marks

    def _cut(self, state: PlanState, limit: int, now: Now) -> Step:
        interval = state.open[0]
        start, end = range_of(interval)
        kept = min(limit, end)
        state, marks = self._lost(state, (start, kept), _AGED, now)
        if start == self._reach.origin:
            self._reach.origin = kept
        rest = state.open[1:]
        if kept < end:
            rest = [
                OpenInterval(start=to_text(kept), end=interval.end, reason=interval.reason),
                *rest,
            ]
        return self._perhaps_over(Step(replace(state, open=rest), marks=marks, lost=bool(marks)))

    def _out_of_reach(self, state: PlanState, now: Now) -> Step:
        """The provider refuses the beginning of the interval: find where its memory begins, the
        newer half first, so that what is refused twice is known to be gone.
        """
        interval = state.open[0]
        start, end = range_of(interval)
        limit = self._horizon(now)
        self._walker.forget()
        if limit is not None and start < limit:
            # The provider's memory moves on while the next question is on its way.
            limit += floor_to(_ON_ITS_WAY_US, self._unit)
            return self._cut(with_walk(state, None), limit, now)
        older = [o for o in state.open[1:] if to_us(o.end) <= start]
        gone = min([start, *(to_us(o.start) for o in older)])
        rest = [o for o in state.open if o not in older]
        at = self._middle(interval)
        state, marks = self._lost(
            replace(state, open=rest),
            (gone, end if at is None else start),
            _REFUSED,
            now,
        )
        if at is None:
            state = replace(state, open=state.open[1:])
        else:
            state, dropped = bisected(state, at, "horizon", newer_first=True)
            self._reach.back_to(dropped)
        return self._perhaps_over(Step(state, marks=marks, lost=bool(marks)))

    def _perhaps_over(self, step: Step) -> Step:
        state = step.state
        if not self._reach.exhausted(state):
            return step
        return dataclasses.replace(step, state=replace(state, polled_at=self._reach.began))


def _work(ask: Ask) -> tuple[PlanState, OpenInterval, Walk]:
    interval = ask.state.open[0]
    assert interval.walk is not None
    return ask.state, interval, interval.walk

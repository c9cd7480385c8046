"""The keyset plan: changes by the source's time, read on behind the last record in order (time, id).

An interval whose pages are turned by a position: `complete_before` is the watermark, the walk of the
open interval holds the time and id read last. Nothing is claimed beyond the record that proves it.
"""

from __future__ import annotations

from msgspec.structs import replace

from ingest.plans.interval import IntervalPlan
from ingest.plans.interval_states import range_of
from ingest.plans.opaque import give
from ingest.plans.positions import out_of_order
from ingest.plans.protocol import Page, Stall, Step, Value
from ingest.plans.ranges import Range, floor_to, to_text
from ingest.plans.reach import ALL_US
from schemas.definitions.times import parse_time
from schemas.records import OpenInterval, PlanState, Walk


class KeysetPlan(IntervalPlan):
    """`by_end`: whether the request says `{until}`; else the order tells when a walk is behind it.

    After `stretch_pages` of one walk, what lies before its position is completed.
    """

    name = "keyset"
    first_width_us = ALL_US
    stretch_pages = 256

    def _bounds(self, window: Range) -> dict[str, Value]:
        """The first page begins before every id; those behind it bring their own position."""
        return {"after.time": window[0], "after.id": "", "until": window[1]}

    def _disorder(self, walk: Walk, page: Page) -> Stall | None:
        spec, after_us = self._spec, None
        if walk.token is not None:
            after_us = parse_time(give(walk.token), spec.format, spec.zone)
        return out_of_order(page.positions, page.times, (walk.token, walk.last_id), after_us)

    def _more(self, state: PlanState, page: Page, log: bool) -> Step:
        """The walk goes on; a long one is cut at its position, and begins anew from there.

        Records that share a time with the position are read again: each interval has its own proof.
        """
        interval = state.open[0]
        start, end = range_of(interval)
        times = [time for time in page.times if time is not None]
        reached = floor_to(times[-1], self._unit) if times else start
        turned = interval.walk.page - 1 if interval.walk else 0
        if turned < self.stretch_pages or not start < reached < end:
            return Step(state, log=log)
        state, marks, lost = self._closed(state, (start, reached), page.at)
        rest = OpenInterval(start=to_text(reached), end=interval.end, reason=interval.reason)
        return Step(replace(state, open=[rest, *state.open]), log=log, marks=marks, lost=lost)

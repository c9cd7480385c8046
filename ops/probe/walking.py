"""Turning the pages of one plan for an experiment, by the same rules as ingest. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest.plans.opaque import keep
from ingest.plans.protocol import Value
from ingest.plans.walk import Outcome, Walker
from ingest.requests import says
from ops.probe.model import Question, Refused, Row, Sight, Steps, ask
from ops.probe.servers import Window
from schemas.definitions.source import (
    HOLD_STILL,
    CursorSpec,
    IntervalSpec,
    KeysetSpec,
    PlanSpec,
    Turn,
)
from schemas.definitions.times import TimeFormat, TimeKind
from schemas.records import Walk

_FINE = {
    TimeKind.RFC3339: (1_000, 1),
    TimeKind.RFC3339_MS: (1,),
    TimeKind.UNIX_S: (1_000, 1),
    TimeKind.UNIX_MS: (1,),
    TimeKind.PATTERN: (),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """One plan of one stream as experiments ask it. `now`: local clock when the probe began."""

    spec: PlanSpec
    now: int

    @property
    def interval(self) -> IntervalSpec:
        assert isinstance(self.spec, IntervalSpec)
        return self.spec

    @property
    def ends(self) -> tuple[str, str]:
        """The placeholders of a window's ends."""
        by_position = isinstance(self.spec, KeysetSpec)
        return ("after.time", "until") if by_position else ("start", "end")

    @property
    def by_start(self) -> bool:
        return says(self.spec, self.ends[0])

    @property
    def by_end(self) -> bool:
        return says(self.spec, self.ends[1])

    @property
    def by_size(self) -> bool:
        return self.size is not None and says(self.spec, "size")

    @property
    def size(self) -> int | None:
        """The page size that is declared."""
        pages = self.spec.request.pages
        return None if pages is None else pages.size

    @property
    def turn(self) -> Turn | None:
        pages = self.spec.request.pages
        return None if pages is None else pages.turn

    @property
    def stable(self) -> bool:
        """Whether it is relied on that rows do not shift between pages."""
        pages = self.spec.request.pages
        return pages is None or pages.stable or pages.turn in HOLD_STILL

    @property
    def unit(self) -> int:
        """The smallest step, in microseconds, that the definition's format can ask."""
        return self.interval.format.unit_us

    def window(self, start: int | None, end: int | None) -> dict[str, Value]:
        """Both ends as placeholders; those that the request does not use are left out. A keyset
        begins before every id of its start.
        """
        values: dict[str, Value] = {}
        if start is not None and self.by_start:
            values[self.ends[0]] = start
            if isinstance(self.spec, KeysetSpec):
                values["after.id"] = ""
        if end is not None and self.by_end:
            values[self.ends[1]] = end
        return values

    def asked(self, values: Mapping[str, Value]) -> Window:
        """The ends that were asked for; None for one that was not, or that is a position."""
        start, end = (values.get(name) for name in self.ends)
        return start if isinstance(start, int) else None, end if isinstance(end, int) else None


def finer_units(time_format: TimeFormat) -> tuple[int, ...]:
    """Units (microseconds) below the format's own in which a time can be written for a try."""
    return _FINE[time_format.kind]


@dataclass(slots=True)
class Walked:
    """The pages of one walk. `done`: it came as far as it was to, and was not cut short by an end of
    the budget; `ended`: the declared end of the pages was reached.
    """

    pages: list[tuple[Question, Sight]] = field(default_factory=list)
    done: bool = False
    ended: bool = False
    refused: Refused | None = None
    stalled: str | None = None

    @property
    def rows(self) -> list[Row]:
        return [row for _, sight in self.pages for row in sight.rows]

    @property
    def order(self) -> list[tuple[str, int | None]]:
        """What tells walks apart: every record with its time, in order."""
        return [(row.id, row.time) for row in self.rows]


def walk(
    scope: Scope,
    values: Mapping[str, Value],
    *,
    pages_max: int,
    size: int | None = None,
    until: Callable[[Sight], bool] | None = None,
    fine: int | None = None,
    into: Walked | None = None,
) -> Steps[Walked]:
    """Asks page by page, at most `pages_max`, or until a page says `until`.

    `into` is filled while it goes on, so that what was seen outlives an end of the budget.
    """
    walked = into or Walked()
    yield from _turned(scope, values, walked, pages_max, size, until, fine)
    walked.done = True
    return walked


def _turned(
    scope: Scope,
    values: Mapping[str, Value],
    walked: Walked,
    pages_max: int,
    size: int | None,
    until: Callable[[Sight], bool] | None,
    fine: int | None,
) -> Steps[None]:
    pages = scope.spec.request.pages
    if pages is not None:
        pages = dataclasses.replace(pages, stable=True, size=size or pages.size)
    walker, at = Walker(pages, lambda: "probe"), Walk(scope="probe")
    base = dict(values)
    while len(walked.pages) < pages_max:
        question = Question(
            scope.spec.plan, {**base, **walker.values(at)}, link=walker.link(at), fine=fine
        )
        answer = yield from ask(question)
        if isinstance(answer, Refused):
            walked.refused = answer
            return
        walked.pages.append((question, answer))
        if until is not None and until(answer):
            return
        turned = walker.turn(at, answer.page)
        if turned.outcome is not Outcome.MORE:
            walked.ended = turned.outcome is not Outcome.STALL
            walked.stalled = turned.stall.reason if turned.stall else None
            return
        at = turned.walk
        if scope.turn is Turn.CURSOR:
            base["cursor"] = answer.page.cursor


def start_of_feed(spec: CursorSpec) -> dict[str, Value]:
    """The placeholders of a feed's first question."""
    return {} if spec.start is None else {"cursor": keep(spec.start)}


def cursor_after(scope: Scope, walked: Walked) -> str | None:
    """Where the feed goes on: behind each page, or as the first page of a walk says."""
    cursors = [sight.page.cursor for _, sight in walked.pages]
    if not cursors:
        return None
    return cursors[-1] if scope.turn is Turn.CURSOR else cursors[0]

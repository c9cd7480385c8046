"""A provider in memory that answers the questions of plans, and a driver that may crash at any step.

Knows its own facts and imports of the product only what states the question and the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ingest.plans.protocol import Ask, Now, Page, Plan, Refusal, Stall, Step
from ingest.plans.ranges import to_us
from schemas.definitions.paths import Path, Root
from schemas.definitions.source import Bounds, PagesSpec, RequestSpec, Turn
from schemas.definitions.templates import Template
from schemas.keys import mark_key
from schemas.records import Mark, PlanState

S = 1_000_000
EPOCH = 1_700_000_000 * S


def request(pages: PagesSpec | None) -> RequestSpec:
    """A request of which only the pages matter here."""
    return RequestSpec(
        method="GET",
        path=Template(("/facts",), "/facts"),
        records=Path(Root.BODY, ("items",), "body.items"),
        id=Path(Root.RECORD, ("id",), "id"),
        params={},
        headers={},
        pages=pages,
    )


@dataclass(frozen=True)
class Fact:
    """One state of one entity: `stamp` is the provider's time, `visible_at` when it can be read."""

    number: int
    stamp: int
    visible_at: int


@dataclass
class Source:
    """Answers windows of time, in pages, with tokens over a frozen result or live positions."""

    pages: PagesSpec | None
    bounds: Bounds = Bounds.CLOSED_OPEN
    granularity: int = S
    truncates: bool = False
    cap: int | None = None
    tells_cap: bool = True
    token_lifetime: int | None = None
    retention: int | None = None
    tells_gap: bool = False
    order: int = 0
    now: int = EPOCH
    facts: list[Fact] = field(default_factory=list)
    slow: bool = False
    empty_pages: int = 0
    refusals: int = 0
    _frozen: dict[str, tuple[list[Fact], int, int]] = field(default_factory=dict)
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, stamp: int, delay: int = 0) -> Fact:
        fact = Fact(len(self.facts), stamp, stamp + delay)
        self.facts.append(fact)
        return fact

    def answer(self, ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        """One page of facts, or what the provider says instead."""
        start, end = ask.values.get("start"), ask.values.get("end")
        assert isinstance(start, int) and isinstance(end, int)
        if self.slow and ask.page == 1 and end - start > 4 * S:
            return Refusal.SLOW
        if self.tells_gap and self.retention is not None:
            if start < self.now - self.retention - self.granularity:
                return Refusal.GAP
        token = ask.values.get("token")
        if isinstance(token, str):
            found, offset, issued = self._frozen[token]
            if self.token_lifetime is not None and self.now - issued > self.token_lifetime:
                return Refusal.TOKEN_EXPIRED
        else:
            found, offset = self._matching(start, end), 0
        if self.cap is not None and len(found) > self.cap and self.tells_cap:
            return Refusal.SPLIT
        return self._page(found[: self.cap], offset, len(found))

    def _matching(self, start: int, end: int) -> list[Fact]:
        found = [f for f in self.facts if f.visible_at <= self.now]
        if self.retention is not None:
            found = [f for f in found if f.stamp >= self.now - self.retention]
        found = [f for f in found if self._within(f.stamp, start, end)]
        if self.order:
            found.sort(key=lambda f: self.order * f.stamp)
        return found

    def _within(self, stamp: int, start: int, end: int) -> bool:
        if self.truncates:
            stamp -= stamp % self.granularity
        after = (
            stamp > start if self.bounds in (Bounds.OPEN, Bounds.OPEN_CLOSED) else stamp >= start
        )
        before = stamp <= end if self.bounds in (Bounds.CLOSED, Bounds.OPEN_CLOSED) else stamp < end
        return after and before

    def _page(self, found: list[Fact], offset: int, total: int) -> tuple[list[Fact], Page]:
        size = self.pages.size if self.pages and self.pages.size else len(found) or 1
        if self.empty_pages and offset:
            self.empty_pages -= 1
            size = 0
        rows = found[offset : offset + size]
        if self.retention is not None:
            rows = [f for f in rows if f.stamp >= self.now - self.retention]
        following: str | None = None
        if offset + size < len(found):
            following = f"t{next(self._names)}"
            self._frozen[following] = (found, offset + size, self.now)
        return rows, page_of(
            rows,
            self.clock(),
            next=following,
            total=total,
            times=[f.stamp for f in rows] if self.order else [],
        )

    def clock(self) -> Now:
        return Now(local=self.now, server=self.now - 700_000, server_max=self.now + 900_000)


def page_of(rows: list[Fact], now: Now, **more: Any) -> Page:
    """The facts of an answer as a plan sees them."""
    numbers = [fact.number for fact in rows]
    return Page(
        records=len(rows),
        at=now,
        last_id=str(numbers[-1]) if numbers else None,
        content=hash(tuple(numbers)),
        read_ids=lambda: numbers,
        read_compared=lambda: numbers,
        **more,
    )


@dataclass
class Emitted:
    """One emission: facts of a logged page, marks, the state after both."""

    facts: list[Fact]
    page: tuple[str, str, int] | None
    step: Step


Answerer = Callable[[Ask], "tuple[list[Fact], Page] | Refusal"]


class Driver:
    """Runs one plan against a source. What was emitted and not yet `kept` is lost in a crash."""

    def __init__(
        self,
        make: Callable[[Callable[[], str]], Plan],
        source: Source,
        answer: Answerer | None = None,
    ) -> None:
        self._make, self.source = make, source
        self._answer = answer or source.answer
        self._nonces = itertools.count()
        self.durable: list[Emitted] = []
        self.pending: list[Emitted] = []
        self.stalls: list[Stall] = []
        self.asked: list[Ask] = []
        self.polling = False
        self.plan: Plan = make(self._nonce)
        self.state: PlanState = self.plan.adopt(None)

    def _nonce(self) -> str:
        return f"n{next(self._nonces)}"

    def keep(self) -> None:
        """Everything emitted is durable."""
        self.durable += self.pending
        self.pending = []

    def crash(self) -> None:
        """A new owner goes on from the last durable state."""
        self.pending = []
        self.plan = self._make(self._nonce)
        self.state = self.plan.adopt(self.durable[-1].step.state if self.durable else None)
        self.polling = False

    def step(self) -> bool:
        """One question or one step without; False: the poll is over or stalled."""
        if not self.polling:
            self.state = self.plan.begin(self.state, self.source.clock())
            self.polling = True
        found = self.plan.next(self.state, self.source.clock())
        if found is None:
            self.polling = False
            return False
        if isinstance(found, Step):
            self._emit(found, [], None)
            return True
        self.asked.append(found)
        answer = self._answer(found)
        if isinstance(answer, Refusal):
            self.source.refusals += 1
            step = self.plan.refuse(found, answer, self.source.clock())
            self._emit(step, [], None)
        else:
            facts, page = answer
            step = self.plan.take(found, page)
            self._emit(step, facts, (found.scope, found.pass_, found.page))
        if step.stall is not None:
            self.stalls.append(step.stall)
            self.polling = False
            return False
        return True

    def poll(self, steps: int = 10_000) -> None:
        """A poll to its end."""
        for _ in range(steps):
            if not self.step():
                return
        raise AssertionError("the poll does not end")

    def _emit(self, step: Step, facts: list[Fact], page: tuple[str, str, int] | None) -> None:
        self.pending.append(Emitted(facts if step.log else [], page if step.log else None, step))
        self.state = step.state

    @property
    def all(self) -> list[Emitted]:
        return self.durable + self.pending

    def seen(self) -> set[int]:
        """Numbers of all facts in logged pages."""
        return {fact.number for emitted in self.all for fact in emitted.facts}

    def marks(self, kind: str) -> list[Mark]:
        return [m for emitted in self.all for m in emitted.step.marks if m.kind == kind]

    def stretches(self, kind: str) -> list[tuple[int, int]]:
        """The stretches that marks of a kind speak of, in microseconds."""
        return [
            (to_us(mark.start), to_us(mark.end))
            for mark in self.marks(kind)
            if mark.start is not None and mark.end is not None
        ]

    def compacted(self) -> list[Mark]:
        """The marks that are left of the log when only the last of every key is kept."""
        return list({mark_key(m): m for e in self.all for m in e.step.marks}.values())

    def check_named(self) -> None:
        """Every page key is written once, and every mark names only pages that stand before it."""
        written: set[tuple[str, int]] = set()
        for emitted in self.all:
            if emitted.page is not None:
                key = emitted.page[1:]
                assert key not in written, f"written twice: {key}"
                written.add(key)
            for mark in emitted.step.marks:
                for run in mark.passes:
                    for number in range(run.first, run.last + 1):
                        assert (run.pass_, number) in written, f"{mark.kind} names a missing page"


def token_pages(size: int = 3, **more: Any) -> PagesSpec:
    """Pages turned by a token, ended by its absence."""
    from schemas.definitions.source import End

    return PagesSpec(turn=Turn.TOKEN, end=End.NO_NEXT, size=size, **more)

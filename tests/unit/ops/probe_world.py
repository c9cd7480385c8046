"""A provider in memory with every habit that a probe asks about, and a driver in virtual time.

Knows its own truth and imports of the product only what states the question and the answer.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.plans.protocol import Now, Page
from ops.probe.model import Answer, Pause, Question, Refused, Row, Sight
from ops.probe.trial import Trial
from schemas.definitions.paths import Path, Root
from schemas.definitions.source import (
    Bounds,
    End,
    IntervalSpec,
    KeysetSpec,
    Order,
    PagesSpec,
    RequestSpec,
    ScheduleSpec,
    SnapshotSpec,
    StreamSpec,
    Turn,
)
from schemas.definitions.templates import parse_template
from schemas.definitions.times import TimeFormat, TimeKind

MS, S = 1_000, 1_000_000
NOW = 1_700_000_000 * S + 123_456
FORMATS = {S: TimeFormat(TimeKind.RFC3339), MS: TimeFormat(TimeKind.RFC3339_MS)}


@dataclass
class Fact:
    """One record: `stamp` as stored; `seen_at`: from when it is found by time."""

    id: str
    stamp: int
    seen_at: int
    version: int = 1
    gone: bool = False


@dataclass
class World:
    """The provider; each field is one habit. Times in microseconds of its own clock."""

    bounds: str = "[)"
    step: int = 1
    cuts_stamps: bool = True
    shown: int = MS
    unit: int = MS
    reads_fine: str = "exact"  # or cut, refused
    start_ignored: bool = False
    end_ignored: bool = False
    by_other_field: bool = False
    order: str = "asc"  # or desc, id
    ties: str = "id"  # or falling, random
    cap: int = 1000
    counts_asked: bool = False  # page numbers count what was asked, not what is given
    shifts: bool = False
    behind: str = "right"  # or time_only, inclusive, ignored: what a position is taken for
    listed: int | None = None  # the most that the full listing knows of; None: everything
    token: str = "live"  # or snapshot, once, moves
    bound: str = "query"  # or refuses, mixes: what a token makes of another window
    lag: int = 0
    ahead: int = 0
    seed: int = 1
    turn: Turn = Turn.TOKEN
    now: int = NOW
    facts: list[Fact] = field(default_factory=list)
    write: Callable[[World], None] | None = None
    asked: int = 0
    _tokens: dict[str, tuple[list[Fact], int, dict[str, Any]]] = field(default_factory=dict)
    _used: set[str] = field(default_factory=set)
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fill(self, count: int, stored: int, *, ids_cross: bool = True) -> None:
        """Records over the last day, some with equal stamps; `stored`: the step of their stamps."""
        for number in range(count):
            at = self.now - 86_400 * S + self._random.randrange(86_000 * S)
            name = self._random.randrange(10**9) if ids_cross else number
            self.facts.append(Fact(f"{name:010d}", at - at % stored, 0))
        for one, other in zip(self.facts[::7], self.facts[3::7], strict=False):
            other.stamp = one.stamp
        if not ids_cross:
            for fact, stamp in zip(self.facts, sorted(f.stamp for f in self.facts), strict=True):
                fact.stamp = stamp

    def answer(self, question: Question) -> Answer:
        self.asked += 1
        self.now += 20 * MS
        if self.write is not None:
            self.write(self)
        values = dict(question.values)
        if question.fine is not None and self.reads_fine == "refused":
            return Refused("400")
        size = min(int(values.get("size") or 100), self.cap)
        if "after.time" in values:
            return self._behind(values, question.fine is not None, size)
        token = values.get("token")
        if isinstance(token, str):
            return self._go_on(token, values, size)
        found = self._found(values, question.fine is not None)
        if question.plan == "snapshot":
            found = found[: self.listed]
        if self.turn is Turn.PAGE:
            counted = int(values.get("size") or 100) if self.counts_asked else size
            return self._page(found, (int(values.get("page") or 1) - 1) * counted, size, values)
        if self.turn is Turn.LAST_ID:
            found.sort(key=lambda f: f.id)
            found = [f for f in found if f.id >= str(values.get("last.id", ""))]  # inclusive
        return self._page(found, 0, size, values)

    def _go_on(self, token: str, values: dict[str, Any], size: int) -> Answer:
        found, at, asked = self._tokens[token]
        if self.token == "once" and token in self._used:
            return Refused("410", known=True)
        if self.token == "moves":
            at += size * (token in self._used)
        self._used.add(token)
        if values.get("start") != asked.get("start") and self.bound != "query":
            if self.bound == "refuses":
                return Refused("400")
            return self._page(self._found(values, False), at, size, values)
        if self.token != "snapshot":
            found = self._found(asked, False)
        return self._page(found, at, size, asked)

    def _behind(self, values: dict[str, Any], fine: bool, size: int) -> Answer:
        """What is sorted behind a time and an id; a position is a time as it was shown."""
        at, name = self._read(int(values["after.time"]), fine), str(values["after.id"])

        def stands(fact: Fact) -> bool:
            stamp = fact.stamp - fact.stamp % self.step if self.cuts_stamps else fact.stamp
            return {
                "right": (stamp, fact.id) > (at, name),
                "time_only": stamp > at,
                "inclusive": (stamp, fact.id) >= (at, name),
                "ignored": True,
            }[self.behind]

        found = [f for f in self._found({"end": values.get("until")}, fine) if stands(f)]
        if (self.order, self.ties) == ("asc", "id"):
            found.sort(key=lambda f: (f.stamp, f.id))
        return self._page(found, 0, size, values)

    def _found(self, values: dict[str, Any], fine: bool) -> list[Fact]:
        start = None if self.start_ignored else values.get("start")
        end = None if self.end_ignored else values.get("end")
        found = [
            replace(f)  # as it is now: a token may keep it
            for f in self.facts
            if f.seen_at <= self.now and self.includes(f, start, end, fine)
        ]
        if self.order == "id":
            found.sort(key=lambda f: f.id)
            return found
        down = self.order == "desc"
        if self.ties == "random":
            self._random.shuffle(found)
        else:
            found.sort(key=lambda f: f.id, reverse=(self.ties == "falling"))
        found.sort(key=lambda f: f.stamp - f.stamp % max(self.shown, 1), reverse=down)
        return found

    def includes(self, fact: Fact, start: int | None, end: int | None, fine: bool) -> bool:
        stamp = fact.stamp
        if self.by_other_field:
            stamp = self.now - 20 * 86_400 * S + hash(fact.id) % S
        if self.cuts_stamps:
            stamp -= stamp % self.step
        if start is not None:
            start = self._read(start, fine)
            if stamp < start or (stamp == start and self.bounds[0] == "("):
                return False
        if end is not None:
            end = self._read(end, fine)
            if stamp > end or (stamp == end and self.bounds[1] == ")"):
                return False
        return True

    def _read(self, us: int, fine: bool) -> int:
        if fine and self.reads_fine == "cut":
            us -= us % self.unit
        return us - us % self.step

    def _page(self, found: list[Fact], at: int, size: int, values: dict[str, Any]) -> Sight:
        if self.shifts and at:
            at += self._random.randrange(3) - 1
        rows = found[at : at + size]
        following = None
        if at + size < len(found) and self.turn is Turn.TOKEN:
            following = f"t{next(self._names)}"
            self._tokens[following] = (found, at + size, dict(values))
        local = self.now - self.ahead
        shown = tuple(
            Row(
                f.id,
                f.stamp - f.stamp % self.shown,
                self.shown,
                hash((f.id, f.version)),
                f.gone,
            )
            for f in rows
        )
        names = [hash(row.id) for row in shown]
        page = Page(
            records=len(rows),
            at=Now(local, local, local),
            next=following,
            content=hash(tuple(names)),
            read_ids=lambda: names,
            read_compared=lambda: names,
            last_id=shown[-1].id if shown else None,
            times=[row.time for row in shown],
            positions=[(str(row.time), row.id) for row in shown],
        )
        return Sight(shown, page, local - 10 * MS, local, self.now // S * S)


_ENDS = {Turn.TOKEN: End.NO_NEXT, Turn.LAST_ID: End.NOTHING_NEW}


def stream(world: World, *, snapshot: bool = False, **declared: Any) -> StreamSpec:
    """What a definition says of it; `declared` overrides single keys of the plan or its pages."""
    sends = declared.pop("sends", ("start", "end"))
    pages_keys = {k: declared.pop(k) for k in ("cap", "size", "stable") if k in declared}
    pages = PagesSpec(
        turn=world.turn,
        end=_ENDS.get(world.turn, End.EMPTY),
        next=Path(Root.BODY, ("next",), "body.next") if world.turn is Turn.TOKEN else None,
        first=1 if world.turn is Turn.PAGE else None,
        **{"size": 40, **pages_keys},
    )
    turned = {Turn.TOKEN: "token", Turn.LAST_ID: "last.id"}.get(world.turn, "page")

    def request(*names: str) -> RequestSpec:
        return RequestSpec(
            method="GET",
            path=parse_template("/facts"),
            records=Path(Root.BODY, ("items",), "body.items"),
            id=Path(Root.RECORD, ("id",), "id"),
            params={name: parse_template(f"{{{name}}}") for name in names},
            headers={},
            pages=pages,
        )

    by_position = world.turn is Turn.KEYSET
    if by_position:
        sends, turned = ("after.time", "after.id", "until"), "size"
    spec = (KeysetSpec if by_position else IntervalSpec)(
        **{
            "time": Path(Root.RECORD, ("t",), "t"),
            "start_us": (NOW - 30 * 86_400 * S) // S * S,
            "format": FORMATS[world.unit],
            "granularity_us": world.unit,
            "zone": None,
            "bounds": Bounds.UNKNOWN,
            "settle_us": 60 * S,
            "lookback_us": 600 * S,
            "order": Order.ASC if by_position else Order.NONE,
            "width_us": None,
            "width_min_us": world.unit,
            "result_cap": None,
            "request": request(*sends, turned, "size"),
            "definition_hash": "h",
            **declared,
        }
    )
    listing = SnapshotSpec(86_400.0, request(turned, "size"), "s") if snapshot else None
    return StreamSpec(
        source="shop",
        name="orders",
        changes=spec,
        snapshot=listing,
        schedule=ScheduleSpec(),
        upstream_retention_s=None,
        deletes="not_shown",
        keep_snapshots=1,
    )


def probed(world: World, spec: StreamSpec, budget: int = 80) -> dict[str, Any]:
    """The findings of the changes by name, after a whole probe."""
    trial = run(world, spec, budget)
    return {finding.name: finding for plan, finding in trial.findings() if plan != "snapshot"}


def run(world: World, spec: StreamSpec, budget: int = 80) -> Trial:
    trial = Trial(spec, world.now - world.ahead, budget)
    while (step := trial.next) is not None:
        if isinstance(step, Pause):
            world.now += int(step.seconds * S)
            trial.take(None)
        else:
            trial.take(world.answer(step))
    return trial

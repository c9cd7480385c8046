"""A provider whose records lie below parents, and drivers of plans that read parent by parent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ingest.plans.interval import IntervalPlan
from ingest.plans.parents import ParentsWalker
from ingest.plans.protocol import Ask, Listing, Nonce, Page, Plan, Refusal
from ingest.plans.snapshot import SnapshotPlan
from schemas.definitions.source import End, PagesSpec, SnapshotSpec, Turn
from tests.property.plan_intervals import spec_of
from tests.property.plan_source import Driver, Fact, Source, page_of, request, token_pages

PER_PAGE = 2


@dataclass
class Family:
    """Parents by number, each with facts. `by_id`: the listing is paged by the last id, else by
    number, where it shifts. `by_time`: changes are read below parents that changed, and each fact
    changes its parent.
    """

    source: Source
    by_id: bool = True
    by_time: bool = False
    parents: list[int] = field(default_factory=list)
    of: dict[int, int] = field(default_factory=dict)
    lists: int = 0
    touched: dict[int, int] = field(default_factory=dict)

    def add(self, parent: int, stamp: int, delay: int = 0) -> Fact:
        """A fact below a parent that is there."""
        fact = self.source.add(stamp, delay)
        self.of[fact.number] = parent
        self.touched[parent] = max(stamp, self.touched.get(parent, 0))
        return fact

    @property
    def listing(self) -> PagesSpec:
        if self.by_id:
            return PagesSpec(turn=Turn.LAST_ID, end=End.EMPTY, size=PER_PAGE, stable=True)
        return PagesSpec(turn=Turn.PAGE, end=End.EMPTY, size=PER_PAGE, first=1)

    def answer(self, ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        """Parents, or a page of one parent's facts."""
        if ask.listing:
            return [], self._list(ask)
        parent = ask.values["parent.id"]
        below = [f for f in self.source.facts if self.of[f.number] == parent]
        if parent not in self.parents:
            below = []
        token = ask.values.get("token")
        offset = int(str(token).split(":")[1]) if token is not None else 0
        start, end = ask.values.get("start"), ask.values.get("end")
        found = [f for f in below if f.visible_at <= self.source.now]
        if isinstance(start, int) and isinstance(end, int):
            found = [f for f in found if start <= f.stamp < end]
            if self.source.cap is not None and len(found) > self.source.cap:
                return Refusal.SPLIT
        rows = found[offset : offset + PER_PAGE]
        following = f"{parent}:{offset + PER_PAGE}" if offset + PER_PAGE < len(found) else None
        return rows, page_of(rows, self.source.clock(), next=following)

    def _list(self, ask: Ask) -> Page:
        self.lists += 1
        shown, since = sorted(self.parents), ask.values.get("start")
        if self.by_time and ask.plan == "interval":
            assert isinstance(since, int) and "end" not in ask.values
            shown = [p for p in shown if self.touched.get(p, 0) >= since]
        if self.by_id:
            last = ask.values.get("last.id")
            rows = [p for p in shown if last is None or p > int(str(last))][:PER_PAGE]
        else:
            number = ask.values["page"]
            assert isinstance(number, int)
            rows = shown[(number - 1) * PER_PAGE : number * PER_PAGE]
        page = Page(
            records=len(rows),
            at=self.source.clock(),
            last_id=str(rows[-1]) if rows else None,
            content=hash(tuple(rows)),
            read_ids=lambda: rows,
            read_compared=lambda: rows,
        )
        parents = [(f"{p:016x}", {"id": p}) for p in rows]
        return Page(records=0, at=self.source.clock(), listing=Listing(page, parents))


def interval_driver(family: Family, **spec: object) -> Driver:
    """Changes of all parents by time."""
    pages = token_pages(PER_PAGE, stable=True)
    declared = spec_of(family.source, cap=family.source.cap)
    declared = replace(declared, request=request(pages), **spec)  # type: ignore[arg-type]

    def make(nonce: Nonce) -> Plan:
        walker = ParentsWalker(pages, family.listing, nonce)
        parents = declared if family.by_time else None
        return IntervalPlan(declared, "s/t", nonce, walker=walker, parents=parents)

    return Driver(make, family.source, family.answer)


def snapshot_driver(family: Family) -> Driver:
    """All facts of all parents."""
    pages = token_pages(PER_PAGE, stable=True)
    shifting = not family.listing.stable
    spec = SnapshotSpec(1.0, request(pages), "h1", shifting_parents=shifting)

    def make(nonce: Nonce) -> Plan:
        return SnapshotPlan(spec, "s/t", nonce, walker=ParentsWalker(pages, family.listing, nonce))

    return Driver(make, family.source, family.answer)

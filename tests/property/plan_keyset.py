"""A provider that answers behind a position (time, id), and what the tests declare of it."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.plans.keyset import KeysetPlan
from ingest.plans.opaque import give, keep
from ingest.plans.protocol import Ask, Page, Refusal
from ingest.plans.ranges import to_text, to_us
from schemas.definitions.paths import Path, Root
from schemas.definitions.source import Bounds, End, KeysetSpec, Order, PagesSpec, Turn
from schemas.definitions.times import RFC3339
from tests.property.plan_intervals import LOOKBACK, SETTLE, START
from tests.property.plan_source import Driver, Fact, S, Source, page_of, request

SIZE = 3


class Impatient(KeysetPlan):
    """Completes what lies before its position after very few pages."""

    stretch_pages = 2


def id_of(fact: Fact) -> int:
    """Ids that say nothing about when a fact came."""
    return fact.number * 7919 % 10007


@dataclass
class Keyed:
    """`inclusive`: the record at the position comes again; `until`: whether it filters by that."""

    source: Source
    inclusive: bool = False
    until: bool = True

    def answer(self, ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        """One page of facts behind the position."""
        source, values = self.source, ask.values
        time, end, after_id = values["after.time"], values["until"], values["after.id"]
        assert isinstance(end, int) and isinstance(after_id, str)
        if source.slow and ask.page == 1 and isinstance(time, int) and end - time > 4 * S:
            return Refusal.SLOW
        after = (to_us(give(time)) if isinstance(time, str) else int(str(time)), give(after_id))
        found = sorted((f.stamp, id_of(f), f.number) for f in self._readable(end))
        behind = [
            source.facts[number]
            for stamp, id_, number in found
            if stamp > after[0]
            or (stamp == after[0] and (after[1] == "" or self._past(id_, after[1])))
        ]
        rows = behind[:SIZE]
        return rows, page_of(
            rows,
            source.clock(),
            times=[f.stamp for f in rows],
            positions=[(keep(to_text(f.stamp)), keep(id_of(f))) for f in rows],
        )

    def _past(self, id_: int, after: int) -> bool:
        return id_ >= after if self.inclusive else id_ > after

    def _readable(self, end: int) -> list[Fact]:
        now, kept = self.source.now, self.source.retention
        return [
            f
            for f in self.source.facts
            if f.visible_at <= now
            and (kept is None or f.stamp >= now - kept)
            and not (self.until and f.stamp >= end)
        ]


def spec_of(
    keyed: Keyed, *, lookback: int | None = LOOKBACK, bounds: Bounds = Bounds.UNKNOWN
) -> KeysetSpec:
    """What is declared of a source."""
    return KeysetSpec(
        time=Path(Root.RECORD, ("t",), "t"),
        start_us=START,
        format=RFC3339,
        granularity_us=S,
        zone=None,
        bounds=bounds,
        settle_us=SETTLE,
        lookback_us=lookback,
        order=Order.ASC,
        width_us=None,
        width_min_us=S,
        result_cap=None,
        request=request(
            PagesSpec(
                turn=Turn.KEYSET, end=End.NOTHING_NEW if keyed.inclusive else End.EMPTY, size=SIZE
            )
        ),
        definition_hash="h1",
    )


def driver_of(
    keyed: Keyed,
    *,
    retention: int | None = None,
    lookback: int | None = LOOKBACK,
    bounds: Bounds = Bounds.UNKNOWN,
    of: type[KeysetPlan] = KeysetPlan,
) -> Driver:
    """A driver of the keyset plan against this provider."""
    spec = spec_of(keyed, lookback=lookback, bounds=bounds)
    return Driver(
        lambda nonce: of(spec, "s/t", nonce, retention_us=retention, by_end=keyed.until),
        keyed.source,
        keyed.answer,
    )

"""What the tests of the interval plan declare of a source, and drivers for it."""

from __future__ import annotations

from dataclasses import replace

from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import Nonce
from schemas.definitions.paths import Path, Root
from schemas.definitions.source import IntervalSpec, Order, PagesSpec
from schemas.definitions.times import RFC3339
from tests.property.plan_source import EPOCH, Driver, S, Source, request, token_pages

START = EPOCH - 400 * S
SETTLE, LOOKBACK = 5 * S, 60 * S


def spec_of(
    source: Source, *, start: int | None = START, width: int | None = None, cap: int | None = None
) -> IntervalSpec:
    """What is declared of a source."""
    orders = {0: Order.NONE, 1: Order.ASC, -1: Order.DESC}
    return IntervalSpec(
        time=Path(Root.RECORD, ("t",), "t"),
        start_us=start,
        format=RFC3339,
        granularity_us=S,
        zone=None,
        bounds=source.bounds,
        settle_us=SETTLE,
        lookback_us=LOOKBACK,
        order=orders[source.order],
        width_us=width,
        width_min_us=S,
        result_cap=cap,
        request=request(source.pages),
        definition_hash="h1",
    )


def driver_of(
    source: Source, *, retention: int | None = None, slow: int | None = None, **spec: object
) -> Driver:
    declared = replace(spec_of(source), **spec)  # type: ignore[arg-type]

    def make(nonce: Nonce) -> IntervalPlan:
        return IntervalPlan(declared, "s/t", nonce, retention_us=retention, slow_us=slow)

    return Driver(make, source)


def stable(**more: object) -> PagesSpec:
    return token_pages(3, stable=True, **more)

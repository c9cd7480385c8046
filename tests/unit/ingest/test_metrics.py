"""Lags and horizons as they are scraped."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from ingest import metrics
from ingest.emission import StreamState
from ingest.metrics import Claims, Horizon, horizon_s, lag_s
from ops.stack.folder import free_port
from schemas.records import Blocked, PassRange, PlanState

S = 1_000_000


def state(**plans: PlanState) -> StreamState:
    return StreamState(plans=plans)


def plan(**changes: object) -> PlanState:
    return PlanState(definition_hash="h", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "lag"),
    [
        (state(), None),
        (state(interval=plan()), None),
        (state(interval=plan(complete_before="1970-01-01T00:01:40.000000Z")), 20.0),
        (state(interval=plan(complete_before="1970-01-01T00:02:40.000000Z")), 0.0),
        (state(cursor=plan(polled_at=90 * S)), 30.0),
        (state(cursor=plan(cursor_issued_at=60 * S)), 60.0),
        (state(snapshot=plan(polled_at=100 * S)), 20.0),
        (
            state(
                interval=plan(complete_before="1970-01-01T00:01:40.000000Z"),
                snapshot=plan(polled_at=1),
            ),
            20.0,
        ),
    ],
)
def test_the_lag_is_that_of_the_changes(found: StreamState, lag: float | None) -> None:
    assert lag_s(found, 120.0) == lag


def test_the_nearest_horizon_counts() -> None:
    both = Horizon(upstream_s=100, cursor_s=50)
    assert horizon_s(state(interval=plan()), both) == 100
    assert horizon_s(state(cursor=plan()), both) == 50
    assert horizon_s(state(cursor=plan()), Horizon()) is None


def test_what_is_scraped_shows_lag_horizon_share_and_what_blocks() -> None:
    claims, registry = Claims(), CollectorRegistry()
    registry.register(claims)
    blocked = StreamState(
        blocked=Blocked("credentials", 1, "set the token"),
        plans={"interval": plan(complete_before="1970-01-01T00:00:00.000000Z")},
    )
    claims.put("s/a", blocked, Horizon(upstream_s=1e9))
    owner = {"partition_id": "s/a"}
    lag = registry.get_sample_value("gapless_ingest_checkpoint_lag_seconds", owner)
    assert lag is not None and lag > 1.7e9
    assert registry.get_sample_value("gapless_ingest_horizon_seconds", owner) == 1e9
    share = registry.get_sample_value("gapless_ingest_horizon_share_used", owner)
    assert share is not None and share > 1.7
    why = {**owner, "reason": "credentials"}
    assert registry.get_sample_value("gapless_ingest_blocked", why) == 1
    claims.drop(["s/a"])
    assert registry.get_sample_value("gapless_ingest_checkpoint_lag_seconds", owner) is None


def test_they_are_served_over_http() -> None:
    port = free_port()
    metrics.fetched("shop", "ok", 0.2)
    metrics.stored("shop/orders", 1, 100, 80_000)
    metrics.expose(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    assert 'gapless_ingest_fetches_total{outcome="ok",source="shop"} 1.0' in text
    assert 'gapless_ingest_records_total{partition_id="shop/orders"} 100.0' in text
    assert "process_resident_memory_bytes" in text
    with pytest.raises(OSError, match="in use"):
        metrics.expose(port)


def test_an_interval_tells_how_many_pages_it_took() -> None:
    passes = [
        PassRange(pass_=name, first=first, last=last, parts=9, records=9)
        for name, first, last in (("a", 1, 3), ("b", 1, 4))
    ]

    def value(end: str) -> float:
        found = REGISTRY.get_sample_value(
            f"gapless_ingest_interval_pages_{end}", {"source": "wide"}
        )
        return found or 0.0

    metrics.interval_ended("wide/orders/north", passes)
    assert (value("count"), value("sum")) == (1, 7)

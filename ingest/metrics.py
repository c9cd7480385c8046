"""Prometheus metrics of ingest, in base units; lags are computed when they are scraped.

Label values are partition ids, log partitions and fixed reasons: never a URL, a token or a record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from ingest.emission import StreamState
from schemas.records import BY_TIME, PassRange

_US = 1_000_000
_REASON_CHARACTERS = 80
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

# Fetch side: one observation of a request, from its start to the decoded answer.
FETCH_SECONDS = Histogram(
    "gapless_ingest_fetch_seconds", "Duration of requests to a source", ["source"], buckets=_SECONDS
)
FETCHES = Counter(
    "gapless_ingest_fetches_total",
    "Requests to a source by what became of them",
    ["source", "outcome"],
)
TOKENS = Counter(
    "gapless_ingest_token_requests_total",
    "Requests to a token endpoint by what became of them",
    ["source", "outcome"],
)
THROTTLES = Counter(
    "gapless_ingest_throttles_total", "Answers that refused for too many requests", ["source"]
)
CONCURRENCY = Gauge(
    "gapless_ingest_concurrency_limit",
    "Requests that one credential may have in flight now; tenant is empty where all share it",
    ["source", "tenant"],
)
CLOCK_OFFSET = Gauge(
    "gapless_ingest_clock_offset_seconds",
    "How far the clock of a source is ahead of this machine's, by the `Date` of its answers",
    ["source"],
)
TENANTS = Gauge("gapless_ingest_tenants", "Tenants that are polled", ["source"])
TENANTS_STALE = Gauge(
    "gapless_ingest_tenants_stale",
    "1 while the list of tenants cannot be read and the last good one is used",
    ["source"],
)
# Log side: only what is durable counts.
PAGES = Counter("gapless_ingest_pages_total", "Pages made durable in the log", ["partition_id"])
RECORDS = Counter(
    "gapless_ingest_records_total", "Records of the source in durable pages", ["partition_id"]
)
BYTES = Counter(
    "gapless_ingest_log_bytes_total", "Bytes of durable pages, uncompressed", ["partition_id"]
)
TRANSACTIONS = Counter(
    "gapless_ingest_transactions_total", "Committed transactions by kind", ["kind"]
)
COMMIT_SECONDS = Histogram(
    "gapless_ingest_commit_seconds", "From begin to committed transaction", buckets=_SECONDS
)
PERSIST_SECONDS = Histogram(
    "gapless_ingest_persist_seconds", "From fetched page to committed checkpoint", buckets=_SECONDS
)
FENCED = Counter(
    "gapless_ingest_fenced_total", "Times a producer was fenced by another owner or a time-out"
)
RESTORES = Counter("gapless_ingest_restores_total", "Times the state was read from the log")
FALL_BACKS = Counter(
    "gapless_ingest_fall_backs_total", "Partition ids that fell back because the log was cut"
)
HEALS = Counter("gapless_ingest_heals_total", "Transactions that healed a lost commit marker")
UNAVAILABLE = Counter(
    "gapless_ingest_log_unavailable_total", "Times a partition was closed because the log failed"
)
INTERVAL_PAGES = Histogram(
    "gapless_ingest_interval_pages",
    "Pages that a complete interval took, walks that were repeated included",
    ["source"],
    buckets=(1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000),
)
BUDGET_LEFT = Gauge(
    "gapless_ingest_budget_left_seconds", "What was left of --budget when the last run had ended"
)
BUDGET_RESERVE = Gauge(
    "gapless_ingest_budget_reserve_seconds",
    "What the last run kept back of --budget to store what it had asked for",
)
OWNED = Gauge("gapless_ingest_owned_partitions", "Log partitions that this worker owns")
BUFFER_BYTES = Gauge("gapless_ingest_buffer_bytes", "Pages fetched and not yet durable")


def fetched(source: str, outcome: str, duration_s: float) -> None:
    """One request to `source` ended after `duration_s` seconds with a fixed word as outcome."""
    FETCH_SECONDS.labels(source).observe(duration_s)
    FETCHES.labels(source, outcome).inc()


def interval_ended(partition_id: str, passes: Iterable[PassRange]) -> None:
    """An interval of one partition id is complete after the pages of these passes."""
    source = partition_id.partition("/")[0]
    INTERVAL_PAGES.labels(source).observe(sum(one.last - one.first + 1 for one in passes))


def forget_concurrency(source: str, tenant: str | None) -> None:
    """A credential is used no longer."""
    with suppress(KeyError):
        CONCURRENCY.remove(source, tenant or "")


def stored(partition_id: str, pages: int, records: int, size_bytes: int) -> None:
    """Pages of one partition id became durable."""
    if pages:
        PAGES.labels(partition_id).inc(pages)
        RECORDS.labels(partition_id).inc(records)
        BYTES.labels(partition_id).inc(size_bytes)


@dataclass(frozen=True, slots=True)
class Horizon:
    """What a provider keeps for how long, in seconds; None: not declared."""

    upstream_s: float | None = None
    cursor_s: float | None = None


class Claims(Collector):
    """What each owned partition id claims, judged against the clock at every scrape."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[StreamState, Horizon]] = {}

    def put(self, partition_id: str, state: StreamState, horizon: Horizon) -> None:
        """The durable state of an owned partition id."""
        with self._lock:
            self._states[partition_id] = (state, horizon)

    def drop(self, partition_ids: Iterable[str]) -> None:
        """These are owned no longer: their lag is somebody else's to show."""
        with self._lock:
            for partition_id in partition_ids:
                self._states.pop(partition_id, None)

    def collect(self) -> Iterable[Metric]:
        """Lags and horizons in seconds now."""
        now = time.time()
        lag = _family("checkpoint_lag_seconds", "Now less what the source checkpoint covers")
        horizon = _family("horizon_seconds", "How long the provider keeps what is not yet fetched")
        share = _family("horizon_share_used", "Checkpoint lag as a share of the provider's horizon")
        blocked = GaugeMetricFamily(
            "gapless_ingest_blocked", "1 while held up", labels=["partition_id", "reason"]
        )
        with self._lock:
            states = list(self._states.items())
        for partition_id, (state, limits) in states:
            if state.blocked is not None:
                # what stands behind the colon is for people, and may be long
                reason = state.blocked.reason.partition(":")[0][:_REASON_CHARACTERS]
                blocked.add_metric([partition_id, reason], 1)
            behind, kept = lag_s(state, now), horizon_s(state, limits)
            if behind is not None:
                lag.add_metric([partition_id], behind)
            if kept is not None:
                horizon.add_metric([partition_id], kept)
            if behind is not None and kept:
                share.add_metric([partition_id], behind / kept)
        return [lag, horizon, share, blocked]


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gapless_ingest_{name}", text, labels=["partition_id"])


def lag_s(state: StreamState, now_s: float) -> float | None:
    """Seconds since what the changes plan covers; a stream of snapshots only uses those."""
    for name in (*BY_TIME, "cursor", "python", "singer", "snapshot"):
        plan = state.plans.get(name)
        if plan is None:
            continue
        if plan.complete_before is not None:
            return max(0.0, now_s - _seconds(plan.complete_before))
        since = plan.polled_at if plan.polled_at is not None else plan.cursor_issued_at
        return None if since is None else max(0.0, now_s - since / _US)
    return None


def horizon_s(state: StreamState, horizon: Horizon) -> float | None:
    """The nearest horizon that applies to the plans of this partition id, in seconds."""
    limits = [horizon.upstream_s]
    if "cursor" in state.plans:
        limits.append(horizon.cursor_s)
    declared = [limit for limit in limits if limit is not None]
    return min(declared, default=None)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


CLAIMS = Claims()
REGISTRY.register(CLAIMS)


def expose(port: int) -> None:
    """Serves /metrics of this process on `port`; 0 serves nothing. Raises OSError if it is taken."""
    if port:
        start_http_server(port)

"""Prometheus metrics of apply, in base units; lags are computed when they are scraped.

Label values are partition ids, log partitions, mappings and fixed reasons, never a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from apply.batch import Batch
from apply.horizon import Horizon
from apply.outcomes import Outcome
from apply.report import Report

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

RECORDS = Counter(
    "gapless_apply_records_total", "Records by outcome, once per mapping", ["outcome"]
)
PAGES = Counter("gapless_apply_pages_total", "Observations with a durable outcome")
BATCHES = Counter("gapless_apply_batches_total", "Committed batches")
BATCH_SECONDS = Histogram(
    "gapless_apply_batch_seconds", "Duration of a batch by phase", ["phase"], buckets=_SECONDS
)
EVENTS = Counter("gapless_apply_events_total", "Events written to the outbox")
LOWERED = Counter(
    "gapless_apply_lowered_revisions_total",
    "Listed records that won over a higher revision: the collection was made again",
)
BROKEN = Counter(
    "gapless_apply_broken_exact_revisions_total",
    "Records that say something else under the same revision though that is declared exact",
)
READ_FAILURES = Counter(
    "gapless_apply_read_failures_total", "Times the reading thread had to begin again"
)
STEPPED_DOWN = Counter(
    "gapless_apply_stepped_down_total", "Times a partition was found claimed by another worker"
)
SINK_FAULTS = Counter("gapless_apply_sink_faults_total", "Faults of the sink", ["reason"])
PAUSED = Gauge(
    "gapless_apply_paused", "1 while the stage waits for its sink, or a function", ["reason"]
)
OWNED = Gauge("gapless_apply_owned_partitions", "Log partitions that this worker applies")
HALTED = Gauge("gapless_apply_halted", "1 while a partition waits for an operator", ["partition"])
QUARANTINED = Gauge("gapless_apply_exceptions", "Open exceptions of owned partitions", ["state"])
PENDING_MARKS = Gauge("gapless_apply_pending_marks", "Marks that wait for pages", ["partition"])
OVERDUE_MARKS = Gauge("gapless_apply_overdue_marks", "Marks that wait too long: suspected gaps")
RETRIED = Counter("gapless_apply_retried_total", "Retried records by outcome", ["outcome"])


def committed(batch: Batch, report: Report) -> None:
    """One batch is durable."""
    BATCHES.inc()
    PAGES.inc(sum(len(part.pages) for part in batch.parts))
    for outcome in Outcome:
        RECORDS.labels(outcome.name.lower()).inc(report.outcomes[outcome - 1])
    for phase, seconds in report.seconds.items():
        BATCH_SECONDS.labels(phase).observe(seconds)
    EVENTS.inc(report.events)
    LOWERED.inc(report.lowered)
    BROKEN.inc(report.broken)


def paused(reason: str | None) -> None:
    """The stage waits, mostly for the sink; None: it no longer does."""
    PAUSED.clear()
    if reason is not None:
        PAUSED.labels(reason).set(1)
        SINK_FAULTS.labels(reason).inc()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the owned partitions stand at one moment.

    `first_ms`: append time of the oldest record that was read and is not applied; `ends`: (low,
    high) watermark as last fetched; `partition_ids`: which live in a partition.
    """

    next_offsets: Mapping[int, int]
    first_ms: Mapping[int, int]
    ends: Mapping[int, tuple[int, int]]
    partition_ids: Mapping[int, tuple[str, ...]]
    horizon: Horizon


class Lags(Collector):
    """How far the applied offsets are behind the log, asked and judged at every scrape.

    A partition's lag is now less the append time of the next record to apply; zero if there is
    none. So it also rises while the writer waits for its sink.
    """

    def __init__(self) -> None:
        self._ask: Callable[[], Standing] | None = None

    def watch(self, ask: Callable[[], Standing] | None) -> None:
        """Where to ask; safe to call from any thread. None: nothing runs."""
        self._ask = ask

    def collect(self) -> Iterable[Metric]:
        """Lags and the log's ends now."""
        ask = self._ask
        if ask is None:
            return
        now_ms, standing = time.time() * 1000, ask()
        seconds = _family("lag_seconds", "Now less append time of the next record to apply")
        records = _family("lag_records", "Offsets between the applied one and the log's end")
        low = _family("log_start_offset", "First offset that the topic still holds")
        oldest = _family("log_oldest_seconds", "Age of the first record that the topic still holds")
        by_id = _family(
            "partition_id_lag_seconds", "Lag of a partition id's partition", "partition_id"
        )
        kept = _family("horizon_seconds", "How long the topic keeps records", "partition_id")
        share = _family("horizon_share_used", "Lag as a share of that", "partition_id")
        retention = standing.horizon.retention_s
        for number, following in standing.next_offsets.items():
            first = standing.first_ms.get(number)
            lag = 0.0 if first is None else max(0.0, (now_ms - first) / 1000)
            seconds.add_metric([str(number)], lag)
            for partition_id in standing.partition_ids.get(number, ()):
                by_id.add_metric([partition_id], lag)
                if retention is not None:
                    kept.add_metric([partition_id], retention)
                    share.add_metric([partition_id], lag / max(retention, 0.001))
            if number in standing.ends:
                start, end = standing.ends[number]
                records.add_metric([str(number)], max(0, end - following))
                low.add_metric([str(number)], start)
            if number in standing.horizon.oldest_ms:
                age_ms = now_ms - standing.horizon.oldest_ms[number]
                oldest.add_metric([str(number)], max(0.0, age_ms / 1000))
        yield from (seconds, records, low, oldest, by_id, kept, share)


def _family(name: str, text: str, label: str = "partition") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gapless_apply_{name}", text, labels=[label])


LAGS = Lags()
REGISTRY.register(LAGS)


def expose(port: int) -> None:
    """Serves /metrics of this process on `port`; 0 serves nothing. Raises OSError if it is taken."""
    if port:
        start_http_server(port)

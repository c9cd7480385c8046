"""The status as Prometheus metrics, in base units, made anew for every scrape.

What is unknown is left out, never 0: an alert on it would be silent for the wrong reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ops.monitor.watch import Watch
from ops.status.model import PartitionStatus, PlanStatus, Status, Trouble

_FOREVER = float("inf")
STATES = (
    "flowing", "behind", "waiting", "blocked", "paused", "halted", "not started", "unknown",
    "removed",
)  # fmt: skip
PER_PARTITION_ID: dict[str, str] = {
    "gapless_lag_ingest_seconds": "Age of what ingest has proven complete",
    "gapless_lag_apply_seconds": "Age of the oldest log record that is not applied",
    "gapless_lag_apply_at_most_seconds": "The same by Kafka's mirror, while Postgres cannot be asked",
    "gapless_lag_apply_records": "Log records behind the applied offset",
    "gapless_lag_seconds": "How much later than scheduled the newest facts are rows",
    "gapless_horizon_provider_seconds": "How long the provider keeps facts, as declared",
    "gapless_horizon_topic_configured_seconds": "How long the log keeps pages; +Inf: for ever",
    "gapless_horizon_topic_observed_seconds": "Age of the oldest record that the log has",
    "gapless_horizon_token_seconds": "Lifetime of page tokens or cursors, as declared",
    "gapless_horizon_share_used_ratio": "Lag divided by the tightest horizon",
    "gapless_horizon_time_left_seconds": "Until something is lost, at the tightest horizon",
    "gapless_open_intervals": "Intervals being fetched",
    "gapless_failed_intervals": "Intervals that could not be fetched and nobody has accepted",
    "gapless_overdue_runs": "Runs of the schedule that were not searched by their deadline",
    "gapless_failed_runs": "Runs of the schedule of which an interval could not be fetched",
    "gapless_quarantined_records": "Records in quarantine",
    "gapless_retryable_records": "Records that wait to be tried again",
    "gapless_pending_marks": "Marks that wait for pages they name",
    "gapless_coverage_gaps": "Stretches that are lost",
}
PER_POLL: dict[str, str] = {
    "gapless_progress_pages_per_second": "Pages made durable by a long poll, lately",
    "gapless_progress_records_per_second": "Records made durable by a long poll, lately",
    "gapless_progress_share_ratio": "Of the range of a long poll, proven complete; by time only",
    "gapless_progress_left_seconds": "Until the range of a long poll is complete, at its speed",
}
"""Of polls that go on for long only, by partition id and plan."""


@dataclass(slots=True)
class _Families:
    """One family per metric name, in order of first use."""

    found: dict[str, GaugeMetricFamily] = field(default_factory=dict)

    def set(self, name: str, help_: str, labels: dict[str, str], value: float | None) -> None:
        if value is None:
            return
        family = self.found.get(name)
        if family is None:
            family = GaugeMetricFamily(name, help_, labels=list(labels))
            self.found[name] = family
        family.add_metric(list(labels.values()), value)


class StatusCollector(Collector):
    """Makes the metrics of the last status when it is scraped."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead: what there is depends on the partition ids of the moment."""
        return []

    def collect(self) -> Iterator[Metric]:
        families = _Families()
        families.set(
            "gapless_monitor_read_seconds", "Duration of the last read", {}, self._watch.read_s
        )
        healthy = float(self._watch.healthy)
        families.set("gapless_monitor_healthy", "1 while the status is read", {}, healthy)
        status = self._watch.status
        if status is not None:
            _whole(families, status)
            for one in status.partition_ids:
                _partition_id(families, one)
            _exceptions(families, status)
            _troubles(families, status.troubles)
        yield from families.found.values()


def _whole(families: _Families, status: Status) -> None:
    up = "1 if the server could be asked"
    families.set("gapless_server_up", up, {"server": "kafka"}, float(status.kafka is None))
    families.set("gapless_server_up", up, {"server": "postgres"}, float(status.postgres is None))
    read_at = status.read_at / 1e6
    families.set("gapless_monitor_read_timestamp_seconds", "When the status was read", {}, read_at)
    unsent, dead = status.unsent_events, status.dead_events
    families.set("gapless_outbox_unsent_events", "Events to publish", {}, unsent)
    families.set("gapless_outbox_dead_events", "Events that nobody could publish", {}, dead)
    families.set(
        "gapless_outbox_unsent_copies",
        "Copies of quarantined records to publish, where a relay has run",
        {},
        status.unsent_copies,
    )
    if unsent is not None:
        since = [at for at in (status.unsent_since, status.unsent_copies_since) if at is not None]
        families.set(
            "gapless_outbox_oldest_event_seconds",
            "Age of the oldest event, or copy of a quarantined record, to publish",
            {},
            max(0.0, (status.read_at - min(since, default=status.read_at)) / 1e6),
        )
    for replay in status.replays:
        label = {"pipeline": replay.pipeline}
        families.set("gapless_replay_left_offsets", "Offsets to replay", label, replay.left)
        share = replay.done / (replay.done + replay.left)
        families.set("gapless_replay_done_ratio", "Share of a replay", label, share)
    for number, since_us in status.open_transactions:
        age_s = max(0.0, (status.read_at - since_us) / 1e6)
        families.set(
            "gapless_log_open_transaction_seconds",
            "Age of the oldest record whose transaction is undecided",
            {"partition": str(number)},
            age_s,
        )


def _partition_id(families: _Families, one: PartitionStatus) -> None:
    label = {"partition_id": one.partition_id}
    plans = one.source.plans if one.source else None
    horizons = one.horizons
    topic_s = horizons.topic_s if horizons.topic_s is not None else _FOREVER
    values: dict[str, float | None] = {
        "gapless_lag_ingest_seconds": one.ingest_lag_s,
        "gapless_lag_apply_seconds": one.applied.lag_s,
        "gapless_lag_apply_at_most_seconds": one.applied.lag_at_most_s,
        "gapless_lag_apply_records": one.applied.records_behind,
        "gapless_lag_seconds": one.lag_s,
        "gapless_horizon_provider_seconds": horizons.upstream_s,
        "gapless_horizon_topic_configured_seconds": topic_s if horizons.topic_known else None,
        "gapless_horizon_topic_observed_seconds": horizons.topic_observed_s,
        "gapless_horizon_token_seconds": horizons.token_s,
        "gapless_horizon_share_used_ratio": horizons.share_used,
        "gapless_horizon_time_left_seconds": horizons.time_left_s,
        "gapless_open_intervals": None if plans is None else sum(len(p.open) for p in plans),
        "gapless_failed_intervals": None if plans is None else sum(len(p.failed) for p in plans),
    }
    if one.runs:
        states = Counter(run.state for run in one.runs)
        values["gapless_overdue_runs"] = states["overdue"]
        values["gapless_failed_runs"] = states["failed"]
    if one.outcomes is not None:
        values |= {
            "gapless_quarantined_records": one.quarantined,
            "gapless_retryable_records": one.retryable,
            "gapless_pending_marks": one.pending_marks,
            "gapless_coverage_gaps": sum(covered.gaps for covered in one.coverage),
        }
    for name, value in values.items():
        families.set(name, PER_PARTITION_ID[name], label, value)
    for plan in plans or ():
        _progress(families, plan, label)
    for state in STATES:
        families.set(
            "gapless_state", "1 for the state it is in", {**label, "state": state},
            float(state == one.state),
        )  # fmt: skip


def _exceptions(families: _Families, status: Status) -> None:
    for one in status.exceptions or ():
        label = {"mapping": one.mapping, "state": one.state, "reason": one.reason}
        families.set("gapless_open_exceptions", "Records that wait", label, float(one.records))
        families.set(
            "gapless_open_exceptions_oldest_seconds", "How long the first of them has waited",
            label, max(0.0, (status.read_at - one.since) / 1e6),
        )  # fmt: skip


def _progress(families: _Families, plan: PlanStatus, label: dict[str, str]) -> None:
    one = plan.progress
    if one is None or not one.long:
        return
    values = {
        "gapless_progress_pages_per_second": one.pages_per_s,
        "gapless_progress_records_per_second": one.records_per_s,
        "gapless_progress_share_ratio": one.share,
        "gapless_progress_left_seconds": one.left_s,
    }
    for name, value in values.items():
        families.set(name, PER_POLL[name], {**label, "plan": plan.plan}, value)


def _troubles(families: _Families, troubles: Iterable[Trouble]) -> None:
    counts = Counter((trouble.kind, trouble.partition_id or "") for trouble in troubles)
    for (kind, owner), number in counts.items():
        families.set(
            "gapless_blocked", "What waits for somebody, by kind",
            {"kind": kind, "partition_id": owner}, float(number),
        )  # fmt: skip

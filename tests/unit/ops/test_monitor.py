"""The monitor's metrics and page: values of the status, unknown left out, everything escaped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from ops.monitor.metrics import PER_PARTITION_ID, StatusCollector
from ops.monitor.page import page
from ops.status import Status
from ops.status.model import RunStatus
from schemas.records import Blocked, PlanState
from tests.unit.ops.test_status import (
    MOMENT,
    NOW,
    NUMBER,
    OWNER,
    SECOND,
    checkpoint,
    log_facts,
    position,
    sink_facts,
    status,
)


@dataclass
class Seen:
    """What a collector asks of a watch."""

    status: Status | None
    healthy: bool = True
    read_s: float = 0.25


def registry(found: Status | None) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(StatusCollector(Seen(found)))  # type: ignore[arg-type]
    return made


def value(found: Status | None, name: str, **labels: str) -> float | None:
    return registry(found).get_sample_value(name, labels)


def test_both_lags_and_all_horizons_of_a_partition_id() -> None:
    facts = log_facts(
        waiting_since_ms={NUMBER: (NOW - 3600 * SECOND) // 1000},
        topic={"cleanup.policy": "compact,delete", "retention.ms": "7200000"},
    )
    found = status(facts)
    expected = {
        "gapless_lag_ingest_seconds": 63.0,
        "gapless_lag_apply_seconds": 3600.0,
        "gapless_lag_apply_records": 0.0,
        "gapless_horizon_provider_seconds": 30 * 86_400.0,
        "gapless_horizon_topic_configured_seconds": 7200.0,
        "gapless_horizon_topic_observed_seconds": 3600.0,
        "gapless_horizon_share_used_ratio": 0.5,
        "gapless_horizon_time_left_seconds": 3600.0,
    }
    for name, wanted in expected.items():
        assert value(found, name, partition_id=OWNER) == wanted, name
    assert value(found, "gapless_horizon_token_seconds", partition_id=OWNER) is None


def test_a_topic_that_keeps_for_ever_has_no_end() -> None:
    name = "gapless_horizon_topic_configured_seconds"
    assert value(status(), name, partition_id=OWNER) == float("inf")


def test_what_is_unknown_is_left_out() -> None:
    away = status(log="no broker")
    assert value(away, "gapless_server_up", server="kafka") == 0.0
    assert value(away, "gapless_server_up", server="postgres") == 1.0
    assert value(away, "gapless_lag_ingest_seconds", partition_id=OWNER) is None
    assert value(away, "gapless_quarantined_records", partition_id=OWNER) == 0.0
    no_sink = status(sink="refused")
    assert value(no_sink, "gapless_quarantined_records", partition_id=OWNER) is None
    assert value(no_sink, "gapless_outbox_dead_events") is None
    assert value(no_sink, "gapless_lag_seconds", partition_id=OWNER) is None
    assert value(no_sink, "gapless_state", partition_id=OWNER, state="unknown") == 1.0
    assert value(no_sink, "gapless_blocked", kind="sink", partition_id="") == 1.0
    assert value(None, "gapless_monitor_healthy") == 1.0


def test_copies_are_no_events_but_their_age_alerts_too() -> None:
    rows = [
        {"state": name, "count": count, "since": MOMENT - timedelta(seconds=age_s), "error": None}
        for name, count, age_s in (("unsent", 2, 5), ("copies", 3, 60), ("unrelayed", 4, 900))
    ]
    found = status(sink=sink_facts(outbox=rows))
    assert value(found, "gapless_outbox_unsent_events") == 2
    assert value(found, "gapless_outbox_unsent_copies") == 3
    assert value(found, "gapless_outbox_oldest_event_seconds") == 60
    assert value(status(), "gapless_outbox_oldest_event_seconds") == 0


def test_states_blocks_and_open_transactions() -> None:
    blocked = Blocked("401", NOW, "a token")
    facts = log_facts(checkpoint(blocked=blocked))
    facts.open_since_ms = {2: (NOW - 200 * SECOND) // 1000}
    found = status(facts)
    assert value(found, "gapless_state", partition_id=OWNER, state="blocked") == 1.0
    assert value(found, "gapless_state", partition_id=OWNER, state="flowing") == 0.0
    assert value(found, "gapless_blocked", kind="blocked", partition_id=OWNER) == 1.0
    assert value(found, "gapless_blocked", kind="open transaction", partition_id="") == 1.0
    assert value(found, "gapless_log_open_transaction_seconds", partition="2") == 200.0


def test_how_far_replays_are_until_they_are_done() -> None:
    of = {"pipeline": "replay:orders:2", "owner": "b"}
    positions = [
        position(),
        position(150, start_offset=100, end_offset=300, **of),
        position(0, start_offset=0, end_offset=50, partition=0, **of),
        position(70, start_offset=0, end_offset=70, pipeline="beside:orders:1"),
    ]
    found = status(sink=sink_facts(positions=positions))
    label = {"pipeline": "replay:orders:2"}
    assert value(found, "gapless_replay_left_offsets", **label) == 200
    assert value(found, "gapless_replay_done_ratio", **label) == 0.2
    assert value(found, "gapless_replay_left_offsets", pipeline="beside:orders:1") is None


def test_every_name_that_is_described_is_used() -> None:
    token = status()
    horizons = replace(token.partition_ids[0].horizons, token_s=120.0, topic_observed_s=1.0)
    applied = replace(token.partition_ids[0].applied, lag_at_most_s=1.0)
    runs = (RunStatus("shop/orders@x", 0, 1, 2, "overdue"),)
    one = replace(token.partition_ids[0], horizons=horizons, applied=applied, runs=runs)
    names = {m.name for m in registry(replace(token, partition_ids=(one,))).collect()}
    assert set(PER_PARTITION_ID) <= names


def test_the_page_shows_the_runs_that_are_over() -> None:
    over = RunStatus("shop/orders@<x>", NOW - 9 * SECOND, NOW - 5 * SECOND, NOW, "overdue")
    following = RunStatus("shop/orders@y", NOW, NOW + SECOND, None, "expected")
    found = status()
    one = replace(found.partition_ids[0], runs=(over, following))
    text = page(replace(found, partition_ids=(one,)), 5)
    assert '<span title="shop/orders@&lt;x&gt;">10:42:05</span> <b class="bad">overdue</b>' in text
    assert "expected" not in text


HOSTILE = '<script>alert("x")</script>'


def test_everything_on_the_page_is_escaped() -> None:
    blocked = Blocked(HOSTILE, NOW - 90 * SECOND, f"gapless {HOSTILE}")
    row = {
        "partition_id": OWNER, "mapping": HOSTILE, "state": "quarantined", "reason": "x",
        "count": 2, "since": MOMENT, "due_at": None, "detail": HOSTILE, "details": 2,
    }  # fmt: skip
    found = status(log_facts(checkpoint(blocked=blocked)), sink_facts(exceptions=[row]))
    text = page(replace(found, kafka=HOSTILE, postgres=HOSTILE), 5)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 5


def test_the_page_says_what_is_blocked_since_when_and_what_unblocks_it() -> None:
    blocked = Blocked("401 Unauthorized", NOW - 90 * SECOND, "a valid SHOP_TOKEN")
    text = page(status(log_facts(checkpoint(blocked=blocked))), 5)
    for part in ("401 Unauthorized", "since <time", "90 s)", "<dt>unblocks</dt>",
                 "a valid SHOP_TOKEN", "48,214 of 48,214", "complete through 10:41:07"):  # fmt: skip
        assert part in text, part


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "Nothing was read yet."),
        (status(), "Nothing waits for anybody."),
        (status(log="no broker"), "Kafka cannot be asked."),
    ],
)
def test_the_page_of(found: Status | None, says: str) -> None:
    assert says in page(found, 5)


def test_blocked_partition_ids_stand_first() -> None:
    one = status().partition_ids[0]
    late = PlanState(definition_hash="h", complete_before="2026-11-01T00:00:00.000000Z")
    bad = status(
        log_facts(
            msgspec.structs.replace(
                checkpoint(plans={"interval": late}), blocked=Blocked("x", NOW, "y")
            )
        )
    ).partition_ids[0]
    found = replace(
        status(), partition_ids=(one, replace(bad, partition_id="zoo/animals")), troubles=()
    )
    text = page(found, 5)
    assert text.index("zoo/animals") < text.index(OWNER)


def test_open_exceptions_have_a_mapping_and_a_reason() -> None:
    row = {
        "partition_id": OWNER, "mapping": "orders", "state": "quarantined", "reason": "unique",
        "count": 2, "since": MOMENT, "due_at": None, "detail": "x", "details": 1,
    }  # fmt: skip
    found = status(sink=sink_facts(exceptions=[row]))
    of = {"mapping": "orders", "state": "quarantined", "reason": "unique"}
    assert value(found, "gapless_open_exceptions", **of) == 2.0
    oldest = value(found, "gapless_open_exceptions_oldest_seconds", **of)
    assert oldest is not None
    assert oldest >= 0
    assert value(status(sink="refused"), "gapless_open_exceptions", **of) is None

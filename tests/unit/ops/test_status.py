"""Status: what is claimed and applied, what is blocked and what unblocks it, with either side away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ops.facts.deployment import LogFacts
from ops.facts.log import CheckpointRecord
from ops.facts.sink import SinkFacts
from ops.status import Status, assemble
from ops.status.as_json import to_json
from ops.status.expected import Expected, ExpectedStream, expected
from ops.status.model import Trouble
from ops.status.text import to_text
from ops.status.words import duration, moment
from schemas.definitions import load_file
from schemas.log.reader import Bounds
from schemas.records import (
    Blocked,
    Control,
    Failed,
    OpenInterval,
    PassRange,
    PlanState,
    SourceCheckpoint,
    Walk,
)
from schemas.routing import route
from schemas.settings import Settings

OWNER = "shop/orders"
MOMENT = datetime(2026, 11, 8, 10, 42, 10, tzinfo=UTC)
NOW = round(MOMENT.timestamp() * 1e6)
SECOND = 1_000_000
NUMBER = route(OWNER, 8)
EXPECTED = Expected(
    {("shop", "orders"): ExpectedStream(300.0, 60.0, 30 * 86_400.0, None, 7 * 86_400.0)},
    (OWNER,),
    {"shop_orders": "mappings/shop_orders.yaml"},
)


def checkpoint(**changes: Any) -> SourceCheckpoint:
    plan = PlanState(definition_hash="h", complete_before="2026-11-08T10:41:07.000000Z")
    found = SourceCheckpoint(
        partition_id=OWNER, worker="w-1", sequence=9, written_at=NOW - 5 * SECOND,
        plans={"interval": plan},
    )  # fmt: skip
    return msgspec.structs.replace(found, **changes)


def log_facts(found: SourceCheckpoint | None = None, **changes: Any) -> LogFacts:
    ends = {number: Bounds(0, 48_214, 48_214) for number in range(8)}
    record = CheckpointRecord(NUMBER, 1, found or checkpoint())
    facts = LogFacts(
        8, ends, {OWNER: record}, oldest_ms={NUMBER: (NOW - 3600 * SECOND) // 1000},
        topic={"cleanup.policy": "compact", "retention.ms": "604800000"},
    )  # fmt: skip
    for name, value in changes.items():
        setattr(facts, name, value)
    return facts


def position(following: int = 48_214, **changes: Any) -> dict[str, Any]:
    return {
        "pipeline": "live", "partition": NUMBER, "generation": 0, "end_offset": None,
        "start_offset": None,
        "next_offset_to_apply": following, "owner": "a-1", "checkpointed_at": MOMENT,
        "halted": None, **changes,
    }  # fmt: skip


def sink_facts(**changes: Any) -> SinkFacts:
    facts = SinkFacts(
        now=MOMENT,
        positions=[position()],
        coverage=[
            {
                "partition_id": OWNER, "plan": "interval", "failed": 0, "gaps": 0, "errors": 0,
                "start_at": datetime(2024, 1, 1, tzinfo=UTC), "pages": 9, "records": 800,
                "end_at": MOMENT - timedelta(seconds=63),
            }
        ],
        outcomes={OWNER: [9204, 310, 0, 2, 0, 0]},
    )  # fmt: skip
    for name, value in changes.items():
        setattr(facts, name, value)
    return facts


def status(log: LogFacts | str | None = None, sink: SinkFacts | str | None = None) -> Status:
    settings = Settings(partitions=8)
    return assemble(
        settings, NOW, log if log is not None else log_facts(),
        sink if sink is not None else sink_facts(), EXPECTED,
    )  # fmt: skip


def only_trouble(found: Status) -> Trouble:
    (trouble,) = found.troubles
    return trouble


def test_a_stream_that_flows() -> None:
    found = status()
    (one,) = found.partition_ids
    assert (one.state, one.lag_s, one.ingest_lag_s) == ("flowing", 0.0, 63.0)
    assert (one.applied.records_behind, one.applied.lag_s) == (0, 0.0)
    assert one.horizons.share_used == pytest.approx(63 / (30 * 86_400))
    assert found.troubles == ()
    assert to_text(found) == (
        "shop/orders       flowing      lag 0 s\n"
        "  source checkpoint  complete through 10:41:07, 63 s behind   0 intervals open\n"
        "  applied offset     48,214 of 48,214 in partition 0\n"
        "  coverage           2024-01-01 .. 10:41:07     no gap, none failed\n"
        "  outcomes, 24 h     applied 9,204  superseded 310  ignored 0  quarantined 2\n"
        "                     of sightings: a record that is read again counts again, changed or not\n"
        "  horizons           upstream 30 d             topic forever   token unknown   0% used"
    ).replace("partition 0", f"partition {NUMBER}")


def test_times_are_iso_in_json() -> None:
    found = to_json(status())
    assert found["read_at"] == "2026-11-08T10:42:10.000000Z"
    one = found["partition_ids"][0]
    assert one["coverage"][0]["start_at"] == "2024-01-01T00:00:00.000000Z"
    assert one["source"]["plans"][0]["complete_before"] == "2026-11-08T10:41:07.000000Z"
    assert one["outcomes"]["applied"] == 9204


def test_apply_that_is_behind() -> None:
    facts = log_facts(waiting_since_ms={NUMBER: (NOW - 500 * SECOND) // 1000})
    found = status(facts, sink_facts(positions=[position(48_000, owner=None)]))
    (one,) = found.partition_ids
    assert (one.state, one.lag_s, one.applied.records_behind) == ("behind", 500.0, 214)
    assert "no worker holds it" in to_text(found)


def test_ingest_that_is_behind_its_schedule() -> None:
    late = PlanState(definition_hash="h", complete_before="2026-11-08T09:42:10.000000Z")
    (one,) = status(log_facts(checkpoint(plans={"interval": late}))).partition_ids
    assert (one.state, one.ingest_lag_s, one.lag_s) == ("behind", 3600.0, 3240.0)


def test_a_blocked_source_says_what_unblocks_it() -> None:
    blocked = Blocked("401 Unauthorized", NOW - 60 * SECOND, "a valid SHOP_TOKEN")
    found = status(log_facts(checkpoint(blocked=blocked)))
    assert found.partition_ids[0].state == "blocked"
    assert only_trouble(found) == Trouble(
        "blocked", OWNER, "401 Unauthorized", NOW - 60 * SECOND, "a valid SHOP_TOKEN"
    )
    text = to_text(found)
    assert "Blocked: shop/orders   blocked   401 Unauthorized     since 10:41:10" in text
    assert "unblocks           a valid SHOP_TOKEN" in text


def test_a_failed_interval_can_be_accepted_by_name() -> None:
    plan = PlanState(
        definition_hash="h", complete_before="2026-11-08T10:41:07.000000Z",
        failed=[Failed("2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z", "too wide")],
    )  # fmt: skip
    trouble = only_trouble(status(log_facts(checkpoint(plans={"interval": plan}))))
    assert "accept-failed shop/orders --plan interval --start 2026-01-01" in trouble.unblocks


def test_pause_and_resume() -> None:
    pause = Control(action="pause", about="shop", by="ann", note="migration", at=NOW)
    other = msgspec.structs.replace(pause, about="sho")
    found = status(log_facts(controls=[(0, pause), (1, other)]))
    assert found.partition_ids[0].state == "paused"
    assert only_trouble(found).unblocks == "gapless control resume shop"
    resume = msgspec.structs.replace(pause, action="resume")
    assert status(log_facts(controls=[(0, pause), (1, resume)])).troubles == ()


def test_a_halted_partition() -> None:
    halted = {
        "cause": "truncated", "detail": "the log ends at 5",
        "unblocked_by": f"gapless accept-gap --partition {NUMBER}",
    }  # fmt: skip
    gap = {
        "id": 3, "partition_id": None, "partition": NUMBER, "from_text": "5", "to_text": "9",
        "cause": "truncated", "found_at": MOMENT,
    }  # fmt: skip
    found = status(sink=sink_facts(positions=[position(halted=halted)], gaps=[gap]))
    assert found.partition_ids[0].state == "halted"
    assert only_trouble(found).unblocks == f"gapless accept-gap --partition {NUMBER}"


def test_a_gap_that_nobody_accepted() -> None:
    gap = {
        "id": 3, "partition_id": OWNER, "partition": NUMBER, "from_text": "a", "to_text": "b",
        "cause": "older than the provider keeps", "found_at": MOMENT,
    }  # fmt: skip
    trouble = only_trouble(status(sink=sink_facts(gaps=[gap])))
    assert trouble.unblocks.endswith("gapless accept-gap 3")


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("quarantined", "change mappings/shop_orders.yaml and raise its version"),
        ("retryable", "tried again by itself, next try at 10:42:10"),
    ],
)
def test_records_with_exceptions(state: str, says: str) -> None:
    row = {
        "partition_id": OWNER, "mapping": "shop_orders", "state": state, "reason": "unknown_value",
        "count": 2, "since": MOMENT, "due_at": MOMENT, "details": 1,
        "detail": 'status "refunded" is not in `values`',
    }  # fmt: skip
    found = status(sink=sink_facts(exceptions=[row]))
    trouble = only_trouble(found)
    assert trouble.what == '2 records: status "refunded" is not in `values`'
    assert says in trouble.unblocks
    assert trouble.look == "gapless quarantine list shop_orders"
    assert getattr(found.partition_ids[0], state) == 2
    several = only_trouble(status(sink=sink_facts(exceptions=[{**row, "details": 2}])))
    assert several.what == '2 records: unknown_value, such as status "refunded" is not in `values`'


def test_a_held_sweep_a_late_mark_and_dead_events() -> None:
    snapshot = {
        "partition_id": OWNER, "mapping": "shop_orders", "snapshot": "s-1", "state": "held",
        "listed": 10, "swept": 0, "unreadable": 0, "note": "4 of 10 rows", "at": MOMENT,
        "completed": 5,
    }  # fmt: skip
    mark = {
        "partition_id": OWNER, "kind": "interval_complete", "plan": "interval", "scope": "x",
        "applied_at": MOMENT - timedelta(hours=1), "partition": NUMBER, "offset": 5,
    }  # fmt: skip
    dead = {"state": "dead", "count": 4, "since": MOMENT, "error": "x"}
    found = status(sink=sink_facts(snapshots=[snapshot], pending_marks=[mark], outbox=[dead]))
    kinds = {trouble.kind: trouble for trouble in found.troubles}
    assert set(kinds) == {"held sweep", "pending mark", "dead events"}
    assert kinds["held sweep"].unblocks == "gapless release-sweep shop/orders s-1"
    assert (found.dead_events, found.partition_ids[0].pending_marks) == (4, 1)
    young = {**mark, "applied_at": MOMENT - timedelta(minutes=1)}
    assert status(sink=sink_facts(pending_marks=[young])).troubles == ()


def test_a_transaction_that_does_not_end() -> None:
    facts = log_facts(open_since_ms={2: (NOW - 121 * SECOND) // 1000})
    assert only_trouble(status(facts)).kind == "open transaction"
    assert status(log_facts(open_since_ms={2: (NOW - 60 * SECOND) // 1000})).troubles == ()


@pytest.mark.parametrize(("days", "kind"), [(20, None), (22, "horizon"), (31, "horizon")])
def test_a_horizon_that_comes_near(days: int, kind: str | None) -> None:
    before = (MOMENT - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    late = PlanState(definition_hash="h", complete_before=before)
    found = status(log_facts(checkpoint(plans={"interval": late})))
    assert [trouble.kind for trouble in found.troubles] == ([kind] if kind else [])
    if days == 31:
        assert "what is older is lost" in found.troubles[0].what


def test_the_topics_horizon_counts_against_apply() -> None:
    facts = log_facts(
        waiting_since_ms={NUMBER: (NOW - 5400 * SECOND) // 1000},
        topic={"cleanup.policy": "compact,delete", "retention.ms": "7200000"},
    )
    (one,) = status(facts).partition_ids
    assert (one.horizons.share_used, one.horizons.time_left_s) == (0.75, 1800.0)
    assert one.horizons.topic_observed_s == 3600.0


def test_a_cursors_age_counts_against_its_lifetime() -> None:
    expected = Expected({("shop", "orders"): ExpectedStream(5.0, 0.0, None, 100.0, None)}, (), {})
    plan = PlanState(definition_hash="h", cursor="c", cursor_issued_at=NOW - 80 * SECOND,
                     polled_at=NOW - 4 * SECOND)  # fmt: skip
    facts = log_facts(checkpoint(plans={"cursor": plan}))
    found = assemble(Settings(), NOW, facts, sink_facts(), expected)
    assert found.partition_ids[0].horizons.share_used == 0.8
    assert "cursor of 10:42:06, 4 s behind" in to_text(found)


def test_a_keyset_shows_how_far_it_is_complete() -> None:
    before = (MOMENT - timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    plans = {"keyset": PlanState(definition_hash="h", complete_before=before)}
    found = status(log_facts(checkpoint(plans=plans)))
    assert found.partition_ids[0].ingest_lag_s == 120.0
    assert "complete through 10:40:10, 120 s behind   0 intervals open" in to_text(found)


def test_a_stream_with_runs_may_be_one_run_behind() -> None:
    folder = Path(__file__).parents[1] / "definitions"
    [stream] = expected(load_file(folder / "sources" / "watchtower.yaml")).streams.values()
    assert (stream.every_s, stream.settle_s) == (86_400.0, 120.0)


def test_open_intervals_and_snapshots_show_how_far_they_are() -> None:
    walk = Walk(scope="s", passes=[PassRange(pass_="p", first=1, last=7, parts=7, records=700)])
    interval = OpenInterval(start="2026-11-08T10:00:00.000000Z", end="x", reason="due", walk=walk)
    plans = {
        "interval": PlanState(definition_hash="h", open=[interval]),
        "snapshot": PlanState(definition_hash="h", walk=walk, polled_at=NOW - 86_400 * SECOND),
    }
    found = status(log_facts(checkpoint(plans=plans)))
    (one,) = found.partition_ids
    assert one.source is not None
    assert one.source.plans[0].open[0].records == 700
    assert one.next_snapshot_at == NOW + 6 * 86_400 * SECOND
    text = to_text(found)
    assert "1 intervals open" in text
    assert "being read: 7 pages, 700 records so far" in text


def test_kafka_away() -> None:
    found = status(log="no broker")
    (one,) = found.partition_ids
    assert (found.kafka, one.state, one.source) == ("no broker", "unknown", None)
    assert one.applied.next_offset_to_apply == 48_214
    assert "Kafka cannot be asked" in to_text(found)


def test_pages_that_nobody_has_begun_to_apply() -> None:
    (one,) = status(sink=sink_facts(positions=[])).partition_ids
    assert (one.state, one.lag_s, one.applied.records_behind) == ("behind", None, 48_214)
    empty = log_facts(ends={number: Bounds(0, 0, 0) for number in range(8)})
    (one,) = status(empty, sink_facts(positions=[])).partition_ids
    assert (one.state, one.lag_s) == ("flowing", 0.0)


def test_a_lag_is_not_zero_before_anything_is_complete() -> None:
    facts = log_facts(checkpoint(plans={"interval": PlanState(definition_hash="h")}))
    assert status(facts).partition_ids[0].lag_s is None
    facts.waiting_since_ms = {NUMBER: (NOW - 500 * SECOND) // 1000}
    assert status(facts).partition_ids[0].lag_s == 500.0


def test_a_stream_that_has_not_started() -> None:
    facts = log_facts()
    facts.checkpoints = {}
    (one,) = status(facts, sink_facts(positions=[], coverage=[], outcomes={})).partition_ids
    assert (one.state, one.lag_s) == ("not started", None)


def test_many_partition_ids_get_one_line_each() -> None:
    names = tuple(f"shop/orders/t{number:02d}" for number in range(30))
    facts = log_facts()
    facts.checkpoints = {
        name: CheckpointRecord(0, 1, checkpoint(partition_id=name)) for name in names
    }
    sink = sink_facts(positions=[position(partition=number) for number in range(8)])
    found = assemble(Settings(), NOW, facts, sink, Expected(EXPECTED.streams, (), {}))
    lines = to_text(found).splitlines()
    assert len([line for line in lines if line.startswith("shop/orders/t")]) == 30
    assert len(lines) < 45


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (63, "63 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (172800, "2 d"),
        (604_790, "7 d"),
        (None, "unknown"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_moments_never_fail() -> None:
    assert moment(1 << 62, NOW) == "out of range"
    assert moment(None, NOW) == "unknown"


def test_who_was_removed_is_not_late_and_alerts_nobody() -> None:
    """Its checkpoint stays, for the day on which it comes back."""
    late = PlanState(definition_hash="h", complete_before="2026-01-01T00:00:00.000000Z")
    blocked = Blocked("401", NOW, "a token")
    facts = log_facts(checkpoint(plans={"interval": late}, blocked=blocked))
    gone = Expected(EXPECTED.streams, (), {}, frozenset({"shop"}))
    found = assemble(Settings(), NOW, facts, sink_facts(), gone)
    (one,) = found.partition_ids
    assert (one.state, one.ingest_lag_s, one.horizons.share_used) == ("removed", None, None)
    assert found.troubles == ()


def test_tenants_that_cannot_be_read_are_told_and_remove_nobody() -> None:
    away = Expected(EXPECTED.streams, (), {}, frozenset(), {"shop": "tenants.yaml:3  no id"})
    found = assemble(Settings(), NOW, log_facts(), sink_facts(), away)
    assert found.partition_ids[0].state == "flowing"
    trouble = only_trouble(found)
    assert (trouble.kind, "tenants.yaml:3" in trouble.what) == ("tenants", True)

"""Status while the sink is in trouble: what is known, what is unknown, what blocks and since when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.facts.deployment import LogFacts
from ops.facts.log import Mirrored
from ops.monitor.page import page
from ops.status import Status
from ops.status.as_json import to_json
from ops.status.model import AppliedStatus
from ops.status.sink import pause_of
from ops.status.text import to_text
from schemas.log.pause import Pause
from tests.unit.ops.test_status import (
    MOMENT,
    NOW,
    NUMBER,
    SECOND,
    log_facts,
    only_trouble,
    position,
    sink_facts,
    status,
)

WHY = "Postgres at db cannot be reached: connection refused.\nIs it running?"
FULL = Pause("disk_full", NOW - 90 * SECOND, "a-1")


def log(offset: int = 48_214, waits_s: int | None = None, pause: Pause | None = None) -> LogFacts:
    """What the log says: apply mirrored `offset`, and the record behind it is `waits_s` old."""
    waiting = {} if waits_s is None else {NUMBER: (NOW - waits_s * SECOND) // 1000}
    return log_facts(mirrored={NUMBER: Mirrored(offset, pause)}, waiting_since_ms=waiting)


def applied(found: Status) -> AppliedStatus:
    return found.partition_ids[0].applied


def test_away_and_everything_was_applied_by_what_kafka_knows() -> None:
    found = status(log(), WHY)
    (one,) = found.partition_ids
    assert (one.state, one.lag_s, one.ingest_lag_s) == ("unknown", None, 63.0)
    assert (one.applied.next_offset_to_apply, one.applied.mirrored) == (None, 48_214)
    assert (one.applied.lag_s, one.applied.lag_at_most_s) == (None, 0.0)
    trouble = only_trouble(found)
    assert (trouble.kind, trouble.partition_id, trouble.since) == ("sink", None, None)
    assert "connection refused. Unknown: the applied offset" in trouble.what
    assert "everything in the log was applied" in trouble.what
    assert "goes on by itself" in trouble.unblocks


def test_away_while_pages_wait_is_blocked_since_the_first_of_them() -> None:
    found = status(log(48_000, 500), WHY)
    (one,) = found.partition_ids
    assert (one.state, one.lag_s, one.applied.lag_at_most_s) == ("blocked", None, 500.0)
    trouble = only_trouble(found)
    assert trouble.since == NOW - 500 * SECOND
    assert "at most 214 records of the log wait" in trouble.what


def test_a_moment_of_waiting_is_not_yet_blocked() -> None:
    assert status(log(48_000, 10), WHY).partition_ids[0].state == "unknown"


def test_away_and_kafka_knows_nothing_of_apply() -> None:
    found = status(log_facts(), WHY)
    assert found.partition_ids[0].state == "unknown"
    assert applied(found).lag_at_most_s is None
    assert "no mirrored offset either" in only_trouble(found).what


def test_the_topics_retention_is_watched_by_what_kafka_knows() -> None:
    """That is when it counts: pages keep landing, and nobody takes them out."""
    facts = log(48_000, 5400)
    facts.topic = {"cleanup.policy": "compact,delete", "retention.ms": "7200000"}
    found = status(facts, WHY)
    assert found.partition_ids[0].horizons.share_used == 0.75
    assert [trouble.kind for trouble in found.troubles] == ["sink", "horizon"]


def test_the_text_says_what_is_known_and_what_is_not() -> None:
    text = to_text(status(log(48_000, 500), WHY))
    for part in (
        "Postgres cannot be asked", "blocked      lag unknown",
        f"unknown, at least 48,000 of 48,214 in partition {NUMBER}, 8 min behind at most",
        "complete through 10:41:07, 63 s behind",
        "coverage, snapshots, outcomes and exceptions: Postgres has them",
        "Blocked: sink   Postgres at db cannot be reached: connection refused. Unknown:",
        "since 10:33:50",
    ):  # fmt: skip
        assert part in text, part
    assert "lag 0 s" not in text
    assert "flowing" not in text


def test_json_has_null_for_what_is_unknown() -> None:
    found: dict[str, Any] = to_json(status(log(48_000, 500), WHY))
    one = found["partition_ids"][0]
    assert found["postgres"] == WHY
    for name in ("lag_s", "outcomes", "quarantined", "retryable", "pending_marks"):
        assert one[name] is None, name
    for name in ("next_offset_to_apply", "records_behind", "lag_s", "owner"):
        assert one["applied"][name] is None, name
    for name in ("unsent_events", "dead_events", "unsent_copies", "unrelayed_copies"):
        assert found[name] is None, name
    assert (one["state"], one["applied"]["mirrored"]) == ("blocked", 48_000)
    assert found["troubles"][0]["kind"] == "sink"
    assert found["troubles"][0]["since"] == "2026-11-08T10:33:50.000000Z"


def test_the_page_says_so_too() -> None:
    text = page(status(log(48_000, 500), WHY), 5)
    assert "unknown, at least 48,000 of 48,214" in text
    assert "Nothing waits for anybody" not in text


def paused(why: Pause = FULL, **changes: Any) -> Status:
    """Postgres can be asked, and apply says that it cannot write there, or why else it waits."""
    before = MOMENT - timedelta(seconds=200)
    row = position(48_000, checkpointed_at=before, **changes)
    return status(log(48_000, 80, why), sink_facts(positions=[row]))


def test_apply_that_waits_for_its_sink_says_why() -> None:
    found = paused()
    (one,) = found.partition_ids
    assert (one.state, one.lag_s) == ("blocked", 80.0)
    trouble = only_trouble(found)
    assert (trouble.kind, trouble.since) == ("sink", NOW - 90 * SECOND)
    assert trouble.what == "apply waits for Postgres: disk_full, says worker a-1"
    assert trouble.unblocks == "space on the disk of Postgres; apply then goes on by itself"
    shown = to_json(found)["partition_ids"][0]["applied"]["pause"]
    assert shown == {"reason": "disk_full", "since": "2026-11-08T10:40:40.000000Z", "worker": "a-1"}


def test_apply_that_waits_for_a_function_does_not_blame_postgres() -> None:
    found = paused(replace(FULL, reason="mapping_function"))
    assert found.partition_ids[0].state == "blocked"
    trouble = only_trouble(found)
    assert (trouble.kind, trouble.since) == ("mapping function", NOW - 90 * SECOND)
    assert "a function of a mapping that cannot be started, says worker a-1" in trouble.what
    assert "importable where apply runs" in trouble.unblocks


def test_away_and_apply_says_why_it_waits() -> None:
    found = status(log(48_000, 500, replace(FULL, reason="unreachable")), WHY)
    assert [trouble.kind for trouble in found.troubles] == ["sink", "sink"]
    assert "unreachable, says worker a-1" in found.troubles[1].what


@pytest.mark.parametrize(
    "row",
    [
        None,
        position(owner="b-2", checkpointed_at=MOMENT - timedelta(seconds=200)),  # taken over
        position(owner=None, checkpointed_at=MOMENT - timedelta(seconds=200)),
        position(owner="a-1", checkpointed_at=MOMENT),  # applied since
    ],
)
def test_a_note_that_postgres_contradicts_is_not_believed(row: dict[str, Any] | None) -> None:
    mirrored = Mirrored(48_000, FULL)
    assert pause_of(mirrored, row, asked=True) is None
    assert pause_of(mirrored, None, asked=False) == FULL


@given(st.integers(0, 48_214), st.one_of(st.none(), st.integers(0, 10_000)))
def test_without_postgres_nothing_flows_and_no_lag_is_claimed(
    offset: int, waits_s: int | None
) -> None:
    found = status(log(offset, waits_s), WHY)
    (one,) = found.partition_ids
    assert one.state in ("unknown", "blocked")
    assert (one.lag_s, one.applied.lag_s, one.applied.records_behind) == (None, None, None)
    assert any(trouble.kind == "sink" for trouble in found.troubles)
    assert "lag 0 s" not in to_text(found)

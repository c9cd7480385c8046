"""Status: records that wait, by mapping and reason, and what lets them land."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ops.status.text import to_text
from tests.unit.ops.test_status import MOMENT, OWNER, only_trouble, sink_facts, status


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("unique", "correct what the database refuses, then gapless quarantine retry orders"),
        ("oversized", "nothing brings the bytes"),
        ("bad_time", "change the mapping; or gapless quarantine dismiss"),
    ],
)
def test_what_cures_a_record_follows_from_its_reason(reason: str, says: str) -> None:
    row = {
        "partition_id": OWNER, "mapping": "orders", "state": "quarantined", "reason": reason,
        "count": 1, "since": MOMENT, "due_at": None, "detail": "x", "details": 1,
    }  # fmt: skip
    unblocks = only_trouble(status(sink=sink_facts(exceptions=[row]))).unblocks
    assert says in unblocks
    assert unblocks.endswith("A newer state of the record that is applied heals it by itself")


def test_open_exceptions_are_counted_by_mapping_and_reason() -> None:
    rows = [
        {
            "partition_id": owner, "mapping": "orders", "state": "quarantined", "reason": "unique",
            "count": count, "since": since, "due_at": None, "detail": "x", "details": 1,
        }
        for owner, count, since in ((OWNER, 2, MOMENT), ("shop/other", 3, MOMENT - timedelta(1)))
    ]  # fmt: skip
    found = status(sink=sink_facts(exceptions=rows))
    assert found.exceptions is not None
    ((one),) = found.exceptions
    assert (one.mapping, one.state, one.reason, one.records) == (
        "orders", "quarantined", "unique", 5,
    )  # fmt: skip
    assert one.since == round((MOMENT - timedelta(1)).timestamp() * 1e6)
    assert status(sink="refused").exceptions is None


def test_errors_of_coverage_are_sightings_of_the_past_beside_what_is_open_now() -> None:
    (covered,) = sink_facts().coverage
    row = {
        "partition_id": OWNER, "mapping": "orders", "state": "quarantined", "reason": "unique",
        "count": 1, "since": MOMENT, "due_at": None, "detail": "x", "details": 1,
    }  # fmt: skip
    for rows, errors, says in (
        ([row], 8, "none failed; 8 sightings had errors when read, 1 record in quarantine now\n"),
        ([], 1, "none failed; 1 sighting had errors when read, 0 records in quarantine now\n"),
    ):
        facts = sink_facts(coverage=[{**covered, "errors": errors}], exceptions=rows)
        assert says in to_text(status(sink=facts))

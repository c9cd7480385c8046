"""Status: records that wait, by mapping and reason, and what lets them land."""

from __future__ import annotations

from datetime import timedelta

import pytest

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
    assert says in only_trouble(status(sink=sink_facts(exceptions=[row]))).unblocks


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

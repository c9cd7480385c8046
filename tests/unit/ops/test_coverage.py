"""Coverage as people read it: neighbours joined, holes named."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ops.coverage import UNSEARCHED, PlanCoverage, group, to_json, to_text


def at(day: int) -> datetime:
    return datetime(2024, 1, day, tzinfo=UTC)


def row(start: int, end: int, state: str = "complete", **other: Any) -> dict[str, Any]:
    return {
        "partition_id": "shop/orders", "plan": "interval", "start_at": at(start), "end_at": at(end),
        "state": state, "run": None, "reason": None, "pages": 1, "records": 10, "errors": 0,
        "completed_at": at(end), **other,
    }  # fmt: skip


def one(*rows: dict[str, Any]) -> PlanCoverage:
    (found,) = group(rows)
    return found


def test_neighbours_that_say_the_same_become_one() -> None:
    found = one(row(1, 2), row(2, 3), row(3, 4, "complete_with_errors", errors=2))
    assert [(s.start_at, s.end_at, s.records) for s in found.stretches] == [
        (at(1), at(3), 20), (at(3), at(4), 10),
    ]  # fmt: skip
    assert found.whole
    assert found.stretches[0].completed_at == at(3)


def test_what_lies_between_was_not_searched() -> None:
    found = one(row(1, 2), row(4, 5))
    assert [s.state for s in found.stretches] == ["complete", UNSEARCHED, "complete"]
    assert not found.whole
    assert "2024-01-02 .. 2024-01-04" in to_text([found], holes_only=True)


def test_failures_and_gaps_are_not_whole() -> None:
    found = one(row(1, 2), row(2, 3, "failed", reason="unsplittable"), row(3, 4, "gap"))
    assert not found.whole
    text = to_text([found], holes_only=True)
    assert "unsplittable" in text
    assert "complete" not in text


def test_partition_ids_and_plans_are_apart() -> None:
    found = list(group([row(1, 2), row(1, 2, plan="cursor"), row(5, 6, partition_id="shop/x")]))
    assert [(f.partition_id, f.plan) for f in found] == [
        ("shop/orders", "interval"), ("shop/orders", "cursor"), ("shop/x", "interval"),
    ]  # fmt: skip
    assert to_json(found)[0]["stretches"][0]["start_at"] == "2024-01-01T00:00:00+00:00"


def test_nothing_yet() -> None:
    assert to_text([]) == "no coverage yet"
    assert to_text([one(row(1, 2))], holes_only=True) == "no holes"


def test_records_are_sightings_and_errors_are_of_when_they_were_read() -> None:
    text = to_text([one(row(1, 2, "complete_with_errors", errors=2))])
    assert "1 pages, 10 sightings, 2 had errors when read" in text
    assert text.endswith("What of these errors is open now: gapless quarantine list")
    assert "quarantine" not in to_text([one(row(1, 2))])

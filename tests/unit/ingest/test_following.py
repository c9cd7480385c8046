"""The line that ingest's log has while long polls go on."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from ingest import following
from ingest.following import Following, line
from schemas.records import Headway, PlanState, Sample, SourceCheckpoint

S = 1_000_000
NOW = 1_780_000_000 * S
PLAN = PlanState(definition_hash="h", complete_before="2026-01-01T00:00:00.000000Z")


def checkpoint(tenant: str, since_s: int, *, start: str | None = None) -> SourceCheckpoint:
    since = NOW - since_s * S
    headway = Headway(
        since=since, start=start, pages=10 * since_s, records=1_000 * since_s,
        samples=[Sample(since, 0, 0, 0)],
    )  # fmt: skip
    return SourceCheckpoint(
        partition_id=f"shop/orders/{tenant}", worker="w", sequence=1, written_at=NOW,
        plans={"interval": PLAN}, headway={"interval": headway},
    )  # fmt: skip


def test_the_line_sums_the_rates_and_names_what_takes_longest() -> None:
    found = Following()
    found.note(checkpoint("a", 100, start="2025-12-01T00:00:00.000000Z"))
    found.note(checkpoint("b", 50))
    found.note(checkpoint("short", 3))
    assert line(found.long(NOW)) == {
        "polls": 2,
        "pages_per_s": 20.0,
        "records_per_s": 2_000,
        "slowest": [
            "shop/orders/b interval: 500 pages, 50,000 records in 50 s",
            (
                "shop/orders/a interval: 1,000 pages, 100,000 records in 100 s, 17% of the range,"
                " 477 s left"
            ),
        ],
    }


def test_polls_that_are_over_or_of_others_are_not_told() -> None:
    found = Following()
    for tenant in ("a", "b", "c"):
        found.note(checkpoint(tenant, 100))
    over = SourceCheckpoint(partition_id="shop/orders/a", worker="w", sequence=2, written_at=NOW)
    found.note(over)
    found.drop(["shop/orders/b", "shop/orders/unknown"])
    assert [name for name, _ in found.long(NOW)] == ["shop/orders/c"]


def test_of_thousands_a_few_are_named() -> None:
    found = Following()
    for number in range(2_000):
        found.note(checkpoint(f"t{number}", 100))
    said = line(found.long(NOW))
    assert said["polls"] == 2_000 and len(str(said)) < 1_000


def test_it_is_told_again_and_again_and_only_while_there_is_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "EVERY_S", 0.0)

    async def told(found: Following, rounds: int) -> list[str]:
        telling = asyncio.create_task(found.tell(lambda: NOW))
        with capture_logs() as logs:
            for _ in range(rounds):
                await asyncio.sleep(0)
        telling.cancel()
        return [str(entry["event"]) for entry in logs]

    found = Following()
    assert asyncio.run(told(found, 10)) == []
    found.note(checkpoint("a", 100))
    assert asyncio.run(told(found, 10)).count("reading") > 2

"""Progress of long polls in the status: text, JSON, metrics and the page, and nothing that is not known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ops.monitor.metrics import PER_POLL
from ops.monitor.page import page
from ops.status import Status
from ops.status.as_json import to_json
from ops.status.text import to_text
from schemas.records import Blocked, Headway, PassRange, PlanState, Sample, SourceCheckpoint, Walk
from tests.unit.ops.test_monitor import value
from tests.unit.ops.test_status import NOW, OWNER, SECOND, checkpoint, log_facts, status

# Half of 2026 until now is read: from January the first 156 of 311 days, in 100 s, at 50 records a page.
HALF = PlanState(definition_hash="h", complete_before="2026-06-06T00:00:00.000000Z")
SINCE = NOW - 105 * SECOND
HEADWAY = Headway(
    since=SINCE, start="2026-01-01T00:00:00.000000Z", pages=2_000, records=100_000,
    samples=[Sample(SINCE, 0, 0, 0)],
)  # fmt: skip


def reading(**changes: Any) -> SourceCheckpoint:
    """A checkpoint in the middle of a backfill; it is five seconds old."""
    found = checkpoint(plans={"interval": HALF}, headway={"interval": HEADWAY})
    return msgspec.structs.replace(found, **changes)


def told(found: SourceCheckpoint) -> Status:
    return status(log_facts(found))


def lines(found: Status) -> list[str]:
    return [line for line in to_text(found).splitlines() if line.startswith("  progress")]


def metric(found: Status, name: str, plan: str = "interval") -> float | None:
    return value(found, name, partition_id=OWNER, plan=plan)


def test_a_backfill_shows_its_share_its_rate_and_the_time_left() -> None:
    found = told(reading())
    assert lines(found) == [
        (
            "  progress           interval: 50% of the range, 94 s left   20.0 pages/s, 1,000 records/s"
            "   2,000 pages, 100,000 records in 105 s"
        )
    ]
    one = to_json(found)["partition_ids"][0]["source"]["plans"][0]["progress"]
    assert (one["pages"], one["records"], one["since"]) == (
        2_000,
        100_000,
        "2026-11-08T10:40:25.000000Z",
    )
    assert metric(found, "gapless_progress_records_per_second") == 1_000.0
    assert metric(found, "gapless_progress_share_ratio") == pytest.approx(0.5007, abs=1e-3)
    assert metric(found, "gapless_progress_left_seconds") == pytest.approx(94.7, abs=1)
    assert "50% of the range" in page(found, 10)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"blocked": Blocked("interval: x", NOW, "y")}, "50% of the range, time left unknown"),
        ({"not_before": NOW + 60 * SECOND}, "50% of the range, time left unknown"),
        ({"written_at": NOW - 1000 * SECOND}, "time left unknown   rate unknown"),
    ],
)
def test_no_time_is_left_where_nothing_moves(changes: dict[str, Any], said: str) -> None:
    found = told(reading(**changes))
    [line] = lines(found)
    assert said in line
    assert metric(found, "gapless_progress_left_seconds") is None
    assert metric(found, "gapless_progress_share_ratio") is not None


def test_a_listing_has_no_share() -> None:
    walk = Walk(scope="s", passes=[PassRange(pass_="p", first=1, last=40, parts=40, records=400)])
    plan = PlanState(definition_hash="h", snapshot_id="s", walk=walk)
    listed = Headway(since=SINCE, pages=40, records=400, samples=[Sample(SINCE, 0, 0, 0)])
    found = told(reading(plans={"snapshot": plan}, headway={"snapshot": listed}))
    assert lines(found) == [
        "  progress           snapshot: 40 pages, 400 records in 105 s   0.4 pages/s, 4 records/s"
    ]
    assert metric(found, "gapless_progress_share_ratio", "snapshot") is None
    assert metric(found, "gapless_progress_pages_per_second", "snapshot") == 0.4


@pytest.mark.parametrize("headway", [{}, {"interval": Headway(since=NOW - 6 * SECOND, pages=1)}])
def test_short_polls_are_nothing_to_follow(headway: dict[str, Headway]) -> None:
    found = told(reading(headway=headway))
    assert lines(found) == [] and "pages/s" not in page(found, 10)
    assert all(metric(found, name) is None for name in PER_POLL)

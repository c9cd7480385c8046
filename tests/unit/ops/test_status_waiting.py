"""A provider that says "not now": shown, and late once it is late, for however long it may be meant."""

from __future__ import annotations

import pytest

from schemas.records import PlanState
from tests.unit.ops.test_status import (
    NOW,
    OWNER,
    SECOND,
    checkpoint,
    log_facts,
    only_trouble,
    status,
)


def test_a_provider_that_is_not_asked_yet() -> None:
    found = status(log_facts(checkpoint(not_before=NOW + 90 * SECOND)))
    assert found.partition_ids[0].state == "waiting"
    assert only_trouble(found).what == "the provider is not asked for another 90 s"
    assert only_trouble(found).unblocks.endswith(f"gapless control resume {OWNER}")
    assert status(log_facts(checkpoint(not_before=NOW - 1))).troubles == ()


def test_who_waits_for_so_long_that_it_is_late_is_behind_and_alerts() -> None:
    """A provider may say "in a year", or again and again "in an hour"."""
    late = PlanState(definition_hash="h", complete_before="2026-11-08T09:42:10.000000Z")
    year = 366 * 86_400 * SECOND
    found = status(log_facts(checkpoint(plans={"interval": late}, not_before=NOW + year)))
    assert found.partition_ids[0].state == "behind"
    assert only_trouble(found).what == "the provider is not asked for another 366 d"


@pytest.mark.parametrize(("waited_s", "state"), [(30, "waiting"), (7_200, "behind")])
def test_who_waits_before_anything_was_read(waited_s: int, state: str) -> None:
    never = PlanState(definition_hash="h")
    at = NOW - waited_s * SECOND
    told = checkpoint(plans={"interval": never}, not_before=NOW + 1, written_at=at)
    assert status(log_facts(told)).partition_ids[0].state == state

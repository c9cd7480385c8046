"""What the provider forgets, caps, re-creates or never says."""

from __future__ import annotations

import pytest

from schemas import codec
from schemas.records import SourceCheckpoint
from tests.contract.hostile.scene import FEED, KEYSET, LINKED, LISTING, WINDOW, Scene, text, us

HOUR_S = 3_600.0
SPLIT = (
    "records: body.items",
    "records: body.items\n    errors: [{when: {status: 422}, do: split_interval}]",
)
RETENTION = ("schedule: {every: 30s}", "schedule: {every: 30s}\n    upstream_retention: 1h")


def test_a_backlog_above_the_page_cap_while_the_provider_purges(scene: Scene) -> None:
    size = ("size: 3", "size: 500")
    scene.poll(WINDOW, RETENTION, size)
    scene.move(3_400)
    scene.fill(3_300, ago_s=3_350)
    scene.provider.settings(retention_s=HOUR_S, page_cap=50)
    most = [0]

    def purge(emissions: int) -> None:
        most[0] = emissions
        if emissions < 30:
            scene.move(90)

    scene.poll(WINDOW, RETENTION, size, between=purge)
    assert scene.blocked == "" and most[0] >= 10
    gaps = [(us(mark.start or ""), us(mark.end or "")) for mark in scene.marks("gap")]
    assert gaps, "rows were purged before they were read, and nothing says so"
    # What no claim reaches lies in a gap; what a claim reaches was found.
    assert scene.skipped() == []
    told = scene.claimed() + gaps
    stamps = [us(fact.updated_at) for fact in scene.live()]
    assert all(any(start <= at < end for start, end in told) for at in stamps)
    assert 0 < len(scene.unclaimed()) < len(stamps)


def test_a_state_older_than_the_retention_is_a_gap_said_loudly(scene: Scene) -> None:
    scene.fill(3, ago_s=600)
    scene.poll(WINDOW, RETENTION)
    scene.whole()
    lost = scene.put()
    scene.provider.settings(retention_s=HOUR_S)
    scene.move(36 * HOUR_S)
    kept = scene.put()
    scene.poll(WINDOW, RETENTION)
    gaps = scene.marks("gap")
    assert any((g.start or "") <= lost["updated_at"] < (g.end or "") for g in gaps)
    assert (lost["id"], 1) not in scene.found() and lost["id"] in scene.unclaimed()
    assert (kept["id"], 1) in scene.found() and scene.skipped() == []


def test_a_retention_that_nobody_declared_is_found_by_the_refusals(scene: Scene) -> None:
    scene.fill(3, ago_s=600)
    rule = (
        "records: body.items",
        "records: body.items\n    errors: [{when: {status: 410}, do: source_gap}]",
    )
    scene.poll(WINDOW, rule)
    lost = scene.put()
    scene.provider.settings(retention_s=HOUR_S, retention_answer="refuse")
    scene.move(36 * HOUR_S)
    kept = scene.put()
    scene.poll(WINDOW, rule)
    assert any((g.start or "") <= lost["updated_at"] < (g.end or "") for g in scene.marks("gap"))
    assert (kept["id"], 1) in scene.found()
    assert set(scene.skipped()) <= set()


@pytest.mark.parametrize("answer", ["refuse", "truncate"])
def test_a_result_cap_is_reached_and_the_interval_divided(scene: Scene, answer: str) -> None:
    scene.fill(40)
    scene.provider.settings(result_cap=6, result_cap_answer=answer)
    change = (
        [SPLIT] if answer == "refuse" else [("width: 100000d", "width: 100000d, result_cap: 6")]
    )
    scene.poll(WINDOW, *change)
    scene.whole()


@pytest.mark.parametrize("answer", ["refuse", "truncate"])
def test_a_hot_second_that_cannot_be_divided_fails_visibly_and_alone(
    scene: Scene, answer: str
) -> None:
    scene.fill(5, ago_s=7_200)
    hot = (scene.now_us() - 3_600_000_000) // 1_000_000 * 1_000_000
    crowd = scene.provider.put_together([{"updated_at": text(hot)} for _ in range(9)], scene.tenant)
    scene.fill(5, ago_s=1_800)
    scene.provider.settings(result_cap=6, result_cap_answer=answer)
    change = (
        [SPLIT] if answer == "refuse" else [("width: 100000d", "width: 100000d, result_cap: 6")]
    )
    scene.poll(WINDOW, *change, ("format: rfc3339_ms", "format: rfc3339"))
    [failed] = scene.state.plans["interval"].failed
    assert (
        us(failed.start) <= hot < us(failed.end) and us(failed.end) - us(failed.start) == 1_000_000
    )
    assert "unsplittable" in failed.reason and scene.marks("interval_failed")
    assert sorted(scene.unclaimed()) == sorted(one["id"] for one in crowd)
    assert scene.skipped() == []
    scene.provider.settings(result_cap=None)
    scene.poll(WINDOW, *change[:1] if answer == "refuse" else (
        ("width: 100000d", "width: 100000d, result_cap: 60"),
    ), ("format: rfc3339_ms", "format: rfc3339"))  # fmt: skip
    assert scene.state.plans["interval"].failed == []
    scene.whole()


def test_300_000_rows_on_one_date_and_the_checkpoint_stays_small(scene: Scene) -> None:
    day = (scene.now_us() - 86_400_000_000) // 1_000_000 * 1_000_000
    stamp = text(day)
    scene.provider.seed(scene.tenant, count=300_000, from_=stamp, to_=stamp)
    scene.provider.settings(page_cap=10_000)
    largest = [0]

    def weigh(emissions: int) -> None:
        state = scene.state
        checkpoint = SourceCheckpoint(
            partition_id="crm/rows", worker="w", sequence=1, written_at=1, plans=state.plans
        )
        largest[0] = max(largest[0], len(codec.encode(checkpoint)))

    change = ("body_max: 1MiB", "body_max: 32MiB"), ("size: 3", "size: 10000")
    scene.poll(WINDOW, *change, between=weigh)
    assert 0 < largest[0] < 2_000
    assert scene.blocked == ""
    [(start, end)] = scene.claimed()
    assert start <= day < end
    assert len({record[:20] for record in scene.records}) == 300_000


@pytest.mark.parametrize("times", [1, 2])
def test_a_delta_link_that_is_gone_is_a_gap_and_everything_again(scene: Scene, times: int) -> None:
    """410 on a delta link; twice: a sync token invalidated again as soon as it was renewed."""
    scene.fill(7)
    scene.poll(FEED)
    scene.provider.delete(sorted(scene.truth())[0], scene.tenant)
    gone = f"/t/{scene.tenant}/accounts/changes.*since="
    for _ in range(times):
        scene.provider.faults({"path": gone, "kind": "status", "status": 410, "nth": 1})
        scene.put()
        scene.poll(FEED)
    assert scene.blocked == ""
    assert len(scene.marks("gap")) == times
    assert scene.replayed() == scene.truth()


@pytest.mark.parametrize("rows", [3, 12], ids=["its_head_is_below", "only_its_identity_tells"])
def test_a_database_that_is_created_again_behind_a_cursor(scene: Scene, rows: int) -> None:
    scene.fill(7)
    scene.poll(FEED)
    scene.provider.recreate(scene.tenant, keep=False)
    scene.fill(rows)
    scene.poll(FEED)
    [gap] = scene.marks("gap")
    assert "re-created" in (gap.reason or "")
    assert scene.state.source_epoch == 1
    newest = {page.source_epoch for page in scene.pages}
    assert newest == {0, 1}
    assert scene.truth().items() <= scene.replayed().items()


@pytest.mark.parametrize("definition", [WINDOW, LINKED], ids=["window", "linked"])
def test_a_filter_that_is_silently_ignored_loses_nothing(scene: Scene, definition: str) -> None:
    scene.fill(8)
    scene.provider.settings(ignore_filter=True)
    scene.poll(definition)
    scene.put()
    scene.poll(definition)
    scene.whole()


def test_a_keyset_filter_that_is_silently_ignored_stalls_visibly(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(ignore_filter=True)
    scene.poll(KEYSET)
    assert scene.blocked.startswith("keyset: ") and scene.claimed() == []


def test_a_direction_that_is_silently_ignored_stalls_visibly(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(descending=True)
    scene.poll(LINKED)
    assert "not in the declared order" in scene.blocked and scene.claimed() == []


def test_a_payload_that_changes_without_its_stamp_is_found_by_the_snapshot(scene: Scene) -> None:
    scene.fill(8)
    both = (
        "    schedule: {every: 30s}\n",
        """\
      snapshot:
        every: 1h
        get: /t/TENANT/accounts/by-id
        params: {changed_from: null, changed_to: null, page_token: null, after_id: "{last.id}"}
        pages: {next: null, size: 3, end: {body.has_more: false}, stable: true}
    schedule: {every: 30s}
""",
    )
    scene.poll(WINDOW, both)
    changed = scene.live()[2]
    scene.put(id=changed.id, updated_at=changed.updated_at, fields={"note": "unstamped"})
    scene.poll(WINDOW, both)
    assert scene.skipped() == [changed.id], "the filter by time cannot know of it"
    scene.poll(WINDOW, both, wait_s=2 * HOUR_S)
    scene.whole()
    assert len(scene.marks("snapshot_complete")) == 2


def test_a_listing_that_shrinks_below_its_total_completes_no_snapshot(scene: Scene) -> None:
    scene.fill(8)
    body = '{"items": [], "total": 8}'
    path = f"/t/{scene.tenant}/accounts/all"
    scene.provider.faults({"path": path, "kind": "status", "status": 200, "body": body, "every": 2})
    scene.poll(LISTING)
    assert scene.blocked and scene.marks("snapshot_complete") == []

"""Marks become coverage once every page they name has its outcomes, and never before."""

from __future__ import annotations

import msgspec

from schemas.records import Mark
from tests.integration.apply.scene import AT_US, Scene, account, complete, page

OWNER = "crm/accounts/north"


def scope(start: str, end: str) -> str:
    return f"2026-03-{start}:00:00.000000Z~2026-03-{end}:00:00.000000Z"


def coverage(scene: Scene) -> list[tuple[object, ...]]:
    return scene.rows(
        "SELECT to_char(start_at, 'DD\"T\"HH24'), to_char(end_at, 'DD\"T\"HH24'), state, pages, records"
        " FROM gapless.coverage ORDER BY partition_id, start_at"
    )


def interval(kind: str, start: str, end: str) -> Mark:
    """A mark without pages."""
    first, _, last = scope(start, end).partition("~")
    return Mark(
        kind=kind, partition_id=OWNER, plan="interval", scope=scope(start, end),  # type: ignore[arg-type]
        start=first, end=last, reason="unsplittable", at=AT_US,
    )  # fmt: skip


def test_a_mark_waits_for_pages_that_come_late(scene: Scene) -> None:
    first = page([account(1)], scope=scope("01T00", "01T01"))
    late = page([account(2)], scope=scope("01T00", "01T01"), number=2)
    scene.put(first, complete(first, late))
    with scene.applying():
        scene.settle()
        assert scene.value("SELECT state FROM gapless.mark") == "pending"
        assert coverage(scene) == []
        scene.put(late)
        scene.settle()
    assert scene.value("SELECT state FROM gapless.mark") == "done"
    assert coverage(scene) == [("01T00", "01T01", "complete", 2, 2)]


def test_a_page_rewritten_behind_its_mark_counts_once(scene: Scene) -> None:
    first = page([account(1), account(2)], scope=scope("01T00", "01T01"))
    offset = scene.put(first, complete(first))[0]
    with scene.applying():
        scene.settle()
        scene.put(msgspec.structs.replace(first, original_offset=offset))
        scene.put(complete(first, run="again"))
        scene.settle()
    assert scene.rows("SELECT run, records FROM gapless.coverage") == [("again", 2)]
    assert scene.value("SELECT count(*) FROM gapless.mark WHERE state = 'pending'") == 0
    # the rewritten page holds the very observations that stand in the rows
    assert scene.balance() == {"applied": 4}


def test_neighbours_merge_and_lookbacks_do_not_overlap(scene: Scene) -> None:
    one = page([account(1)], scope=scope("01T00", "01T02"))
    two = page([account(2)], scope=scope("01T01", "01T03"), pass_="p2")
    scene.put(one, complete(one), two, complete(two), interval("caught_up", "01T03", "01T05"))
    with scene.applying():
        scene.settle()
    assert coverage(scene) == [("01T00", "01T05", "complete", 2, 2)]


def test_failed_intervals_and_gaps_stay_visible(scene: Scene) -> None:
    one = page([account(1)], scope=scope("01T00", "01T01"))
    again = page([account(2)], scope=scope("01T01", "01T02"), pass_="p2")
    with scene.applying():
        scene.put(
            one,
            complete(one),
            interval("interval_failed", "01T01", "01T02"),
            interval("gap", "01T02", "01T03"),
            interval("interval_failed", "01T00", "01T01"),
        )
        scene.settle()
        assert coverage(scene) == [
            ("01T00", "01T01", "complete", 1, 1),
            ("01T01", "01T02", "failed", 0, 0),
            ("01T02", "01T03", "gap", 0, 0),
        ]
        assert scene.rows("SELECT cause, from_text FROM gapless.gap") == [
            ("unsplittable", "2026-03-01T02:00:00.000000Z")
        ]
        scene.put(again, complete(again))
        scene.settle()
    assert coverage(scene) == [
        ("01T00", "01T02", "complete", 2, 2),
        ("01T02", "01T03", "gap", 0, 0),
    ]


def test_a_cursor_covers_from_walk_to_walk(scene: Scene) -> None:
    one = page([account(1)], plan="cursor", scope="walk-1")
    two = page([account(2)], plan="cursor", scope="walk-2", pass_="p2")
    hour_us = 3_600_000_000
    scene.put(
        one,
        complete(one, start="0", end="17", at=AT_US),
        two,
        complete(two, start="17", end="20", at=AT_US + hour_us),
    )
    with scene.applying():
        scene.settle()
    seconds = scene.value("SELECT extract(epoch FROM end_at - start_at)::int FROM gapless.coverage")
    assert seconds == 3600
    assert scene.value("SELECT records FROM gapless.coverage") == 2

"""Planted faults of marks and source checkpoints: each must be found by its name."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ops.audit.facts import Logged, Page, Position
from schemas.keys import mark_key
from schemas.records import (
    Control,
    Done,
    KeptSnapshot,
    Mark,
    Named,
    OpenInterval,
    PassRange,
    PlanState,
    SourceCheckpoint,
    Walk,
)
from tests.unit.ops.audit_world import (
    DAYS,
    OWNER,
    World,
    interval_mark,
    ledger,
    mark_row,
    named_pass,
    page,
    put,
    world,
)


def _claim(found: World, **changes: object) -> None:
    """Change the plan's state in the checkpoint."""
    assert found.checkpoint is not None
    plan = msgspec.structs.replace(found.checkpoint.plans["interval"], **changes)
    found.checkpoint = msgspec.structs.replace(found.checkpoint, plans={"interval": plan})


def _name(found: World, offset: int, key: str) -> None:
    assert found.checkpoint is not None
    found.checkpoint = msgspec.structs.replace(found.checkpoint, named=Named(offset, key))


def _mark(found: World, offset: int) -> Mark:
    value = next(r.value for r in found.log if r.offset == offset)
    assert isinstance(value, Mark)
    return value


@pytest.mark.parametrize(
    "named",
    [
        PassRange(pass_="a", first=1, last=2, parts=2, records=6),
        PassRange(pass_="a", first=1, last=2, parts=3, records=5),
        PassRange(pass_="a", first=1, last=3, parts=3, records=5),
        PassRange(pass_="q", first=1, last=2, parts=2, records=5),
    ],
)
def test_a_mark_that_names_what_the_log_does_not_have(named: PassRange) -> None:
    found = world()
    found.replace_mark(12, interval_mark(DAYS[0], DAYS[1], named))
    assert found.kinds()["mark_without_pages"] == 1


def test_a_page_that_is_missing_in_the_log() -> None:
    found = world()
    found.log = [r for r in found.log if r.offset != 11]
    assert found.kinds() == {"outcome_without_page": 1, "mark_without_pages": 1}


def test_a_mark_in_front_of_its_pages() -> None:
    found = world()
    found.log = [r for r in found.log if r.offset != 12]
    found.marks = [m for m in found.marks if m.offset != 12]
    mark = interval_mark(DAYS[0], DAYS[1], named_pass("a", 1, 2, 5))
    put(found.log, 9, mark)
    found.marks.append(mark_row(9, mark))
    assert found.kinds() == {"mark_without_pages": 1}


def test_a_tombstone_of_a_page_that_a_mark_still_names() -> None:
    found = world()
    key = next(r.key for r in found.log if r.offset == 11)
    found.log.append(Logged(30, key, None))
    assert found.kinds() == {"mark_without_pages": 1}
    found.log.append(Logged(31, mark_key(_mark(found, 12)), None))  # now the mark went with it
    assert found.kinds() == {}


def test_a_mark_that_apply_skipped() -> None:
    found = world()
    found.marks = [m for m in found.marks if m.offset != 12]
    assert found.kinds() == {"mark_not_applied": 1}


def test_a_mark_of_postgres_that_the_log_lacks() -> None:
    found = world()
    found.marks.append(replace(found.marks[0], offset=13))
    assert found.kinds() == {"mark_without_record": 1}


def test_a_mark_of_postgres_that_says_something_else() -> None:
    found = world()
    found.marks[0] = replace(found.marks[0], scope="x")
    assert found.kinds() == {"mark_without_record": 1}


def test_a_mark_that_is_pending_for_too_long() -> None:
    found = world()
    found.marks[0] = replace(found.marks[0], state="pending")
    assert found.kinds() == {"mark_pending": 1}
    found.marks[0] = replace(found.marks[0], at_us=99)
    assert found.kinds() == {}


def test_a_checkpoint_that_names_another_record() -> None:
    found = world()
    _name(found, 20, mark_key(_mark(found, 21)))
    assert found.kinds() == {"checkpoint_names_nothing": 1}


@pytest.mark.parametrize("offset", [25, 60])
def test_a_checkpoint_that_names_what_is_not_there(offset: int) -> None:
    found = world()
    _name(found, offset, mark_key(_mark(found, 21)))
    assert found.kinds() == {"checkpoint_names_nothing": 1}


def test_a_checkpoint_may_name_what_retention_deleted() -> None:
    found = world()
    _name(found, 3, "shop/orders/interval/x/y/1/1")
    found.low = 5
    assert found.kinds() == {}


def test_a_named_page_that_an_erasure_rewrote() -> None:
    found = world()
    record = next(r for r in found.log if r.offset == 20)
    assert isinstance(record.value, Page)
    _name(found, 20, record.key)
    found.log.append(Logged(30, record.key, replace(record.value, original_offset=20)))
    found.log.remove(record)
    assert found.kinds() == {}


def test_complete_before_ahead_of_the_marks() -> None:
    found = world()
    _claim(found, complete_before=DAYS[3])
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_complete_before_over_a_hole_between_marks() -> None:
    found = world()
    found.replace_mark(12, interval_mark(DAYS[0], "2024-01-01T12:00:00.000000Z"))
    findings, _ = found.judge()
    assert findings.counts == {"checkpoint_ahead": 1}
    assert "2024-01-01T12:00:00.000000Z to 2024-01-02" in findings.kept[0].what


def test_complete_before_without_any_mark() -> None:
    found = world()
    found.log = [r for r in found.log if not isinstance(r.value, Mark)]
    found.marks = []
    _name(found, 20, next(r.key for r in found.log if r.offset == 20))
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_a_stream_that_has_just_begun_claims_nothing() -> None:
    fresh = World()
    fresh.checkpoint = SourceCheckpoint(
        partition_id=OWNER,
        worker="w",
        sequence=1,
        written_at=1,
        plans={"interval": PlanState(definition_hash="h", complete_before=DAYS[0])},
    )
    assert fresh.kinds() == {}
    fresh.starts = {("shop", "orders"): DAYS[0]}
    assert fresh.kinds() == {}


def test_the_declared_start_must_be_covered_too() -> None:
    found = world()
    found.starts = {("shop", "orders"): "2023-12-31T00:00:00.000000Z"}
    assert found.kinds() == {"checkpoint_ahead": 1}
    found.starts = {("shop", "orders"): DAYS[0]}
    assert found.kinds() == {}


@pytest.mark.parametrize("kind", ["gap", "caught_up"])
def test_gaps_and_empty_stretches_prove_too(kind: str) -> None:
    found = world()
    mark = interval_mark(DAYS[2], DAYS[3], kind=kind)
    put(found.log, 22, mark)
    found.marks.append(mark_row(22, mark))
    _claim(found, complete_before=DAYS[3])
    assert found.kinds() == {}


def test_a_failed_interval_proves_only_once_it_is_accepted() -> None:
    found = world()
    mark = interval_mark(DAYS[2], DAYS[3], kind="interval_failed")
    put(found.log, 22, mark)
    found.marks.append(mark_row(22, mark))
    _claim(found, complete_before=DAYS[3])
    assert found.kinds() == {"checkpoint_ahead": 1}
    accepted = Control(
        action="accept_failed", about=OWNER, start=DAYS[2], end=DAYS[3], by="me", note="", at=1
    )
    found.controls = [accepted]
    assert found.kinds() == {}
    found.controls = [msgspec.structs.replace(accepted, about="shop/other")]
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_an_empty_stretch_whose_mark_was_replaced_counts_from_postgres() -> None:
    found = world()
    found.marks.append(mark_row(5, interval_mark(DAYS[2], DAYS[3], kind="caught_up")))
    _claim(found, complete_before=DAYS[3])
    assert found.kinds() == {}


def test_a_stretch_that_is_called_done_without_a_mark() -> None:
    found = world()
    _claim(found, done=[Done(DAYS[3], DAYS[4])])
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_walks_name_pages_that_are_there() -> None:
    found = world()
    scope = f"{DAYS[2]}~{DAYS[3]}"
    put(found.log, 15, page(scope, "c", 1, 2))
    found.positions = [Position("live", 0, 0, 15, None, None)]
    found.ledger = [row for row in found.ledger if row.offset < 15]
    found.exceptions = [fault for fault in found.exceptions if fault.offset < 15]
    walk = Walk(scope=scope, passes=[named_pass("c", 1, 1, 2)])
    _claim(found, open=[OpenInterval(start=DAYS[2], end=DAYS[3], reason="due", walk=walk)])
    assert found.kinds() == {}
    ahead = Walk(scope=scope, passes=[named_pass("c", 1, 2, 2)])
    _claim(found, open=[], walk=ahead)
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_kept_snapshots_are_still_there() -> None:
    found = world()
    kept = KeptSnapshot(snapshot_id="s1", passes=[named_pass("p", 1, 1, 2)])
    _claim(found, previous=[kept])
    assert found.kinds() == {"checkpoint_ahead": 1}
    _claim(found, previous=[kept], tombstone_due=["s1"])
    assert found.kinds() == {}


def test_pages_that_were_cleared_after_the_checkpoint_were_there_when_it_was_written() -> None:
    found = world()
    kept = page("s1", "p", 1, 2, plan="snapshot")
    put(found.log, 15, kept)
    found.ledger.append(ledger(15, kept, b"\x01\x01"))
    snapshot = KeptSnapshot(snapshot_id="s1", passes=[named_pass("p", 1, 1, 2)])
    assert found.checkpoint is not None
    plans = {
        **found.checkpoint.plans,
        "snapshot": PlanState(definition_hash="h", previous=[snapshot]),
    }
    found.checkpoint = msgspec.structs.replace(found.checkpoint, plans=plans)
    assert found.kinds() == {}
    cleared = Logged(30, kept.key, None)
    found.log.append(cleared)  # behind what the checkpoint names: a newer one will say so
    assert found.kinds() == {}
    found.log = [r for r in found.log if r.offset != 15]  # and compaction was quick
    assert found.kinds() == {}
    found.log = [r for r in found.log if r is not cleared]
    put(found.log, 15, kept)
    found.log.append(Logged(16, kept.key, None))
    assert found.kinds() == {"checkpoint_ahead": 1}


def test_what_was_cleaned_while_the_log_was_read_is_explained_behind_its_end() -> None:
    found = world()
    keys = {r.offset: r.key for r in found.log}
    found.log = [r for r in found.log if r.offset not in (10, 11, 12)]
    assert found.kinds() == {"outcome_without_page": 2, "mark_without_record": 1}
    found.tail = [Logged(50 + at, keys[at], None) for at in (10, 11, 12)]
    assert found.kinds() == {}


def test_a_cumulative_mark_may_be_replaced_while_the_log_was_read() -> None:
    found = world()
    mark = interval_mark(DAYS[2], DAYS[3], kind="caught_up")
    _name(found, 25, mark_key(mark))
    assert found.kinds() == {"checkpoint_names_nothing": 1}
    put(found.tail, 55, mark)
    assert found.kinds() == {}


def test_older_snapshots_expire_with_their_tombstones() -> None:
    found = world()
    listed = page("s1", "p", 1, 2, plan="snapshot")
    found.ledger.append(ledger(15, listed, b"\x01\x01"))
    old = Mark(kind="snapshot_complete", partition_id=OWNER, plan="snapshot", scope="s1", at=1)
    found.marks.append(mark_row(16, old))
    assert found.kinds() == {"outcome_without_page": 1, "mark_without_record": 1}
    found.complete_snapshots = {OWNER: "s2"}  # Postgres knows of a newer one
    assert found.kinds() == {}
    found.complete_snapshots = {OWNER: "s1"}
    assert found.kinds() == {"outcome_without_page": 1, "mark_without_record": 1}
    put(found.log, 30, msgspec.structs.replace(old, scope="s2"))  # or the log does
    found.positions = [Position("live", 0, 0, 22, None, None)]
    assert found.kinds() == {}


def test_a_mark_of_a_pass_that_was_made_again_expires_with_its_snapshot() -> None:
    """A broker's end may leave a page and a complete mark without their checkpoint."""
    found = world()
    listed, again = (page("s1", name, 1, 2, plan="snapshot") for name in ("p", "q"))
    left = Mark(
        kind="snapshot_complete", partition_id=OWNER, plan="snapshot", scope="s1", at=1,
        passes=[named_pass("p", 1, 1, 2)],
    )  # fmt: skip
    counted = msgspec.structs.replace(left, passes=[named_pass("q", 1, 1, 2)])
    for offset, value in ((13, listed), (14, left), (15, again), (16, counted)):
        put(found.log, offset, value)
    assert "mark_without_pages" not in found.kinds()
    # what is cleared is what the pass that counts names, its mark first
    found.log.append(Logged(30, next(r.key for r in found.log if r.offset == 13), None))
    assert found.kinds()["mark_without_pages"] == 1
    found.log.append(Logged(31, mark_key(counted), None))
    assert "mark_without_pages" not in found.kinds()

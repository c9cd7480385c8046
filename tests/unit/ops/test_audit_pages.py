"""Planted faults of outcomes: each must be found, as the kind that names it, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ops.audit.facts import ExceptionRow, Logged, Page, Position, Version, logged
from ops.audit.pages import Aligned, align
from schemas.log.reader import LogRecord
from schemas.routing import route
from tests.unit.ops.audit_world import OWNER, World, ledger, page, put, world

SECOND = Version(2, "orders", 2, "shop", "orders", "orders", True)


def _page_at(found: World, offset: int) -> Page:
    value = next(r.value for r in found.log if r.offset == offset)
    assert isinstance(value, Page)
    return value


def test_the_clean_world_is_clean() -> None:
    findings, totals = world().judge()
    assert dict(findings.counts) == {}
    assert (totals.pages, totals.records) == (3, 9)
    assert totals.outcomes == {
        "applied": 4, "superseded": 1, "ignored": 1, "quarantined": 2, "retryable": 1, "erased": 0,
    }  # fmt: skip


def test_a_page_without_outcomes() -> None:
    found = world()
    found.ledger = [row for row in found.ledger if row.offset != 10]
    assert found.kinds() == {"unaccounted": 1}


def test_a_page_behind_the_applied_offset_is_not_owed_yet() -> None:
    found = world()
    put(found.log, 30, page("s", "c", 1, 2))
    findings, totals = found.judge()
    assert findings.clean
    assert totals.not_yet_applied == 1


def test_outcomes_above_the_applied_offset() -> None:
    found = world()
    late = page("s", "c", 1, 2)
    put(found.log, 30, late)
    found.ledger.append(ledger(30, late, b"\x01\x01"))
    assert found.kinds() == {"outcome_above_applied": 1}


def test_outcomes_for_an_offset_where_no_page_is() -> None:
    found = world()
    found.ledger.append(ledger(15, page("s", "c", 1, 1), b"\x01"))
    assert found.kinds() == {"outcome_without_page": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"outcomes": b"\x01\x01"},
        {"outcomes": b"\x01\x01\x00"},
        {"records": 2},
        {"counts": (3, 0, 0, 0, 0, 0)},
        {"counts": (2, 2, 0, 0, 0, 0)},
    ],
)
def test_counts_that_do_not_balance(change: dict[str, object]) -> None:
    found = world()
    found.ledger[0] = replace(found.ledger[0], **change)  # type: ignore[arg-type]
    assert found.kinds() == {"counts_differ": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"pass_": "z"},
        {"page": 9},
        {"scope": "x"},
        {"parts": 2},
        {"original_offset": 9},
        {"partition_id": "shop/other"},
        {"plan": "cursor"},
    ],
)
def test_a_ledger_row_of_another_page(change: dict[str, object]) -> None:
    found = world()
    found.ledger[0] = replace(found.ledger[0], **change)  # type: ignore[arg-type]
    assert found.kinds() == {"ledger_differs": 1}


def test_a_quarantined_record_without_evidence() -> None:
    found = world()
    del found.exceptions[0]
    assert found.kinds() == {"exception_missing": 1}


@pytest.mark.parametrize(
    ("at", "state"), [(0, "retryable"), (0, "resolved"), (1, "quarantined"), (2, "quarantined")]
)
def test_an_exception_that_contradicts_its_outcome(at: int, state: str) -> None:
    found = world()
    found.exceptions[at] = replace(found.exceptions[at], state=state)
    assert found.kinds() == {"exception_differs": 1}


def test_an_exception_without_outcomes() -> None:
    found = world()
    found.exceptions.insert(0, ExceptionRow(10, 9, 0, "quarantined"))
    assert found.kinds() == {"exception_differs": 1}


def test_indices_count_within_the_whole_page() -> None:
    found = world()
    part = page("s", "c", 1, 2, part=2, parts=2, first_index=5, missing={1: "oversized"})
    put(found.log, 15, part)
    found.ledger.append(ledger(15, part, b"\x01\x04"))
    found.exceptions.insert(2, ExceptionRow(15, 1, 6, "quarantined"))
    assert found.kinds() == {}
    found.exceptions[2] = ExceptionRow(15, 1, 1, "quarantined")
    assert found.kinds() == {"exception_missing": 1, "exception_differs": 1}


@pytest.mark.parametrize(("why", "byte"), [("erased", 1), ("oversized", 3), ("unsplittable", 1)])
def test_a_record_without_bytes_that_is_said_to_be_applied(why: str, byte: int) -> None:
    found = world()
    odd = page("s", "c", 1, 1, missing={0: why})
    put(found.log, 15, odd)
    found.ledger.append(ledger(15, odd, bytes([byte])))
    assert found.kinds() == {"outcome_contradicts_page": 1}


def test_a_second_mapping_that_skipped_a_page() -> None:
    found = world()
    found.versions.append(Version(5, "totals", 1, "shop", "orders", "totals", True))
    pages = [(at, _page_at(found, at)) for at in (10, 11, 20)]
    found.ledger += [ledger(at, p, b"\x03" * p.records, 5) for at, p in pages]
    assert found.kinds() == {}
    found.ledger = [r for r in found.ledger if (r.offset, r.mapping_version) != (11, 5)]
    assert found.kinds() == {"unaccounted": 1}


def test_a_record_counts_once_for_each_mapping_whatever_versions_have_judged_it() -> None:
    found = world()
    found.versions[0] = replace(found.versions[0], live=False)
    found.versions += [
        SECOND,
        Version(3, "orders", 3, "shop", "orders", "orders", False),  # stands beside the live one
        Version(5, "totals", 1, "shop", "orders", "totals", True),
    ]
    first = list(found.ledger)
    found.ledger += [
        ledger(r.offset, _page_at(found, r.offset), b"\x01" * r.records, 5) for r in first
    ]
    at = first[0]
    where = _page_at(found, at.offset)
    found.ledger.append(ledger(at.offset, where, b"\x02" * at.records, 2))
    found.ledger.append(ledger(at.offset, where, b"\x03" * at.records, 3))
    found.ledger.append(ledger(at.offset, where, b"\x03" * at.records, 0))
    found.exceptions = [one for one in found.exceptions if one.offset != at.offset]
    _, totals = found.judge()
    assert totals.records == 9
    assert sum(totals.outcomes.values()) == 2 * totals.records
    old = sum((Counter(r.outcomes) for r in first[1:]), Counter({2: at.records}))
    assert totals.outcomes["superseded"] == old[2]
    assert totals.outcomes["applied"] == old[1] + totals.records
    assert totals.outcomes["ignored"] == old[3]


def test_a_new_version_waits_for_its_replay() -> None:
    found = world()
    found.versions.append(SECOND)
    found.ledger.append(ledger(20, _page_at(found, 20), b"\x01\x03\x01\x01", 2))
    findings, totals = found.judge()
    assert findings.clean
    assert totals.awaiting_replay == {"orders v2": 5}


def test_a_replay_that_skipped_a_page() -> None:
    found = world()
    found.versions.append(SECOND)
    found.positions.append(Position("replay:orders:2", 0, 0, 15, None, None))
    found.ledger += [
        ledger(11, _page_at(found, 11), b"\x01\x01", 2),
        ledger(20, _page_at(found, 20), b"\x01\x03\x01\x01", 2),
    ]
    assert found.kinds() == {"unaccounted": 1}
    found.ledger.append(ledger(10, _page_at(found, 10), b"\x01\x01\x01", 2))
    assert found.kinds() == {}


def test_a_live_version_that_stopped() -> None:
    found = world()
    found.versions.append(SECOND)
    found.ledger.append(ledger(10, _page_at(found, 10), b"\x01\x01\x01", 2))
    assert found.kinds() == {"unaccounted": 2}


def test_a_page_key_written_twice() -> None:
    found = world()
    again = _page_at(found, 10)
    put(found.log, 15, again)
    found.ledger.append(ledger(15, again, b"\x02\x02\x02"))
    assert found.kinds()["key_twice"] == 1


def test_an_erased_page_is_written_under_its_own_key() -> None:
    found = world()
    erased = replace(_page_at(found, 10), original_offset=10, missing={1: "erased"})
    put(found.log, 30, erased)
    found.ledger.append(ledger(30, erased, b"\x01\x06\x02"))
    found.positions = [Position("live", 0, 0, 31, 30, erased.key)]
    assert found.kinds() == {}
    found.log = [r for r in found.log if r.offset != 10]  # compaction takes the first copy
    findings, totals = found.judge()
    assert findings.clean
    assert totals.expired == 1


def test_pages_below_the_start_of_the_log_have_expired() -> None:
    found = world()
    found.low = 15
    found.log = [r for r in found.log if r.offset >= 15]
    findings, totals = found.judge()
    assert findings.clean
    assert totals.expired == 2


def test_a_wrong_partition() -> None:
    found = world()
    found.partitions = next(n for n in range(2, 20) if route(OWNER, n) != 0)
    assert found.kinds() == {"wrong_partition": 5}


def test_a_wrong_key() -> None:
    found = world()
    found.log[0] = Logged(10, "shop/orders/interval/x/y/1/1", found.log[0].value)
    assert found.kinds() == {"wrong_key": 1}


def test_a_foreign_value_is_accounted_for_as_one_record() -> None:
    found = world()
    foreign = logged(LogRecord(0, 30, "whatever", b"not ours", 0, None))
    assert isinstance(foreign.value, Page)
    found.log.append(foreign)
    found.positions = [Position("live", 0, 0, 31, 30, "whatever")]
    assert found.kinds() == {"unaccounted": 1}
    found.ledger.append(ledger(30, foreign.value, b"\x04", 0))
    found.exceptions.append(ExceptionRow(30, 0, 0, "quarantined"))
    findings, totals = found.judge()
    assert findings.clean
    assert totals.foreign == 1


def test_a_value_of_a_newer_schema_cannot_be_judged() -> None:
    found = world()
    found.log.append(logged(LogRecord(0, 30, "k", b"\xc3\x01" + b"\x07" * 12, 0, None)))
    assert found.kinds() == {"unreadable": 1}


def test_align_joins_whatever_side_lacks_an_offset() -> None:
    one = page("s", "c", 1, 1)
    pages = [Logged(1, one.key, one), Logged(3, one.key, one)]
    rows = [ledger(2, one, b"\x01"), ledger(3, one, b"\x01"), ledger(3, one, b"\x01", 2)]
    faults = [ExceptionRow(4, 1, 0, "quarantined")]
    found = list(align(pages, rows, faults))
    assert found == [
        Aligned(1, one, (), ()),
        Aligned(2, None, (rows[0],), ()),
        Aligned(3, one, (rows[1], rows[2]), ()),
        Aligned(4, None, (), (faults[0],)),
    ]


def test_exceptions_of_a_page_that_is_not_there() -> None:
    found = world()
    found.exceptions.append(ExceptionRow(33, 1, 0, "quarantined"))
    assert found.kinds() == {"exception_differs": 1}

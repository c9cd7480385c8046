"""Faults of records: which reason, and that a detail never shows what may be personal."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from apply.mapping.types import DELETED, DELETED_AT
from apply.outcomes import Outcome, Reason
from schemas.definitions.mapping import (
    Alternative,
    ByPlan,
    ColumnSpec,
    Constant,
    Personal,
    Unknown,
)
from schemas.definitions.paths import parse_entity_path, parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from schemas.definitions.times import parse_format
from schemas.records import MissingRecord
from tests.unit.apply.mapped import column, dated, mapped, path, spec


@pytest.mark.parametrize(
    ("of", "value", "reason"),
    [
        ("text", "1.5", Reason.WRONG_TYPE),
        ("text", "true", Reason.WRONG_TYPE),
        ("text", "{}", Reason.WRONG_TYPE),
        ("text", '"a\\u0000b"', Reason.NUL),
        ("varchar(3)", '"abcd"', Reason.TOO_LONG),
        ("char(2)", '"EUR"', Reason.TOO_LONG),
        ("smallint", "32768", Reason.OUT_OF_RANGE),
        ("integer", "2147483648", Reason.OUT_OF_RANGE),
        ("bigint", "9223372036854775808", Reason.OUT_OF_RANGE),
        ("bigint", "1e400", Reason.OUT_OF_RANGE),
        ("integer", "1.5", Reason.WRONG_TYPE),
        ("integer", "true", Reason.WRONG_TYPE),
        ("integer", '"5 "', Reason.WRONG_TYPE),
        ("numeric(6,2)", "1.005", Reason.OUT_OF_RANGE),
        ("numeric(6,2)", "10000", Reason.OUT_OF_RANGE),
        ("numeric(6,2)", "1e99999", Reason.OUT_OF_RANGE),
        ("numeric", "1e140000", Reason.OUT_OF_RANGE),
        ("numeric", "1e-20000", Reason.OUT_OF_RANGE),
        ("numeric", '"NaN"', Reason.WRONG_TYPE),
        ("numeric", '"1_000"', Reason.WRONG_TYPE),
        ("double precision", "1e400", Reason.OUT_OF_RANGE),
        ("double precision", "1e-400", Reason.OUT_OF_RANGE),
        ("real", "1e39", Reason.OUT_OF_RANGE),
        ("real", "1e-60", Reason.OUT_OF_RANGE),
        ("boolean", "1", Reason.WRONG_TYPE),
        ("boolean", '"yes"', Reason.WRONG_TYPE),
        ("uuid", '"7f2c1e0a-0b1c-4d2e-8f3a-12345678"', Reason.WRONG_TYPE),
        ("timestamptz", '"2024-03-01T08:12:31"', Reason.NAIVE_TIME),
        ("timestamptz", '"2024-03-01"', Reason.NAIVE_TIME),
        ("timestamptz", '"yesterday"', Reason.BAD_TIME),
        ("timestamptz", "1700000000", Reason.BAD_TIME),
        ("timestamptz@Berlin", '"2026-10-25T02:30:00"', Reason.AMBIGUOUS_TIME),
        ("timestamptz@Berlin", '"2026-03-29 02:30"', Reason.AMBIGUOUS_TIME),
        ("date@Berlin", '"2026-10-25T02:30:00"', Reason.AMBIGUOUS_TIME),
        ("date", '"2024-02-30"', Reason.BAD_TIME),
        ("date", '"2024-03-01T08:12:31Z"', Reason.BAD_TIME),
        ("jsonb", '{"a":["\\u0000"]}', Reason.NUL),
        ("jsonb", '{"a":1e200000}', Reason.OUT_OF_RANGE),
        ("text[]", '"a"', Reason.WRONG_TYPE),
        ("integer[]", '["x"]', Reason.WRONG_TYPE),
    ],
)
def test_what_a_type_does_not_take_is_quarantined(of: str, value: str, reason: Reason) -> None:
    name, _, city = of.partition("@")
    zone = f"Europe/{city}" if city else None
    found = mapped(spec(column("v", name, zone=zone)), f'{{"id":"a","v":{value}}}')
    assert [fault.reason for fault in found.faults] == [reason]
    assert found.outcomes == bytes([Outcome.QUARANTINED])
    assert found.rows == []
    assert found.faults[0].key == {"id": "a"}
    assert found.other_keys == [("a",)]
    assert found.unreadable == 0


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":"a"', b"", b'{"id":"a"}]', b'{"id":"\xff"}', b'{"id":"a","v":NaN}',
        b'{"id":"a","v":01}', b'{"id":"a","v":"\\ud800"}', b'\xef\xbb\xbf{"id":"a"}',
        b'{"id":"a","id":"b"}', b'{"id":"a","\\u0069d":"b"}', b'{"id" :"a","id":":"}',
        b'{"id":"a","v":{"x":1,"x":1}}', b'{"id":"a","v":"\\u003a","v":1}', b'{"id":"a","w":"\\u003A","v":1,"v":2}',
        b'{"id":"a","v":[{"x":1},{"x":1,"x":2}]}', b'{"id":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"id":"a","v":' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_has_no_single_meaning_is_unreadable(raw: bytes) -> None:
    found = mapped(spec(column("v", "jsonb")), raw, '{"id":"b","v":1}')
    assert [fault.reason for fault in found.faults] == [Reason.UNREADABLE]
    assert found.unreadable == 1
    assert len(found.rows) == 1, "its neighbour lands"


@pytest.mark.parametrize("value", ['":"', '"a\\":b"', '"\\u003a"', '{"x:y":":"}', '"\\\\u0000"'])
def test_colons_and_escapes_are_no_second_member(value: str) -> None:
    found = mapped(spec(column("v", "jsonb")), f'{{"id" : "a", "v":{value}}}')
    assert not found.faults
    assert len(found.rows) == 1


@pytest.mark.parametrize("raw", ["5", '"x"', "null", "[]", '{"in":5}', '{"in":null}', "{}"])
def test_an_entity_is_an_object(raw: str) -> None:
    of = spec(entity=ByPlan(parse_entity_path("in")))
    assert [fault.reason for fault in mapped(of, raw).faults] == [Reason.NOT_AN_OBJECT]


def test_key_and_revision_are_needed() -> None:
    of = spec(column("v", "integer", required=True), revision=dated())
    found = mapped(
        of, '{"rev":1,"v":1}', '{"id":null,"rev":1,"v":1}', '{"id":"a","v":1}', '{"id":"a","rev":1}'
    )
    assert [fault.reason for fault in found.faults] == [
        Reason.MISSING_KEY, Reason.MISSING_KEY, Reason.MISSING_REVISION, Reason.MISSING_VALUE,
    ]  # fmt: skip
    assert found.unreadable == 2, "a key that nobody can read withholds a sweep"
    assert "id" in found.faults[0].detail


@pytest.mark.parametrize("personal", list(Personal))
def test_details_show_only_what_is_declared_public(personal: Personal) -> None:
    secret = "anna@example.org"
    values: dict[Constant, Constant] = {"open": "open"}
    many = [
        ColumnSpec("v", column("v", "text").type, path("v"), values=values, personal=personal),
        column("v", "varchar(5)", personal=personal if personal is not Personal.HASH else Personal.KEEP),
        column("v", "timestamptz", personal=personal if personal is not Personal.HASH else Personal.KEEP),
        ColumnSpec(
            "v", column("v", "text").type,
            ByPlan((Alternative(parse_mapping_path("v"), pattern="^([0-9]+)$"),)), personal=personal,
        ),
    ]  # fmt: skip
    for one in many:
        found = mapped(spec(one), f'{{"id":"a","v":"{secret}"}}')
        if personal is Personal.DROP:
            assert found.rows[0][1] is None
            continue
        (fault,) = found.faults
        assert (secret in fault.detail) is (personal is Personal.NO), fault.detail
        assert fault.detail.startswith("v ")


def test_an_unknown_value_says_what_is_known() -> None:
    of = spec(column("status", "text", values={"open": "open", "paid": "paid"}))
    (fault,) = mapped(of, '{"id":"a","status":"refunded"}').faults
    assert fault.reason is Reason.UNKNOWN_VALUE
    assert fault.detail == 'status "refunded" is none of open, paid'


@pytest.mark.parametrize(
    ("unknown", "stored"), [(Unknown.KEEP, 9), (Unknown.USE, 3), (Unknown.QUARANTINE, None)]
)
def test_unknown_values(unknown: Unknown, stored: int | None) -> None:
    one = column(
        "v", "smallint", values={"fatal": 2, 5: 5}, unknown=unknown,
        unknown_value=3 if unknown is Unknown.USE else None,
    )  # fmt: skip
    found = mapped(spec(one), '{"id":"a","v":"fatal"}', '{"id":"a","v":5}', '{"id":"a","v":9}')
    assert [row[1] for row in found.rows] == ([2, 5] if stored is None else [2, 5, stored])
    assert [fault.reason for fault in found.faults] == (
        [Reason.UNKNOWN_VALUE] if stored is None else []
    )


def test_true_is_no_one() -> None:
    records = ('{"id":"a","v":1}', '{"id":"a","v":true}', '{"id":"a","v":1.0}')
    number = mapped(spec(column("v", "text", values={1: "one"})), *records)
    assert [row[1] for row in number.rows] == ["one", "one"]
    assert [fault.index for fault in number.faults] == [1]
    truth = mapped(spec(column("v", "text", values={True: "yes"})), *records)
    assert [row[1] for row in truth.rows] == ["yes"]
    assert [fault.index for fault in truth.faults] == [0, 2]


def test_bounds() -> None:
    of = spec(
        column("t", "text", min=2, max=3), column("n", "numeric", min=Decimal("0.5"), max=5),
        column("l", "text[]", max=1), column("d", "timestamptz", min="2024-03-01"),
    )  # fmt: skip
    good = '{"id":"a","t":"abc","n":0.5,"l":["x"],"d":"2024-03-01T00:00:00Z"}'
    assert not mapped(of, good).faults
    for bad, reason in (
        ('{"id":"a","t":"a"}', Reason.OUT_OF_RANGE), ('{"id":"a","t":"abcd"}', Reason.TOO_LONG),
        ('{"id":"a","n":0.49}', Reason.OUT_OF_RANGE), ('{"id":"a","n":5.01}', Reason.OUT_OF_RANGE),
        ('{"id":"a","l":["x","y"]}', Reason.TOO_LONG),
        ('{"id":"a","d":"2024-02-29T23:59:59Z"}', Reason.OUT_OF_RANGE),
    ):  # fmt: skip
        assert [fault.reason for fault in mapped(of, bad).faults] == [reason], bad


def test_slots_without_bytes_have_their_outcomes() -> None:
    missing = [
        MissingRecord(7, "erased", 10),
        MissingRecord(9, "oversized", 5_000_000, b"\x01\x02"),
        MissingRecord(10, "unsplittable", 9),
    ]
    found = mapped(
        spec(), b"", '{"id":"a"}', b"", b"", missing=missing, first_index=7, plan="snapshot"
    )
    assert list(found.outcomes) == [Outcome.ERASED, 0, Outcome.QUARANTINED, Outcome.QUARANTINED]
    assert [(one.index, one.reason) for one in found.faults] == [
        (9, Reason.OVERSIZED), (10, Reason.UNSPLITTABLE),
    ]  # fmt: skip
    assert "5000000 bytes" in found.faults[0].detail
    assert "0102" in found.faults[0].detail
    assert found.unreadable == 2


def _equals(text: str, operand: str) -> Predicate:
    return Predicate(((Line(parse_mapping_path(text), (Check(Operator.EQUALS, operand),)),),))


def test_a_tombstone_needs_key_and_revision_only() -> None:
    of = spec(
        column("v", "integer", required=True), column("w", "text", default="new"),
        column("x", "date"), revision=dated(), deleted=_equals("$.type", "gone"),
    )  # fmt: skip
    found = mapped(
        of, '{"id":"a","rev":3,"type":"gone"}', '{"id":"a","rev":3,"type":"gone","v":4,"x":"never"}',
        '{"id":"b","type":"gone"}', '{"id":"a","rev":3,"v":4}',
    )  # fmt: skip
    assert [(row[:5], row[DELETED]) for row in found.rows] == [
        (("a", 4, "new", None, 3), False), (("a", None, None, None, 3), True),
        (("a", 4, None, None, 3), True),
    ]  # fmt: skip
    assert [fault.reason for fault in found.faults] == [Reason.MISSING_REVISION]
    assert {row[DELETED_AT] is None for row in found.rows if not row[DELETED]} == {True}
    assert all(row[DELETED_AT] is not None for row in found.rows if row[DELETED])
    assert found.listed_keys(1, changes=True) == [("a",)], "a tombstone shows no existence"


def test_filtered_records_are_ignored_and_listed_ones_are_present() -> None:
    of = spec(where=_equals("kind", "issue"))
    records = ('{"id":"a","kind":"issue"}', '{"id":"b","kind":"pull"}', '{"kind":"pull"}')
    changes = mapped(of, *records)
    assert list(changes.outcomes) == [0, Outcome.IGNORED, Outcome.IGNORED]
    assert changes.listed_keys(1, changes=True) == [("a",)]
    listing = mapped(of, *records, plan="snapshot", began=3)
    assert list(listing.outcomes) == [0, Outcome.IGNORED, Outcome.IGNORED]
    assert sorted(listing.listed_keys(1, changes=False)) == [("a",), ("b",)]
    assert listing.unreadable == 0, "what the mapping does not want withholds no sweep"


def test_revision_by_plan_and_times_of_ours() -> None:
    at = ByPlan(named={
        "interval": parse_mapping_path("$.created"), "snapshot": parse_mapping_path("observation.as_of"),
    })  # fmt: skip
    of = spec(revision=dated("timestamptz", path=at, from_=parse_format("unix_s")))
    us = 1_700_000_000_000_000
    assert mapped(of, '{"id":"a","created":1700000000}').rows[0][1] == us - 946_684_800_000_000
    listed = mapped(of, '{"id":"a"}', plan="snapshot", as_of=us, began=2)
    assert listed.rows[0][1] == us - 946_684_800_000_000
    without = mapped(of, '{"id":"a"}', plan="snapshot", as_of=None, began=2)
    assert [fault.reason for fault in without.faults] == [Reason.MISSING_REVISION]
    assert without.other_keys == [("a",)]


def test_a_key_that_takes_more_than_an_index_holds_is_too_long() -> None:
    """Counted as JSON, which events carry."""
    keys = ["k" * 1_998, "\x01" * 333, "ä" * 999, '"' * 999]
    kept = [json.dumps({"id": key, "v": "a"}) for key in keys]
    longer = [json.dumps({"id": key + key[0], "v": "a"}) for key in keys]
    found = mapped(spec(column("v", "text")), *kept, *longer)
    assert [row[0] for row in found.rows] == keys
    assert [fault.reason for fault in found.faults] == [Reason.TOO_LONG] * 4
    assert found.unreadable == 4

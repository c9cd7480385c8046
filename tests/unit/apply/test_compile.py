"""The compiled mapper: what it makes of columns, and that ordinary records never leave its code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import apply.mapping.compile as compiler
from apply.functions.outside import Surroundings
from apply.mapping import text_arrays
from apply.mapping.compile import compile_mapping
from apply.mapping.raw import content_hash
from apply.mapping.rules import resolve
from apply.mapping.types import SYSTEM_COLUMNS, Place
from apply.outcomes import MEANING, Outcome, Reason, counts
from schemas.definitions.column_types import parse_type
from schemas.definitions.mapping import Alternative, ByPlan, ColumnSpec, Personal, RevisionKind
from schemas.definitions.paths import parse_mapping_path
from schemas.definitions.secrets import Reference, SecretUnavailable
from schemas.definitions.times import parse_format
from tests.unit.apply.mapped import FETCHED_US, column, dated, mapped, page, path, spec, values

PLACE = Place(4, 1, 11, None, None)
_PG_FETCHED = FETCHED_US - 946_684_800_000_000


def test_columns_are_keys_others_revision_system() -> None:
    of = spec(
        column("v", "numeric(12,2)"), column("tenant_id", "uuid"), column("at", "timestamptz"),
        column("tags", "varchar(3)[]"), key=("id", "tenant_id"), revision=dated("text"),
    )  # fmt: skip
    compiled = compile_mapping(of, 3)
    assert compiled.key_positions == (0, 1)
    assert [(one.name, one.pg_type, one.copy_type) for one in compiled.columns[:6]] == [
        ("id", "text", "text"), ("tenant_id", "uuid", "bytea"), ("v", "numeric(12,2)", "bytea"),
        ("at", "timestamptz", "int8"), ("tags", "varchar(3)[]", "varchar[]"),
        ("source_revision", "text", "text"),
    ]  # fmt: skip
    assert compiled.columns[6:] == SYSTEM_COLUMNS
    assert compiled.type_names[0] == "text"
    undated = compile_mapping(spec(revision=dated(kind=RevisionKind.NONE)), 3)
    assert [one.name for one in undated.columns[:2]] == ["id", "deleted_at"]


def test_a_row_carries_where_it_comes_from() -> None:
    raw = '{"id":"a","rev":5}'
    found = mapped(
        spec(revision=dated()), raw, first_index=40, source_epoch=2, original_offset=7, began=5,
        plan="snapshot",
    )  # fmt: skip
    (row,) = found.rows
    assert row == (
        "a", 5, None, 2, 1, 4, 7, 40, 6, False, content_hash(raw.encode()), _PG_FETCHED, 5,
    )  # fmt: skip
    (again,) = mapped(spec(revision=dated()), raw).rows
    assert again[-8:-5] == (4, 11, 0), (
        "the owner, its own offset where there is no older one, the index"
    )


@pytest.mark.parametrize(
    ("one", "record", "stored"),
    [
        (column("v", "text"), '"x"', "x"),
        (column("v", "text"), "12", "12"),
        (column("v", "text"), "null", None),
        (column("v", "text", path=path("a.b")), '1,"a":{"b":"x"}', "x"),
        (column("v", "text", path=path("a.b")), '1,"a":"x"', None),
        (column("v", "text", path=path('$["odd key"][0].c')), '1,"odd key":[{"c":"x"}]', "x"),
        (column("v", "text", path=path("a[-1]")), '1,"a":["x","y"]', "y"),
        (column("v", "text", path=path("a[2]")), '1,"a":["x","y"]', None),
        (column("v", "text", path=path("a", "b.c", "d")), '1,"a":null,"b":{"c":"x"},"d":"y"', "x"),
        (
            column("v", "text[]", path=path("a[*].n")),
            '1,"a":[{"n":"x"},{}]',
            text_arrays.pack(["x", None]),
        ),
        (column("v", "text", default="d"), "null", "d"),
        (column("v", "integer", default=0, path=path("nowhere")), "1", 0),
        (column("v", "text", path=None, const="c"), "1", "c"),
        (column("v", "text", personal=Personal.DROP), '"x"', None),
        (
            column("v", "text", personal=Personal.HASH),
            '"x"',
            "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        ),
        (column("v", "text", path=path("observation.tenant")), "1", "north"),
        (column("v", "text", path=path("observation.run")), "1", "r7"),
        (column("v", "timestamptz", path=path("observation.fetched_at")), "1", _PG_FETCHED),
        (column("v", "timestamptz", path=path("observation.as_of")), "1", None),
        (column("v", "timestamptz", zone="Europe/Berlin"), '"2000-01-01 01:00:00"', 0),
        (
            column("v", "timestamptz", from_=parse_format("unix_s")),
            "1700000000.9999999999",  # as a float it would be a second later
            _PG_FETCHED + 999_999,
        ),
        (column("v", "date", zone="Europe/Berlin"), '"1999-12-31T23:30:00Z"', 0),
        (column("v", "boolean"), '"true"', True),
    ],
)
def test_columns(one: ColumnSpec, record: str, stored: Any) -> None:
    found = values(spec(one), f'{{"id":"a","v":{record}}}', run="r7", tenant="north")
    assert found == [(stored,)]


def test_a_keyed_hash_with_a_default_can_be_looked_at_without_the_key(tmp_path: Path) -> None:
    """Whoever only registers a mapping, or asks for a revision, has no secrets."""
    (tmp_path / "key").write_text("secret")
    keyed = column(
        "v", "text", personal=Personal.HASH, hash_key=Reference("file", "key"), default="none"
    )
    assert compile_mapping(spec(keyed), 1).columns[1].name == "v"
    assert resolve(spec(keyed), "interval").columns[0].name == "v"
    outside = Surroundings(tmp_path)
    (row,) = compile_mapping(spec(keyed), 1, outside).map_page(page('{"id": "a"}'), PLACE).rows
    assert row[1] == outside.hasher(Reference("file", "key"))("none")


def test_a_hash_under_a_key_joins_and_cannot_be_guessed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key of this deployment\n")
    outside = Surroundings(tmp_path)

    def stored(column_: ColumnSpec, value: str) -> Any:
        compiled = compile_mapping(spec(column_), 1, outside)
        return compiled.map_page(page(f'{{"id":"a","v":"{value}"}}'), PLACE).rows[0][1]

    keyed = column("v", "text", personal=Personal.HASH, hash_key=Reference("file", "key"))
    plain = column("v", "text", personal=Personal.HASH)
    other = column("w", "text", path=path("v"), personal=Personal.HASH, hash_key=keyed.hash_key)
    anna = stored(keyed, "anna@example.org")
    assert anna == stored(other, "anna@example.org"), "two tables can be joined by it"
    assert anna not in (stored(keyed, "anna@example.com"), stored(plain, "anna@example.org"))
    assert anna == "ef61fce6dc3977ca587f37f5ce7a2734bc072fd60bbf624111e3c54ac4d8f74d"
    with pytest.raises(SecretUnavailable, match="nowhere"):
        lost = column("v", "text", personal=Personal.HASH, hash_key=Reference("file", "nowhere"))
        compile_mapping(spec(lost), 1, outside)


def test_the_first_value_decides_even_if_its_pattern_fails() -> None:
    both: ByPlan[tuple[Alternative, ...]] = ByPlan((
        Alternative(parse_mapping_path("run")),
        Alternative(parse_mapping_path("at"), pattern="^([0-9-]{10})"),
    ))  # fmt: skip
    one = ColumnSpec("v", parse_type("text"), both)
    records = ('{"id":"a","run":"r","at":"2024"}', '{"id":"a","at":"2024-03-01T00"}')
    assert values(spec(one), *records) == [("r",), ("2024-03-01",)]
    (fault,) = mapped(spec(one), '{"id":"a","at":"2024"}').faults
    assert fault.reason is Reason.NO_MATCH


@pytest.mark.parametrize(
    ("pattern", "value", "stored"),
    [
        ("^([0-9-]{10})", '"2024-03-01T00"', "n-2024-03-01"),
        (None, '"x"', "n-x"),
        (None, "7", "n-7"),
    ],
)
def test_a_prefix_stands_before_what_was_taken(
    pattern: str | None, value: str, stored: str
) -> None:
    both: ByPlan[tuple[Alternative, ...]] = ByPlan((
        Alternative(parse_mapping_path("run")),
        Alternative(parse_mapping_path("at"), pattern, prefix="n-"),
    ))  # fmt: skip
    one = ColumnSpec("v", parse_type("text"), both)
    records = ('{"id":"a","run":"r"}', f'{{"id":"a","at":{value}}}', '{"id":"a"}')
    assert values(spec(one), *records) == [("r",), (stored,), (None,)]
    (fault,) = mapped(spec(one), '{"id":"a","at":true}').faults
    assert fault.reason is Reason.WRONG_TYPE


def test_ordinary_records_take_the_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the numbers of the benchmark would fall without anybody noticing."""

    def refuse(*_: object) -> None:
        raise AssertionError("an ordinary record was interpreted")

    monkeypatch.setattr(compiler, "interpret", refuse)
    of = spec(
        column("status", "text", path=path("state.name"), values={"open": "open", "paid": "paid"}),
        column("total", "numeric(12,2)", path=path("amount.total")), column("n", "bigint", min=0),
        column("currency", "char(3)"), column("active", "boolean"), column("tags", "text[]"),
        column("ref", "uuid"), column("at", "timestamptz"), column("day", "date"),
        column("note", "text", max=20), column("data", "jsonb"),
        column("tenant_id", "text", path=path("observation.tenant")),
        key=("id", "tenant_id"), revision=dated("timestamptz", path=ByPlan(parse_mapping_path("at"))),
    )  # fmt: skip
    record = (
        '{"id":"a","state":{"name":"open"},"amount":{"total":12.50},"n":7,"currency":"EUR",'
        '"active":true,"tags":["x"],"ref":"7f2c1e0a-0b1c-4d2e-8f3a-123456789abc",'
        '"at":"2024-03-01T08:12:31Z","day":"2024-03-01","note":"a:b \\u00e9","data":{"a":[1.5]}}'
    )
    assert len(mapped(of, *[record] * 3, tenant="north").rows) == 3


def test_what_cannot_work_is_refused_when_it_is_compiled() -> None:
    for of in (
        spec(column("v", "text[]"), key=("v",)),
        spec(column("v", "jsonb"), key=("v",)),
        spec(column("v", "char(3)[]")),
        spec(column("v", "varchar(3)", values={"open": "open"})),
        spec(column("v", "smallint", default=70_000)),
        spec(column("v", "bigint", personal=Personal.HASH)),
        spec(column("v", "uuid", min=1)),
    ):
        with pytest.raises(ValueError, match=r"^column v: "):
            compile_mapping(of, 1)


def test_counts_sum_to_the_records() -> None:
    every = bytes(outcome.value for outcome in Outcome)
    assert counts(every + every[:1]) == [2, 1, 1, 1, 1, 1]
    assert counts(b"") == [0] * 6
    with pytest.raises(ValueError, match="not an outcome"):
        counts(b"\x00\x01")
    assert MEANING.keys() == set(Reason)

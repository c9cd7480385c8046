"""Numbers that stay as JSON writes them until a column reads them, in records of a learnt shape."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from apply.mapping import shape
from apply.mapping.compile import compile_mapping
from apply.mapping.interpret import interpret_page, seen
from apply.mapping.raw import read_record, read_unchecked
from apply.mapping.rules import resolve
from apply.mapping.types import CompiledMapping, Mapped, Place
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from tests.unit.apply.mapped import column, page, path, spec

_PLACE = Place(4, 1, 11, "north", None)
_UNREADABLE = (b'{"x":1,"x":2}', b'[{"x":1,"x":2}]', b"1e99999999999999999999", b'"\xff"')
_TOTAL = column("total", "numeric(12,2)")
_OPEN = Line(parse_mapping_path("state"), (Check(Operator.EQUALS, "open"),))


def _learnt(of: MappingSpec, *usual: str) -> CompiledMapping:
    compiled = compile_mapping(of, 6)
    compiled.map_page(page(*usual), _PLACE)
    assert _shaped(compiled) is not None
    return compiled


def _shaped(compiled: CompiledMapping):  # type: ignore[no-untyped-def]
    return compiled.mapper.__self__.plans["interval"].shaped  # type: ignore[attr-defined]


def _usual(rest: str) -> list[str]:
    return [f'{{"id":"{number}",{rest}}}' for number in range(shape.LEAST_RECORDS)]


def _same(compiled: CompiledMapping, *records: str | bytes) -> Mapped:
    """What both mappers say."""
    observation = page(*records)
    rules = resolve(compiled.spec, observation.plan)
    expected = interpret_page(observation, seen(rules, observation, _PLACE, 6))
    found = compiled.map_page(observation, _PLACE)
    assert (found.outcomes, found.faults) == (expected.outcomes, expected.faults)
    assert sorted(map(repr, found.rows)) == sorted(map(repr, expected.rows))
    return found


def _are_ordinary(compiled: CompiledMapping, *records: str) -> None:
    """The code for their shape maps them, and leaves none to the plain mapper."""
    observation, odd, rows = page(*records), list[int](), list[object]()
    shaped = _shaped(compiled)
    read = read_unchecked(observation.records, shaped.decode)
    assert read is not None
    context = seen(resolve(compiled.spec, "interval"), observation, _PLACE, 6)
    shaped.map_ordinary(
        read[0], observation.records, [], context,
        rows.append, odd.append, odd.append, lambda at, children: None,
    )  # fmt: skip
    assert len(rows) == len(records) and not odd


@pytest.mark.parametrize("value", _UNREADABLE)
def test_an_ignored_record_with_a_number_that_nobody_can_read_is_a_fault(value: bytes) -> None:
    of = replace(spec(_TOTAL), where=Predicate(((_OPEN,),)))
    compiled = _learnt(of, *_usual('"state":"open","total":1.50'))
    found = _same(compiled, b'{"id":"1","state":"shut","total":' + value + b"}")
    assert found.unreadable == 1
    found = _same(compiled, '{"id":"1","state":"shut","total":1e2}')
    assert not found.faults and not found.rows


@pytest.mark.parametrize("value", _UNREADABLE)
def test_so_is_a_record_with_such_an_alternative_that_is_not_needed(value: bytes) -> None:
    of = spec(column("total", "numeric(12,2)", path=path("total", "gross")))
    compiled = _learnt(of, *_usual('"total":1.50,"gross":2.50'))
    found = _same(compiled, b'{"id":"1","total":1.50,"gross":' + value + b"}")
    assert found.unreadable == 1


def test_names_of_an_object_that_is_not_there_are_not_counted() -> None:
    """It is read only from the record's root, and holds nothing but a kept number."""
    of = spec(column("total", "numeric(12,2)", path=path("$.amount.total")))
    compiled = _learnt(of, *_usual('"amount":{"total":1.50},"x":1'))
    found = _same(compiled, '{"id":"1","amount":null,"x":1,"x":2}')
    assert found.unreadable == 1, "a member is named twice"


@pytest.mark.parametrize("written", ["1e2", "1.5E-1", "1.5000", '"12.5"', "-0.0", "null"])
def test_unusual_numbers_are_ordinary(written: str) -> None:
    compiled = _learnt(spec(_TOTAL), *_usual('"total":1.50'))
    records = _usual(f'"total":{written}')
    _same(compiled, *records)
    _are_ordinary(compiled, *records)


@pytest.mark.parametrize("first", ['"amount":{"total":"1.50"}', '"amount":null'])
def test_numbers_that_are_not_kept_are_read_exactly(first: str) -> None:
    """Numbers in texts, or in an object that was never seen when the shape was learnt."""
    of = spec(column("total", "numeric(12,2)", path=path("amount.total")))
    compiled = _learnt(of, *_usual(first))
    records = _usual('"amount":{"total":12.10}')
    _same(compiled, *records)
    _are_ordinary(compiled, *records)


@pytest.mark.parametrize("more", [{"default": 5}, {"required": True}, {"path": path("v", "w")}])
def test_a_value_that_is_stored_as_null_is_one(more: dict[str, object]) -> None:
    of = spec(column("v", "jsonb", values={"none": None, "some": 1}, **more))
    _same(compile_mapping(of, 6), '{"id":"1","v":"none","w":"some"}')
    _same(_learnt(of, *_usual('"v":"some","w":1')), '{"id":"1","v":"none","w":"some"}')


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("0e99999999999999999999", Decimal(0)),
        ("-0.00E-99999999999999999999", Decimal(0)),
        ("-1.5e-99999999999999999999", Decimal("-1E-999999999999999999")),
    ],
)
def test_whoever_reads_a_number_that_is_nearly_nothing_it_is_one(
    written: str, number: Decimal
) -> None:
    assert read_record(written.encode()) == number
    compiled = _learnt(spec(column("n", "text")), *_usual('"n":"a","unread":1.5'))
    assert not _same(compiled, f'{{"id":"1","n":"a","unread":{written}}}').faults
    found = _same(compile_mapping(spec(_TOTAL), 6), f'{{"id":"1","total":{written}}}')
    assert bool(found.faults) == bool(number)

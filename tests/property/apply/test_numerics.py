"""Packed numbers are what psycopg makes of the Decimal, to Postgres, and read back as it."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apply.mapping import text_arrays
from apply.mapping.casts import ValueFault, cast_for
from apply.mapping.code import Writer
from apply.mapping.code_columns import plain_number
from apply.mapping.numerics import pack_decimal, packer, pair, unpack
from apply.mapping.rules import resolve
from schemas.definitions.column_types import ColumnType
from schemas.definitions.mapping import ByPlan, ColumnSpec
from tests.unit.apply.mapped import spec as mapping


@st.composite
def _numbers(draw: st.DrawFn) -> tuple[ColumnType, int]:
    precision = draw(st.integers(1, 60))
    scale = draw(st.integers(0, precision))
    units = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    return ColumnType("numeric", (precision, scale)), units


def _exactly(units: int, scale: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _as_written(of: ColumnType, text: str) -> bytes | None:
    """What the generated lines make of a number of JSON."""
    writer, spec = Writer(), ColumnSpec("n", of, ByPlan(()))
    [rule] = resolve(mapping(spec, key=()), "interval").columns[-1:]
    lines = plain_number(writer, rule, "value")
    space: dict[str, object] = {**writer.names, "pair": pair, "value": text.encode()}
    exec("\n".join(lines), space)
    return cast(bytes | None, space["value"])


@given(_numbers())
def test_it_is_read_back(number: tuple[ColumnType, int]) -> None:
    of, units = number
    scale = of.arguments[1]
    expected = _exactly(units, scale)
    assert f"{unpack(packer(scale)(units)):f}" == f"{expected:f}"


@given(_numbers(), st.integers(0, 5), st.booleans())
def test_written_numbers_are_packed_as_the_cast_has_them(
    number: tuple[ColumnType, int], behind: int, exponent: bool
) -> None:
    of, units = number
    value = _exactly(units, of.arguments[1])
    text = f"{value:f}" + ("" if "." not in f"{value:f}" else "0" * behind)
    text += "e0" * exponent
    packed = pack_decimal(of)(cast_for(of)(Decimal(text)))
    assert unpack(packed) == value
    assert _as_written(of, text) == packed
    assert _as_written(of, f'"{text}"') == packed


@pytest.mark.parametrize(
    "text",
    [
        '"+5"',
        '"1_0"',
        '" 5"',
        "true",
        "[1]",
        "{}",
        "1e3",
        "1.5E-2",
        "1e-99999999999999999999",
        "1000",
        "-1000",
        "1.005",
        "100000000000000000000.5",
    ],
)
def test_what_the_type_does_not_hold_is_left_to_the_plain_mapper(text: str) -> None:
    with pytest.raises((ValueFault, InvalidOperation)):
        _as_written(ColumnType("numeric", (5, 2)), text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", "0.00"),
        ("-0", "0.00"),
        ("-0.00", "0.00"),
        ("7", "7.00"),
        ("-7.5", "-7.50"),
        ("7.50000", "7.50"),
        ("15e-1", "1.50"),
        ('"-7.5"', "-7.50"),
        ("null", None),
    ],
)
def test_plain_numbers(text: str, number: str | None) -> None:
    found = _as_written(ColumnType("numeric", (5, 2)), text)
    assert (found if found is None else str(unpack(found))) == number


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_lists_of_texts_are_read_back(texts: list[str | None]) -> None:
    assert text_arrays.unpack(text_arrays.pack(texts)) == texts


def test_only_lists_of_texts_are_remembered() -> None:
    """1, 1.0 and true are one key of a dict, but not one text."""
    known: text_arrays.Known = {}
    cast = text_arrays.remembering(cast_for(ColumnType("text", array=True)), known)
    for value in json.loads('[["a"],[1],[null],["a",null],["b","c"]]'):
        cast(value)
    with pytest.raises(ValueFault):
        cast([True])
    assert known.keys() == {("a",), ("b", "c")}

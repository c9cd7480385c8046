"""Rows formed beforehand are, byte for byte, what psycopg's own COPY would have sent."""

from __future__ import annotations

import struct
from random import Random
from typing import cast

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg._copy_base import BinaryFormatter
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import Format

from apply import dumpers
from apply.copy_form import RowForms
from apply.copy_frame import HEADER, TRAILER, chunks
from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place, Row
from tests.property.apply import pages, specs
from tests.unit.apply.mapped import column, page, spec


class Context:
    """What a connection would say of its adapters."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        dumpers.register(self)


def sent_by_psycopg(compiled: CompiledMapping, rows: list[Row]) -> bytes:
    context = Context()
    transformer = Transformer(context)
    oids = [context.adapters.types.get_oid(name) for name in compiled.type_names]
    transformer.set_dumper_types(oids, Format.BINARY)
    formatter = BinaryFormatter(transformer)
    return b"".join([*(bytes(formatter.write_row(row)) for row in rows), bytes(formatter.end())])


def sent(forms: list[bytearray | None]) -> bytes:
    assert None not in forms
    return b"".join(chunks(cast("list[bytearray]", forms)))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_the_bytes_are_psycopgs(seed: int) -> None:
    dice = Random(seed)
    of = specs.spec(dice)
    compiled = compile_mapping(of, 3)
    forms = RowForms(compiled)
    rows: list[Row] = []
    for offset in range(3):
        observation = pages.page(dice, of)
        rows += compiled.map_page(observation, Place(1, 0, offset, "north", None)).rows
    if rows:
        assert sent(forms.form_all(rows)) == sent_by_psycopg(compiled, rows)


def test_no_rows_are_a_whole_copy_too() -> None:
    assert sent([]) == HEADER + TRAILER


def test_pieces_are_bounded_and_complete() -> None:
    forms = [bytes([n % 256]) * 40 for n in range(2_345)]
    found = list(chunks(forms))
    assert max(map(len, found)) < 128 * 1024
    assert len(found) == 12
    assert b"".join(found) == HEADER + b"".join(forms) + TRAILER


def test_a_row_that_cannot_be_formed_leaves_the_others_alone() -> None:
    """The sink finds out about it, where one record can be isolated."""
    of = spec(column("n", "integer"))
    compiled = compile_mapping(of, 1)
    records = [b'{"id":"a","n":1}', b'{"id":"b","n":2}']
    rows = compiled.map_page(page(*records), Place(1, 0, 0, None, None)).rows
    assert len(rows) == 2
    at = [c.name for c in compiled.columns].index("n")
    broken = (*rows[0][:at], "no number", *rows[0][at + 1 :])
    bad, good = RowForms(compiled).form_all([broken, rows[1]])
    assert bad is None
    assert good == RowForms(compiled).form(rows[1])


def test_lists_of_texts_that_come_again_are_the_same() -> None:
    dumper = dumpers.TextArrayDumper(list)
    first = bytes(dumper.dump(["a", None, "é"]))
    assert bytes(dumper.dump(["a", None, "é"])) == first
    assert first[:12] == struct.pack("!iii", 1, 1, 25)
    assert bytes(dumper.dump(["a", "", "é"])) != first
    for number in range(10_000):
        assert bytes(dumper.dump([str(number)]))[24:] == str(number).encode()

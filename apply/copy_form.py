"""Rows in the form of binary COPY, made by the thread that maps them.

The writing thread then only sends: while Postgres works on one batch, the next one is mapped and
formed. A writer belongs to one thread; its output is what `Copy.write_row` would have sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import psycopg

# The function behind `Copy.write_row`: nothing public forms one row without sending it.
from psycopg._copy_base import format_row_binary
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import Format

from apply import dumpers
from apply.mapping.types import Row


class _Adapters:
    """The adaptation of a connection without the connection."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        dumpers.register(self)


class Typed(Protocol):
    """What says the types of its rows' values: a compiled mapping, or one of its children."""

    @property
    def type_names(self) -> list[str]: ...


class RowForms:
    """Forms rows of one table."""

    def __init__(self, compiled: Typed) -> None:
        context = _Adapters()
        oids = [context.adapters.types.get_oid(name) for name in compiled.type_names]
        self._transformer = Transformer(context)
        self._transformer.set_dumper_types(oids, Format.BINARY)

    def form(self, row: Row) -> bytearray:
        """One row. Raises what its values' dumpers raise for a value that is not of its type."""
        out = bytearray()
        format_row_binary(row, self._transformer, out)
        return out

    def form_all(self, rows: Sequence[Row]) -> list[bytearray | None]:
        """Each row; None where it cannot be formed, which the sink has to find out for itself."""
        transformer, out = self._transformer, bytearray()
        try:  # into one buffer, which grows seldom; forming returns nothing
            ends = [format_row_binary(row, transformer, out) or len(out) for row in rows]
        except Exception:
            return [self._try(row) for row in rows]
        return [out[start:end] for start, end in pairwise((0, *ends))]

    def _try(self, row: Row) -> bytearray | None:
        try:
            return self.form(row)
        except Exception:
            return None

"""Binary forms of values that psycopg would make in Python, with more steps than rows of text need.

Only for COPY, where the types of columns are said. Whatever is not plain is left to psycopg.
"""

from __future__ import annotations

from psycopg import postgres
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.types.string import BytesBinaryDumper

from apply.mapping import text_arrays


class TextArrayDumper(Dumper):
    """A list of texts and nulls as text[]. Belongs to one thread."""

    format = Format.BINARY
    oid = postgres.types["text"].array_oid

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._known: text_arrays.Known = {}

    def dump(self, obj: list[str | None]) -> Buffer:
        """The array's binary form. Raises TypeError or AttributeError for what is no list of texts."""
        known = self._known.get(tuple(obj))
        if known is None:
            known = text_arrays.pack(obj)
            text_arrays.remember(self._known, obj, known)
        return known


class _ListOfTexts:
    """A name to register under: the dumper is found by its type, never by the class of a value."""


def register(context: AdaptContext) -> None:
    """Use these where COPY names the type text[] or bytea; parameters of queries stay as they are."""
    context.adapters.register_dumper(_ListOfTexts, TextArrayDumper)
    # psycopg's own for bytes, which its DB-API wrapper for `Binary` has replaced
    context.adapters.register_dumper(bytes, BytesBinaryDumper)

"""Binary forms of values that psycopg would make in Python, with more steps than rows of text need.

Only for COPY, where the types of columns are said. Whatever is not plain is left to psycopg.
"""

from __future__ import annotations

import struct
from typing import Any

from psycopg import Connection, postgres
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.types.string import BytesBinaryDumper

_TEXT = postgres.types["text"].oid
# Dimensions, whether there are nulls, type, length, lower bound.
_head = struct.Struct("!iiiii").pack
_length = struct.Struct("!i").pack
_NULL = _length(-1)
_NOTHING = struct.pack("!iii", 0, 0, _TEXT)


class TextArrayDumper(Dumper):
    """A list of texts and nulls as text[]: one dimension, counted from 1."""

    format = Format.BINARY
    oid = postgres.types["text"].array_oid

    def dump(self, obj: list[str | None]) -> Buffer:
        """The array's binary form. Raises AttributeError for elements that are no texts."""
        if not obj:
            return _NOTHING
        pieces, nulls = [b""], 0
        for one in obj:
            if one is None:
                pieces.append(_NULL)
                nulls = 1
            else:
                data = one.encode()
                pieces.append(_length(len(data)))
                pieces.append(data)
        pieces[0] = _head(1, nulls, _TEXT, len(obj), 1)
        return b"".join(pieces)


class _ListOfTexts:
    """A name to register under: the dumper is found by its type, never by the class of a value."""


def register(connection: Connection[Any]) -> None:
    """Use these where COPY names the type text[] or bytea; parameters of queries stay as they are."""
    connection.adapters.register_dumper(_ListOfTexts, TextArrayDumper)
    # psycopg's own for bytes, which its DB-API wrapper for `Binary` has replaced
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)

"""Binary forms of values that psycopg would make in Python, with more steps than rows of text need.

Only for COPY, where the types of columns are said. Whatever is not plain is left to psycopg.
"""

from __future__ import annotations

import struct

from psycopg import postgres
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.types.string import BytesBinaryDumper

_TEXT = postgres.types["text"].oid
# Dimensions, whether there are nulls, type, length, lower bound.
_head = struct.Struct("!iiiii").pack
_length = struct.Struct("!i").pack
_NULL = _length(-1)
_NOTHING = struct.pack("!iii", 0, 0, _TEXT)
_KNOWN_BYTES = 256
_KNOWN_LISTS = 4_096


class TextArrayDumper(Dumper):
    """A list of texts and nulls as text[]: one dimension, counted from 1.

    Short lists are remembered: labels and tags come again and again. Belongs to one thread.
    """

    format = Format.BINARY
    oid = postgres.types["text"].array_oid

    def __init__(self, cls: type, context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self._known: dict[tuple[str | None, ...], bytes] = {}

    def dump(self, obj: list[str | None]) -> Buffer:
        """The array's binary form. Raises TypeError or AttributeError for what is no list of texts."""
        key = tuple(obj)
        known = self._known.get(key)
        if known is None:
            known = _text_array(obj)
            if len(known) <= _KNOWN_BYTES:
                if len(self._known) >= _KNOWN_LISTS:
                    self._known.clear()
                self._known[key] = known
        return known


def _text_array(texts: list[str | None]) -> bytes:
    if not texts:
        return _NOTHING
    pieces, nulls = [b""], 0
    for one in texts:
        if one is None:
            pieces.append(_NULL)
            nulls = 1
        else:
            data = one.encode()
            pieces.append(_length(len(data)))
            pieces.append(data)
    pieces[0] = _head(1, nulls, _TEXT, len(texts), 1)
    return b"".join(pieces)


class _ListOfTexts:
    """A name to register under: the dumper is found by its type, never by the class of a value."""


def register(context: AdaptContext) -> None:
    """Use these where COPY names the type text[] or bytea; parameters of queries stay as they are."""
    context.adapters.register_dumper(_ListOfTexts, TextArrayDumper)
    # psycopg's own for bytes, which its DB-API wrapper for `Binary` has replaced
    context.adapters.register_dumper(bytes, BytesBinaryDumper)

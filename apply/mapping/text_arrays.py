"""Lists of texts and nulls in the binary form of Postgres' text[]: one dimension, counted from 1.

Short lists are remembered: labels and tags come again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

TEXT_OID = 25
Texts = Sequence[str | None]
Known = dict[tuple[str | None, ...], bytes]
# Dimensions, whether there are nulls, type, length, lower bound.
_head = struct.Struct("!iiiii")
_length = struct.Struct("!i")
_NULL = _length.pack(-1)
_NOTHING = struct.pack("!iii", 0, 0, TEXT_OID)
_KNOWN_BYTES = 256
_KNOWN_LISTS = 4_096
_TEXTS = frozenset((str,))


def pack(texts: Texts) -> bytes:
    """The array's binary form. Raises AttributeError for what is no list of texts."""
    if not texts:
        return _NOTHING
    pieces, nulls = [b""], 0
    for one in texts:
        if one is None:
            pieces.append(_NULL)
            nulls = 1
        else:
            data = one.encode()
            pieces.append(_length.pack(len(data)))
            pieces.append(data)
    pieces[0] = _head.pack(1, nulls, TEXT_OID, len(texts), 1)
    return b"".join(pieces)


def unpack(data: bytes) -> list[str | None]:
    """The texts of an array's binary form."""
    if data == _NOTHING:
        return []
    count = _head.unpack_from(data)[3]
    at, found = _head.size, []
    for _ in range(count):
        [size] = _length.unpack_from(data, at)
        at += _length.size
        found.append(None if size < 0 else data[at : at + size].decode())
        at += max(0, size)
    return found


def remember(known: Known, texts: Texts, data: bytes) -> None:
    """Keep what a short list was packed to. Only texts: 1 and true would be found as each other, and
    whoever counts the texts takes all of a list that is known."""
    if len(data) <= _KNOWN_BYTES and _TEXTS.issuperset(map(type, texts)):
        if len(known) >= _KNOWN_LISTS:
            known.clear()
        known[tuple(texts)] = data


def remembering(cast: Callable[[object], list[Any]], known: Known) -> Callable[[object], bytes]:
    """The cast, packed; `known` then has what each short list of texts became."""

    def packed(value: object) -> bytes:
        data = pack(cast(value))
        if isinstance(value, list):
            remember(known, value, data)
        return data

    return packed

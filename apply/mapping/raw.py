"""From a record's raw bytes to plain values, exactly: no number passes through a float.

Refused are broken JSON, broken UTF-8, NaN, a lone surrogate and a member named twice, which would
silently hide one of two values. Knows nothing of mappings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from zlib import adler32, crc32

import msgspec

_FAULTS = (msgspec.MsgspecError, RecursionError, InvalidOperation, ValueError)
_exact = msgspec.json.Decoder(float_hook=Decimal).decode
_quick = msgspec.json.Decoder().decode
Decode = Callable[[bytes], object]
_encode = msgspec.json.Encoder().encode


class Unreadable(ValueError):
    """A record is no JSON that has one meaning; the text says why and never repeats it."""


def content_hash(raw: bytes) -> int:
    """A signed 64-bit number that is the same for the same bytes, in every process.

    Two checksums, no cryptography: it is compared only between states of one entity that claim to
    be equal, so that a difference shows.
    """
    return (crc32(raw) << 32 | adler32(raw)) - 2**63


def read_record(raw: bytes) -> object:
    """One record: dict, list, str, int, Decimal, bool or None. Raises Unreadable."""
    try:
        value = _read(raw)
    except RecursionError:
        raise Unreadable("nested too deeply") from None
    except (InvalidOperation, ValueError, msgspec.MsgspecError) as error:
        text = str(error) if isinstance(error, msgspec.MsgspecError) else "a number is too large"
        raise Unreadable(text) from None
    if (_escaped_colon(raw) or raw.count(b":") != _colons(value)) and _named_twice(raw):
        raise Unreadable("a member is named twice")
    return value


def read_exactly(raw: bytes) -> object:
    """One value, whose members are not looked at. Raises what msgspec and Decimal raise."""
    return _exact(raw)


def is_one_value(value: object) -> bool:
    """Whether a value that stayed as JSON writes it can be read and has no members; others are read."""
    return not isinstance(value, msgspec.Raw) or not isinstance(_exact(value), dict | list)


def _read(raw: bytes) -> object:
    try:
        return _exact(raw)
    except InvalidOperation:
        return _of_any_exponent(raw)


def _small(text: str) -> Decimal:
    """A number that a float holds, if only as 0, is one: also with an exponent that no Decimal has,
    or it would depend on who reads a record whether it can be read. It is 0, or closer to 0 than any
    column takes. Raises InvalidOperation for what is too large."""
    try:
        return Decimal(text)
    except InvalidOperation:
        if float(text):
            raise
    sign = "-" if text.startswith("-") else ""
    digits = text.lower().partition("e")[0].strip("-.0")
    return Decimal(f"{sign}1E-999999999999999999" if digits else f"{sign}0")


_of_any_exponent = msgspec.json.Decoder(float_hook=_small).decode


def read_page(records: Sequence[bytes], *, exact: bool) -> list[object] | None:
    """All records of a page at once; None if any of them needs a closer look.

    Then each is to be read by itself (`read_plain`). `exact` False reads fractions as floats, for
    mappings that use none.
    """
    found = read_unchecked(records, _exact if exact else _quick)
    return found[0] if found is not None and names_once(*found) else None


def read_unchecked(records: Sequence[bytes], decode: Decode) -> tuple[list[object], bytes] | None:
    """The same by `decode`, and all the bytes; whether every member is named once is left to
    `names_once`, or to whoever knows better."""
    try:
        values = list(map(decode, records))
    except _FAULTS:
        return None
    joined = b",".join(records)
    return None if b"\\" in joined and b"\\u0000" in joined else (values, joined)


def names_once(values: Sequence[object], joined: bytes) -> bool:
    """Whether surely no member is named twice in the records that these values were read from.

    Objects may be of any class that encodes to what was read.
    """
    if _escaped_colon(joined):
        return False
    try:
        return joined.count(b":") == _colons(values)
    except _FAULTS:
        return False


def read_plain(raw: bytes, *, exact: bool) -> object:
    """One record, or ODD if the general way has to decide about it."""
    found = read_page((raw,), exact=exact)
    return ODD if found is None else found[0]


class _Odd:
    __slots__ = ()


ODD = _Odd()


def _colons(value: object) -> int:
    """Colons of the value written out.

    A text holds as many as in the raw bytes and each member adds one, so the numbers are equal
    exactly if no member was lost: a second one of its name replaces the first when decoded.
    """
    return _encode(value).count(b":")


def _escaped_colon(raw: bytes) -> bool:
    """Whether counting cannot be trusted, because a colon may be written as an escape."""
    return b"\\" in raw and (b"\\u003a" in raw or b"\\u003A" in raw)


def _named_twice(raw: bytes) -> bool:
    twice = False

    def members(pairs: list[tuple[str, object]]) -> None:
        nonlocal twice
        twice = twice or len({name for name, _ in pairs}) != len(pairs)

    plain: Callable[[str], str] = str
    try:
        json.loads(raw, object_pairs_hook=members, parse_int=plain, parse_float=plain)
    except RecursionError:
        return True  # too deep to be looked at; never passed on unchecked
    return twice

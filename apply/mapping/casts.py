"""Typed casts: from a JSON value to what a column of a Postgres type holds, or a fault.

Invariant: a cast loses nothing. What would be rounded, cut or guessed is refused. Values come out
in the form of `Column.copy_type`. Fractions come as Decimal; a float is
taken by the float types only.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from apply.mapping.types import PG_EPOCH_US
from apply.outcomes import Reason
from schemas.definitions.column_types import ColumnType
from schemas.definitions.time_fields import TimeFault, UndecidedTime
from schemas.definitions.times import RFC3339, TimeFormat, TimeKind, time_reader

Cast = Callable[[object], Any]

_INTEGERS = {
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
}
_WHOLE = re.compile(r"-?[0-9]{1,40}")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_NUMBER_CHARACTERS = 2_000
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOST_BEFORE_POINT, _MOST_AFTER_POINT = 131_072, 16_383  # of numeric without arguments
EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(2000, 1, 1).toordinal()
ISO_LENGTHS = frozenset((20, 24, 27))
_encode_json = msgspec.json.Encoder(decimal_format="number").encode
_pack_float4 = struct.Struct("!f").pack


class ValueFault(Exception):
    """A value is not what its column holds; `what` goes on after the value: "is no integer"."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


class Moment:
    """A time of ours, which needs no format or zone; `us` microseconds since 1970."""

    __slots__ = ("us",)

    def __init__(self, us: int) -> None:
        self.us = us


def cast_for(of: ColumnType, from_: TimeFormat | None = None, zone: str | None = None) -> Cast:
    """The cast of a column's type. Raises ValueError for a type that no column can have."""
    if of.array:
        return _array(ColumnType(of.name, of.arguments), from_, zone)
    if of.name in _INTEGERS:
        return _integer(of.name)
    if of.name in ("real", "double precision"):
        return _float(of.name)
    if of.name in ("text", "varchar", "char"):
        return _text(of)
    if of.name == "numeric":
        return _numeric(of)
    if of.name == "timestamptz":
        return _time(from_ or RFC3339, zone)
    if of.name == "date":
        return _date(from_ or RFC3339, zone)
    plain: dict[str, Cast] = {"boolean": _boolean, "uuid": _uuid, "jsonb": _jsonb}
    if of.name not in plain:
        raise ValueError(f"there is no column of type {of.sql}")
    return plain[of.name]


def as_text(value: object) -> str:
    """A text, or a whole number as one."""
    if value.__class__ is int:
        return str(value)
    if not isinstance(value, str):
        raise ValueFault(Reason.WRONG_TYPE, "is no text")
    if "\0" in value:
        raise ValueFault(Reason.NUL, "holds the character U+0000")
    return value


def _text(of: ColumnType) -> Cast:
    limit = of.arguments[0] if of.arguments else None
    padded = of.name == "char"

    def cast(value: object) -> str:
        text = as_text(value)
        if padded:
            text = text.rstrip(" ")  # as Postgres compares it, or equal keys would look different
        if limit is not None and len(text) > limit:
            raise ValueFault(Reason.TOO_LONG, f"is longer than {limit} characters")
        return text

    return cast


def _integer(name: str) -> Cast:
    low, high = _INTEGERS[name]

    def cast(value: object) -> int:
        number = value
        if isinstance(number, str) and _WHOLE.fullmatch(number):
            number = int(number)
        elif isinstance(number, Decimal):
            if number.adjusted() > 40:
                raise ValueFault(Reason.OUT_OF_RANGE, f"is out of range for {name}")
            if number == number.to_integral_value():
                number = int(number)
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueFault(Reason.WRONG_TYPE, "is no whole number")
        if not low <= number <= high:
            raise ValueFault(Reason.OUT_OF_RANGE, f"is out of range for {name}")
        return number

    return cast


def _as_decimal(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and len(value) <= _NUMBER_CHARACTERS and _NUMBER.fullmatch(value):
        return Decimal(value)
    raise ValueFault(Reason.WRONG_TYPE, "is no number")


def _numeric(of: ColumnType) -> Cast:
    if not of.arguments:
        return _any_numeric
    precision, scale = of.arguments
    quantize = Context(prec=precision, Emax=999_999, Emin=-999_999).quantize
    step = Decimal(1).scaleb(-scale)
    fault = ValueFault(Reason.OUT_OF_RANGE, f"does not fit into {of.sql}")

    def cast(value: object) -> Decimal:
        number = value if isinstance(value, Decimal) else _as_decimal(value)
        try:
            fitting = quantize(number, step)  # raises if it needs more digits than `precision`
        except InvalidOperation:
            raise fault from None
        if fitting != number:
            raise fault  # it would be rounded
        return fitting

    return cast


def _any_numeric(value: object) -> Decimal:
    number = _as_decimal(value)
    _, _, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not number:
        return number if -_MOST_AFTER_POINT <= exponent <= 0 else Decimal(0)
    if number.adjusted() >= _MOST_BEFORE_POINT or exponent < -_MOST_AFTER_POINT:
        raise ValueFault(Reason.OUT_OF_RANGE, "is out of range for numeric")
    return number


def _float(name: str) -> Cast:
    def cast(value: object) -> float:
        # Nothing is lost in a float that was read as one, unless it is 0 for something smaller.
        number = value if isinstance(value, float) and value else _as_decimal(value)
        try:
            found = float(number)
            single = _pack_float4(found) if name == "real" else b"?"
        except OverflowError:
            raise ValueFault(Reason.OUT_OF_RANGE, f"is out of range for {name}") from None
        # Nearly every decimal is rounded by this type, which its declaration accepts; but a number
        # never becomes infinite or nothing.
        if math.isinf(found) or (number and (not found or single in (b"\0\0\0\0", b"\x80\0\0\0"))):
            raise ValueFault(Reason.OUT_OF_RANGE, f"is out of range for {name}")
        return found

    return cast


def _boolean(value: object) -> bool:
    if value is True or value is False:
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueFault(Reason.WRONG_TYPE, "is neither true nor false")


def _uuid(value: object) -> bytes:
    if isinstance(value, str):
        grouped = len(value) == 36 and value[8:24:5] == "----"
        if grouped or len(value) == 32:
            try:
                found = bytes.fromhex(value.replace("-", ""))
            except ValueError:
                found = b""
            if len(found) == 16:
                return found
    raise ValueFault(Reason.WRONG_TYPE, "is no uuid")


def is_iso(time_format: TimeFormat) -> bool:
    """Whether these times are mostly written like `2024-03-01T08:12:31Z`."""
    return time_format.kind in (TimeKind.RFC3339, TimeKind.RFC3339_MS)


def _time(time_format: TimeFormat, zone: str | None) -> Cast:
    read = _fault_of_time(time_format, zone)
    if not is_iso(time_format):
        return lambda value: read(value) - PG_EPOCH_US
    parse = datetime.fromisoformat

    def cast(value: object) -> int:
        if (
            value.__class__ is str
            and len(value) in ISO_LENGTHS
            and value[-1] == "Z"
            and value[4:11:3] == "--T"
        ):
            try:  # the usual shape, at half the cost
                since = parse(value) - EPOCH_2000
                return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
            except ValueError:
                pass
        return read(value) - PG_EPOCH_US

    return cast


def _fault_of_time(time_format: TimeFormat, zone: str | None) -> Callable[[object], int]:
    """Reads microseconds since 1970; says whether a time is wrong or only lacks a zone."""
    reader = time_reader(time_format, zone, first=False)
    lenient = time_reader(time_format, "UTC")

    def read(value: object) -> int:
        if isinstance(value, Moment):
            return value.us
        try:
            return reader(value)
        except UndecidedTime as error:
            raise ValueFault(Reason.AMBIGUOUS_TIME, f"is not one moment: {error}") from None
        except TimeFault as error:
            fault = ValueFault(Reason.BAD_TIME, f"is no time as declared: {error}")
        try:
            lenient(value)
        except TimeFault:
            raise fault from None
        raise ValueFault(Reason.NAIVE_TIME, "has no zone; declare `zone:`")

    return read


def _date(time_format: TimeFormat, zone: str | None) -> Cast:
    read = _fault_of_time(time_format, zone or "UTC")
    where: tzinfo = UTC if zone is None else ZoneInfo(zone)
    iso = is_iso(time_format)

    def cast(value: object) -> int:
        if iso and isinstance(value, str):
            if _DAY.fullmatch(value):
                try:
                    return date.fromisoformat(value).toordinal() - _EPOCH_DAY
                except ValueError:
                    raise ValueFault(Reason.BAD_TIME, "is no day of the calendar") from None
            if zone is None:
                raise ValueFault(Reason.BAD_TIME, "is no date; a time of day needs `zone:`")
        moment = EPOCH_2000 + timedelta(microseconds=read(value) - PG_EPOCH_US)
        return moment.astimezone(where).toordinal() - _EPOCH_DAY

    return cast


def _jsonb(value: object) -> bytes:
    if isinstance(value, Moment):
        raise ValueFault(Reason.WRONG_TYPE, "is no JSON")
    data = _encode_json(value)
    if b"\\u0000" in data or b"E+" in data or b"E-" in data or len(data) > 100_000:
        _check_json(value)
    return b"\x01" + data


def _check_json(value: object) -> None:
    """What JSON allows and jsonb does not: U+0000, and numbers beyond numeric."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.keys()
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            as_text(one)
        elif isinstance(one, Decimal):
            _any_numeric(one)


def _array(element: ColumnType, from_: TimeFormat | None, zone: str | None) -> Cast:
    if element.name in ("char", "jsonb"):
        raise ValueError(f"there is no column of type {element.sql}[]; write text[] or jsonb")
    return array_of(element.name, cast_for(element, from_, zone))


def array_of(name: str, cast_one: Cast) -> Cast:
    """The cast of an array from that of its elements, of type `name`; null elements stay."""
    natural = _NATURAL.get(name)

    def cast(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise ValueFault(Reason.WRONG_TYPE, "is no list")
        found = [None if one is None else cast_one(one) for one in value]
        if natural is None:
            return found
        return [None if one is None else natural(one) for one in found]

    return cast


# An array carries the type of its elements, so Postgres checks it: elements are natural values.
_NATURAL: dict[str, Callable[[Any], Any]] = {
    "timestamptz": lambda us: EPOCH_2000 + timedelta(microseconds=us),
    "date": lambda days: date.fromordinal(days + _EPOCH_DAY),
    "uuid": lambda data: UUID(bytes=data),
}

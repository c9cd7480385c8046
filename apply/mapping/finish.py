"""How a value becomes what a column stores: the type's cast, declared values, bounds, hash.

Reading order: values or cast, then min and max, then the hash. The path and its pattern come before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from apply.mapping.casts import Cast, ValueFault, array_of, cast_for, is_iso
from apply.mapping.outside import Outside
from apply.outcomes import Reason
from schemas.definitions.column_types import NUMBERS, TEXTS, TIMES, ColumnType
from schemas.definitions.mapping import Bound, ColumnSpec, Constant, Personal, Unknown
from schemas.definitions.times import RFC3339

_LISTED_VALUES = 10
_LONGEST_CHARACTER = 6  # a control character in JSON, in bytes
_NONE_SUCH = object()


@dataclass(frozen=True, slots=True)
class Finish:
    """`cast` raises ValueFault. `plain`: it is the type's cast, with bounds at most.

    `texts`: what each allowed text is stored as, where nothing but these texts is allowed; None
    where there is more to it than a look into this map. `low` and `high`: the declared bounds.
    `sure`: a text of more characters needs the cast; None: no length alone does. `iso`: times mostly
    written like `2024-03-01T08:12:31Z`.
    """

    cast: Cast
    plain: bool
    texts: Mapping[str, Any] | None = None
    low: Any = None
    high: Any = None
    sure: int | None = None
    iso: bool = False


def as_key(finish: Finish, most: int) -> Finish:
    """The same for a column of the key, which has room for `most` bytes of JSON.

    Keys stand in indexes of presence and events too, beside other columns. Longer than Postgres takes
    there, a key would hold up its whole batch, and not its record alone.
    """
    cast, sure = finish.cast, (most - 2) // _LONGEST_CHARACTER
    fault = ValueFault(Reason.TOO_LONG, f"takes more than the {most} bytes that a key may have")

    def short(value: object) -> Any:
        found = cast(value)
        if isinstance(found, Decimal):
            if abs(found.adjusted()) >= most or len(f"{found:f}") > most:
                raise fault
        elif len(found) > sure and len(json.dumps(found, ensure_ascii=False).encode()) > most:
            raise fault
        return found

    return replace(finish, cast=short, sure=sure)


def constant_of(spec: ColumnSpec) -> Callable[[Constant], Any]:
    """How a constant in the definition is stored: times are ISO 8601, UTC if nothing is said.

    What it returns raises ValueError for a constant that the column cannot hold.
    """
    cast = cast_for(_element(spec.type), None, spec.zone or "UTC")

    def constant(value: Constant) -> Any:
        try:
            return None if value is None else cast(value)
        except ValueFault as fault:
            raise ValueError(f"column {spec.name}: {value!r} {fault.what}") from None

    return constant


def finish_for(spec: ColumnSpec, outside: Outside) -> Finish:
    """All that happens to a value of this column. Raises ValueError for what makes no sense."""
    try:
        cast = cast_for(spec.type, spec.from_, spec.zone)
    except ValueError as error:
        raise ValueError(f"column {spec.name}: {error}") from None
    plain, texts = True, None
    if spec.values is not None:
        plain, texts = False, _texts(spec, spec.values)
        if spec.type.array:
            one = _enum(spec, spec.values, cast_for(_element(spec.type), spec.from_, spec.zone))
            cast = array_of(spec.type.name, one)
        else:
            cast = _enum(spec, spec.values, cast)
    sized = spec.type.array or spec.type.name in TEXTS
    low, high = _bound(spec, spec.min, sized), _bound(spec, spec.max, sized)
    if low is not None or high is not None:
        cast, texts = _bounded(spec, cast, low, high, sized), None
    if spec.personal is Personal.HASH:
        cast, plain, texts = _with_hash(spec, cast, hasher_of(spec, outside)), False, None
    iso = spec.type.name == "timestamptz" and is_iso(spec.from_ or RFC3339)
    return Finish(cast, plain, texts, low, high, iso=iso)


def hasher_of(spec: ColumnSpec, outside: Outside) -> Callable[[str], str]:
    """How a text that is personal is stored: equal texts alike, in hexadecimal digits.

    Its HMAC-SHA-256 under the declared key, else its SHA-256, which whoever can guess it can find.
    """
    return hashed if spec.hash_key is None else outside.hasher(spec.hash_key)


def hashed(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _element(of: ColumnType) -> ColumnType:
    return ColumnType(of.name, of.arguments)


def _enum(spec: ColumnSpec, values: Mapping[Constant, Constant], cast: Cast) -> Cast:
    """First the value as it is written is looked up, then as the column's type reads it."""
    constant = constant_of(spec)
    stored = {_sort(value): constant(kept) for value, kept in values.items()}
    read = {typed: stored[_sort(value)] for value, typed in _typed(values, cast)}
    use = constant(spec.unknown_value)
    some = ", ".join(str(value) for value in list(values)[:_LISTED_VALUES])
    what = f"is none of {some}{', …' if len(values) > _LISTED_VALUES else ''}"

    def look_up(value: object) -> Any:
        if isinstance(value, str | int | Decimal):
            found = stored.get(_sort(value), _NONE_SUCH)
            if found is not _NONE_SUCH:
                return found
        typed = _NONE_SUCH
        try:
            typed = cast(value)
        except ValueFault:
            if spec.unknown is Unknown.KEEP:
                raise
        if typed in read:
            return read[typed]
        if spec.unknown is Unknown.KEEP:
            return typed
        if spec.unknown is Unknown.USE:
            return use
        raise ValueFault(Reason.UNKNOWN_VALUE, what)

    return look_up


def _texts(spec: ColumnSpec, values: Mapping[Constant, Constant]) -> Mapping[str, Any] | None:
    constant = constant_of(spec)
    texts = {value: constant(kept) for value, kept in values.items() if isinstance(value, str)}
    return texts if len(texts) == len(values) and not spec.type.array else None


def _sort(value: object) -> tuple[str, object]:
    """True is no 1 here, though Python says so."""
    if isinstance(value, bool):
        return ("boolean", value)
    return ("text" if isinstance(value, str) else "number", value)


def _typed(values: Mapping[Constant, Constant], cast: Cast) -> list[tuple[Constant, Any]]:
    """The allowed values that are also values of the column's type, as the column holds them."""
    found = []
    for value in values:
        try:
            found.append((value, cast(value)))
        except ValueFault:
            continue
    return found


def _bounded(spec: ColumnSpec, cast: Cast, low: Any, high: Any, sized: bool) -> Cast:
    if not sized and spec.type.name not in (*NUMBERS, *TIMES):
        raise ValueError(f"column {spec.name}: {spec.type.sql} has no bounds")
    too_high = Reason.TOO_LONG if sized else Reason.OUT_OF_RANGE

    def bounded(value: object) -> Any:
        found = cast(value)
        size = len(found) if sized else found
        if low is not None and size < low:
            raise ValueFault(Reason.OUT_OF_RANGE, f"is below the minimum {spec.min}")
        if high is not None and size > high:
            raise ValueFault(too_high, f"is above the maximum {spec.max}")
        return found

    return bounded


def _bound(spec: ColumnSpec, bound: Bound | None, sized: bool) -> Any:
    """A length or a number as it is, exact also outside the type; a time as the column holds it."""
    if bound is None or sized or spec.type.name not in TIMES:
        return bound
    return constant_of(spec)(bound)


def _with_hash(spec: ColumnSpec, cast: Cast, hasher: Callable[[str], str]) -> Cast:
    if spec.type.name != "text" or spec.type.array:
        raise ValueError(f"column {spec.name}: a hash is a text, not {spec.type.sql}")
    return lambda value: hasher(cast(value))

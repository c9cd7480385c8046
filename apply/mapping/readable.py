"""From what rows hold back to plain values, for keys and events in JSON."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from apply.mapping import numerics, text_arrays
from apply.mapping.types import CompiledMapping, Key, Row
from schemas.definitions.column_types import ColumnType

_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(2000, 1, 1).toordinal()


def readable(of: ColumnType, value: Any) -> Any:
    """One value, JSON-ready: numeric and times as text, without exponents, jsonb as it is (its fractions as floats)."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if of.name == "timestamptz":
        return _plain(_EPOCH_2000 + timedelta(microseconds=value))
    if of.name == "date":
        return date.fromordinal(value + _EPOCH_DAY).isoformat()
    if of.name == "uuid":
        return str(UUID(bytes=value))
    if of.name == "numeric" and isinstance(value, bytes):
        return f"{numerics.unpack(value):f}"
    if of.array:
        return text_arrays.unpack(value)
    if of.name == "jsonb":
        return msgspec.json.decode(value[1:])
    return _plain(value)


def key_number(of: ColumnType, value: Decimal) -> str:
    """A number of a key as text, equal numbers alike: Postgres finds one row for 100, 100.0 and 1E+2,
    so they are one entity. A type with arguments gives all of them its scale already."""
    if not value:
        value = value.copy_abs()
    if of.arguments:
        return str(value)
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def readable_part(of: ColumnType, value: Any) -> Any:
    """One value of a key, JSON-ready: what Postgres takes for one key has one form."""
    return key_number(of, value) if isinstance(value, Decimal) else readable(of, value)


def readable_key(compiled: CompiledMapping, key: Key) -> dict[str, Any]:
    """A key by column, JSON-ready; the first values of a row are its key."""
    columns = compiled.spec.columns
    return {
        name: readable_part(columns[name].type, value)
        for name, value in zip(compiled.spec.key, key, strict=False)
    }


def readable_row(compiled: CompiledMapping, row: Row) -> dict[str, Any]:
    """The mapped columns of a row, key included, JSON-ready."""
    columns = compiled.spec.columns
    return {
        column.name: readable(columns[column.name].type, value)
        for column, value in zip(compiled.columns, row, strict=True)
        if column.name in columns
    }

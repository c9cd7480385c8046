"""Reads the columns of a mapping; `path::type` and `type` alone are short for the map."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, TypeVar

from schemas.definitions import known_keys
from schemas.definitions.column_types import NUMBERS, TEXTS, TIMES, ColumnType, is_type, parse_type
from schemas.definitions.fields import Fields, Known
from schemas.definitions.mapping import (
    Alternative,
    Bound,
    ByPlan,
    ColumnSpec,
    Constant,
    Personal,
    Unknown,
)
from schemas.definitions.paths import Path, Root, parse_mapping_path
from schemas.definitions.read_predicate import read_regex
from schemas.definitions.read_values import read_reference
from schemas.definitions.reader import Reader, Refused
from schemas.definitions.secrets import Reference
from schemas.definitions.times import TimeFault, parse_format, parse_time, parse_zone
from schemas.definitions.tree import Entry, ListNode, MapNode, Node, ScalarNode

T = TypeVar("T")
_TEXT: Final = ColumnType("text")
_RESERVED: Final = ("source_revision", "deleted_at")
_PERSONAL: Final = {
    "keep": Personal.KEEP,
    "hash": Personal.HASH,
    "drop": Personal.DROP,
    "false": Personal.NO,
}


def read_columns(reader: Reader, node: Node) -> dict[str, ColumnSpec]:
    """The columns of a table, by name."""
    out: dict[str, ColumnSpec] = {}
    for entry in reader.map(node, "columns").entries.values():
        column = reader.attempt(lambda entry=entry: read_column(reader, entry), None)  # type: ignore[misc]
        if column is not None:
            out[entry.key] = column
    if not out and not reader.failed:
        raise reader.refuse(node, "a table needs columns", "Write `id: text` below it.")
    return out


def read_key(reader: Reader, node: Node) -> tuple[str, ...]:
    """The names of the columns that tell two rows apart."""
    key = reader.list_of(reader.text)(node) if isinstance(node, ListNode) else (reader.text(node),)
    if not key or len(set(key)) < len(key):
        raise reader.refuse(node, "a key is one column or several different ones")
    return key


def read_column(reader: Reader, entry: Entry) -> ColumnSpec:
    """One column."""
    name = reader.check_sql_name(entry, entry.key)
    if name in _RESERVED:
        raise reader.refuse(
            entry, f"every table has a column {name} of its own", "Name this one differently."
        )
    node = entry.value
    if isinstance(node, ScalarNode):
        path_text, column_type = read_short(reader, node)
        if path_text is None:
            return ColumnSpec(name, column_type, ByPlan((_own_name(name),)))
        path = _path(reader, node, path_text, column_type)
        return ColumnSpec(name, column_type, ByPlan((Alternative(path),)))
    return _long(reader, reader.map(node, f"column {name}"), name)


def read_short(reader: Reader, node: Node) -> tuple[str | None, ColumnType]:
    """`path::type`, or a type alone (then the path is None)."""
    text = reader.text(node)
    if "::" in text:
        path, _, written = text.rpartition("::")
        return path, reader.notation(node, parse_type, written)
    if not is_type(text) and "." in text:
        raise reader.refuse(
            node, f'"{text}" has no type', f"Write `{text}::text`, or another type."
        )
    return None, reader.notation(node, parse_type, text)


def read_by_plan(reader: Reader, node: Node, read: Callable[[Node], T]) -> ByPlan[T]:
    """One value, or a map of plans to values."""
    if not isinstance(node, MapNode):
        return ByPlan(every=read(node))
    known = Known(known_keys.PLAN.keys, known_keys.PLAN.unsupported)
    fields = Fields(reader, node, "a value by plan", known)
    named = {key: fields.get(key, read, None) for key in known.keys if fields.has(key)}
    return ByPlan(named={key: value for key, value in named.items() if value is not None})


def read_pattern(reader: Reader, node: Node) -> str:
    """A regular expression whose group 1 is taken."""
    text = read_regex(reader, node)
    if re.compile(text).groups == 0:
        raise reader.refuse(
            node, "group 1 of a pattern is taken, and this one has no group", f"Write `({text})`."
        )
    return text


def _own_name(name: str) -> Alternative:
    return Alternative(Path(Root.ENTITY, (name,), name))


def _long(reader: Reader, node: MapNode, name: str) -> ColumnSpec:
    fields = Fields(reader, node, f"column {name}", known_keys.COLUMN)
    column_type = fields.need(
        "type", reader.parsed(parse_type), _TEXT, "Write for example `type: text`."
    )
    if fields.has("const") and fields.has("path"):
        reader.note(fields.entry("const"), f"column {name} has a path and a constant", "Keep one.")
    pattern = fields.get("pattern", lambda one: read_pattern(reader, one), None)
    values = fields.get("values", lambda one: _values(reader, one, column_type), None)
    unknown, unknown_value = fields.get(
        "unknown", lambda one: _unknown(reader, one, column_type), (Unknown.QUARANTINE, None)
    )
    if fields.has("unknown") and not fields.has("values"):
        reader.note(
            fields.entry("unknown"),
            "nothing is unknown where any value is allowed",
            "Add `values:`.",
        )
    for key in ("from", "zone"):
        if fields.has(key) and column_type.name not in TIMES:
            reader.note(fields.entry(key), f"`{key}` is for times, and {column_type.sql} is none")
    personal, hash_key = fields.get(
        "personal", lambda one: _personal(reader, one), (Personal.UNDECLARED, None)
    )
    if personal is Personal.HASH and column_type.sql != "text":
        reader.note(
            fields.entry("personal"), "a hash is a text", "Write `type: text`, or `personal: drop`."
        )
    spec = ColumnSpec(
        name=name,
        type=column_type,
        path=None if fields.has("const") else _paths(fields, name, column_type, pattern),
        const=fields.get("const", lambda one: read_constant(reader, one, column_type), None),
        required=fields.get("required", reader.boolean, False),
        default=fields.get("default", lambda one: read_constant(reader, one, column_type), None),
        min=fields.get("min", lambda one: _bound(reader, one, column_type), None),
        max=fields.get("max", lambda one: _bound(reader, one, column_type), None),
        values=values,
        unknown=unknown,
        unknown_value=unknown_value,
        from_=fields.get("from", reader.parsed(parse_format), None),
        zone=fields.get("zone", reader.parsed(parse_zone), None),
        personal=personal,
        hash_key=hash_key,
    )
    _check_bounds(fields, spec)
    return spec


def _paths(
    fields: Fields, name: str, column_type: ColumnType, pattern: str | None
) -> ByPlan[tuple[Alternative, ...]]:
    reader = fields.reader

    def alternatives(node: Node) -> tuple[Alternative, ...]:
        if isinstance(node, ListNode) and node.items:
            return reader.list_of(lambda item: _alternative(reader, item, column_type, pattern))(
                node
            )
        return (_alternative(reader, node, column_type, pattern),)

    own: ByPlan[tuple[Alternative, ...]] = ByPlan((Alternative(_own_name(name).path, pattern),))
    return fields.get("path", lambda node: read_by_plan(reader, node, alternatives), own)


def _alternative(
    reader: Reader, node: Node, column_type: ColumnType, pattern: str | None
) -> Alternative:
    if not isinstance(node, MapNode):
        return Alternative(_path(reader, node, reader.text(node), column_type), pattern)
    fields = Fields(reader, node, "an alternative", known_keys.ALTERNATIVE)
    text = fields.need("path", reader.text, None)
    if text is None:
        raise Refused
    own = fields.get("pattern", lambda one: read_pattern(reader, one), pattern)
    prefix = fields.get("prefix", reader.text, None)
    return Alternative(_path(reader, fields.entry("path").value, text, column_type), own, prefix)


def _path(reader: Reader, node: Node, text: str, column_type: ColumnType) -> Path:
    if "::" in text:
        raise reader.refuse(node, "a path in a map has no type", "Write the type as `type:`.")
    return reader.notation(node, lambda one: parse_mapping_path(one, each=column_type.array), text)


def _values(reader: Reader, node: Node, column_type: ColumnType) -> Mapping[Constant, Constant]:
    """A list of allowed values, or a map from the provider's values to stored ones."""
    if isinstance(node, ListNode):
        if not node.items:
            raise reader.refuse(
                node,
                "nothing is in this list, so every record would be quarantined",
                "Write the values that may come, such as `values: [open, closed]`, or leave the "
                "key out.",
            )
        return {one: one for one in reader.list_of(lambda item: _plain(reader, item))(node)}
    entries = reader.map(node, "values").entries.values()
    return {
        exact(entry.typed, entry.key): read_constant(reader, entry.value, column_type)
        for entry in entries
    }


def _plain(reader: Reader, node: Node) -> Constant:
    value = reader.scalar(node)
    return exact(value, node.raw) if isinstance(node, ScalarNode) else None


def exact(value: str | int | float | bool | None, raw: str) -> Constant:
    """A scalar whose decimals are kept as they were written."""
    return Decimal(raw) if isinstance(value, float) else value


def _unknown(reader: Reader, node: Node, column_type: ColumnType) -> tuple[Unknown, Constant]:
    if isinstance(node, MapNode):
        fields = Fields(reader, node, "unknown", known_keys.UNKNOWN_USE)
        return Unknown.USE, fields.need(
            "use", lambda one: read_constant(reader, one, column_type), None
        )
    return Unknown(reader.choice("quarantine", "keep")(node)), None


def _personal(reader: Reader, node: Node) -> tuple[Personal, Reference | None]:
    """The treatment, and the key of a hash that nobody without it can guess values from."""
    if not isinstance(node, MapNode):
        return _PERSONAL[reader.choice(*_PERSONAL)(node)], None
    fields = Fields(reader, node, "personal", known_keys.PERSONAL)
    key = fields.need(
        "hash",
        lambda one: read_reference(reader, one),
        None,
        "Write for example `personal: {hash: {env: HASH_KEY}}`.",
    )
    return Personal.HASH, key


def read_constant(reader: Reader, node: Node, column_type: ColumnType) -> Constant:
    """A value of the column's own type."""
    value = _plain(reader, node)
    name = column_type.name
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    fits = {
        "boolean": isinstance(value, bool),
        "uuid": isinstance(value, str),
        "jsonb": True,
        **dict.fromkeys(NUMBERS, number),
        **dict.fromkeys(TEXTS, isinstance(value, str)),
        **dict.fromkeys(TIMES, isinstance(value, str) and _is_time(value)),
    }[name]
    whole = name not in ("smallint", "integer", "bigint") or isinstance(value, int)
    if column_type.array or not fits or not whole:
        raise reader.refuse(node, f"this is no value of type {column_type.sql}")
    return value


def _is_time(text: str) -> bool:
    try:
        parse_time(text, zone="UTC")
    except TimeFault:
        return False
    return True


def _bound(reader: Reader, node: Node, column_type: ColumnType) -> Bound:
    """Lengths of texts and arrays; values of numbers and times."""
    if column_type.array or column_type.name in TEXTS:
        return reader.at_least(0)(node)
    if column_type.name in NUMBERS:
        value = _plain(reader, node)
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            return value
        raise reader.refuse(node, "a number is needed here")
    if column_type.name in TIMES:
        text = reader.text(node)
        if _is_time(text):
            return text
        raise reader.refuse(node, "a time is needed here", "Write for example `2000-01-01`.")
    raise reader.refuse(node, f"{column_type.sql} has no bounds")


def _check_bounds(fields: Fields, spec: ColumnSpec) -> None:
    low, high = spec.min, spec.max
    if low is None or high is None:
        return
    if isinstance(low, str) or isinstance(high, str):
        crossed = parse_time(low, zone="UTC") > parse_time(high, zone="UTC")
    else:
        crossed = low > high
    if crossed:
        fields.reader.note(fields.entry("min"), "no value is both above `min` and below `max`")

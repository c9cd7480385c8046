"""A draft of a mapping from the JSON Schema of a tap's stream. Pure.

A draft: every line is a guess from declared types, and what cannot be guessed (a key that nobody
names) is left so that `gapless check` asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.definitions.column_types import REVISION_TYPES

_HEAD = (
    "# A draft from what the tap declares. Types are its word; look at each line, and say with",
    "# `personal:` which columns may be shown.",
)
_NO_KEY = "# The tap names no key: write the column, or the columns, that tell its records apart."
_NO_REVISION = (
    "# The tap names no field that orders the states of a record. With `none`, what was read last",
    "# counts as the newest.",
)
_RESERVED = ("source_revision", "deleted_at")
_NAME_MAX = 60
_BIGINT = 2**63 - 1
_PLAIN = ("null", "true", "false")
_FORMATS = {"date-time": "timestamptz", "date": "date", "uuid": "uuid"}
_TYPES = {"boolean": "boolean", "integer": "bigint", "number": "numeric"}


@dataclass(frozen=True, slots=True)
class StreamShape:
    """What a tap says of one stream's records; `key` and `bookmark` name fields."""

    schema: Mapping[str, Any]
    key: tuple[str, ...] = ()
    bookmark: str | None = None


def mapping_draft(source: str, stream: str, shape: StreamShape) -> str:
    """A mapping of `source/stream` as YAML, with a column for every field that is declared."""
    columns = dict(_columns(shape))
    name = _sql_name(f"{source}_{stream}")
    lines = [*_HEAD, "gapless: 1", f"mapping: {name}", "version: 1", f"from: {source}/{stream}"]
    lines.append(f"table: {_quoted(_sql_name(stream))}")
    key = [columns[field].name for field in shape.key if field in columns]
    if not key:
        lines.append(_NO_KEY)
    lines.append(
        f"key: [{', '.join(map(_quoted, key))}]" if len(key) != 1 else f"key: {_quoted(key[0])}"
    )
    lines += _revision(shape, columns)
    lines.append("columns:")
    lines += [column.line() for column in columns.values()]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Column:
    field: str
    name: str
    type: str

    def line(self) -> str:
        """One line of YAML below `columns:`."""
        if self.name == self.field:
            return f"  {_quoted(self.name)}: {self.type}"
        path = _text(_path(self.field))
        return f"  {_quoted(self.name)}: {{path: {path}, type: {self.type}}}"


def _columns(shape: StreamShape) -> Iterator[tuple[str, _Column]]:
    declared = shape.schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    taken: set[str] = set()
    for field, its_schema in properties.items():
        name, number = _sql_name(str(field)), 2
        base = name
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        found = type_of(its_schema)
        if field in shape.key and found == "jsonb":
            found = "text"
        yield field, _Column(field, name, found)


def _revision(shape: StreamShape, columns: Mapping[str, _Column]) -> list[str]:
    column = columns.get(shape.bookmark) if shape.bookmark is not None else None
    if column is None or column.type not in REVISION_TYPES:
        return [*_NO_REVISION, "revision: none"]
    if column.name == column.field:
        return [f"revision: {_text(f'{column.field}::{column.type}')}"]
    return [f"revision: {{path: {_text(_path(column.field))}, type: {column.type}}}"]


def type_of(declared: Any) -> str:
    """The Postgres type for what JSON Schema declares of one field; `jsonb` for what is mixed."""
    if not isinstance(declared, Mapping):
        return "jsonb"
    for word in ("anyOf", "oneOf"):
        if isinstance(declared.get(word), list):
            options = [one for one in declared[word] if not _is_null(one)]
            return type_of(options[0]) if len(options) == 1 else _common(options)
    types = declared.get("type")
    several = [one for one in (types if isinstance(types, list) else [types]) if one != "null"]
    if len(several) != 1:
        return "jsonb"
    [one] = several
    if one == "string":
        return _FORMATS.get(str(declared.get("format")), "text")
    if one == "integer" and not _fits(declared):
        return "numeric"
    return _TYPES.get(str(one), "jsonb")


def _common(options: Sequence[Any]) -> str:
    """One type for all options: a time or a text is a text."""
    found = {type_of(one) for one in options}
    if len(found) == 1:
        return found.pop()
    return "text" if found and found <= {"text", *_FORMATS.values()} else "jsonb"


def _fits(declared: Mapping[str, Any]) -> bool:
    bounds = [declared.get("maximum"), declared.get("minimum")]
    return all(abs(one) <= _BIGINT for one in bounds if isinstance(one, int | float))


def _is_null(one: Any) -> bool:
    return isinstance(one, Mapping) and one.get("type") in ("null", ["null"])


def _sql_name(text: str) -> str:
    """The text as a name of a column or table: small letters, digits and `_`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")[:_NAME_MAX].rstrip("_")
    if not name or not name[0].isalpha():
        name = f"c_{name}".rstrip("_")
    return f"{name}_" if name in _RESERVED else name


def _path(field: str) -> str:
    return f"$[{json.dumps(field)}]"


def _text(text: str) -> str:
    """A text in YAML: as it is where nothing could be misread, else in quotes."""
    return text if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(?:::[a-z ]+)?", text) else json.dumps(text)


def _quoted(name: str) -> str:
    return json.dumps(name) if name in _PLAIN else name

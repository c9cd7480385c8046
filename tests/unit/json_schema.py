"""As much of JSON Schema as the schemas of definitions use; an unknown keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int,
}  # fmt: skip
_KNOWN = {
    "$schema", "title", "type", "enum", "const", "anyOf", "required", "properties", "pattern",
    "additionalProperties", "propertyNames", "maxProperties", "items",
}  # fmt: skip


def faults(value: Any, schema: Mapping[str, Any], at: str = "") -> list[str]:
    """Where and why a value does not follow a schema; empty if it does."""
    return list(_faults(value, schema, at))


def _faults(value: Any, schema: Mapping[str, Any], at: str) -> Iterator[str]:
    assert set(schema) <= _KNOWN, set(schema) - _KNOWN
    if "type" in schema and not _is_of(value, schema["type"]):
        yield f"{at}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"
    if "anyOf" in schema:
        found = [list(_faults(value, one, at)) for one in schema["anyOf"]]
        if all(found):  # of the one that was meant, what is wrong lies deeper
            yield from min(found, key=lambda one: (one[0].startswith(f"{at}: "), len(one)))
    if isinstance(value, dict):
        yield from _of_map(value, schema, at)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{at}[{number}]")


def _is_of(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    return any(
        isinstance(value, _TYPES[name]) and not (name == "integer" and isinstance(value, bool))
        for name in names
    )


def _of_map(value: dict[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    for key in schema.get("required", []):
        if key not in value:
            yield f"{at}: lacks {key}"
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{at}: has too many keys"
    for key, member in value.items():
        place = f"{at}.{key}"
        yield from _faults(key, schema.get("propertyNames", {}), place)
        if key in schema.get("properties", {}):
            yield from _faults(member, schema["properties"][key], place)
        elif schema.get("additionalProperties", True) is False:
            yield f"{place}: no such key"
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _faults(member, schema["additionalProperties"], place)

"""Fingerprints of definitions: equal meaning, equal text, whatever the order of keys.

What has its default value is left out, so that a later version of Gapless with more keys finds the
same fingerprint in an unchanged definition.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum

from schemas.definitions.column_types import ColumnType
from schemas.definitions.paths import Path
from schemas.definitions.secrets import Reference
from schemas.definitions.templates import Template

LENGTH = 16


def fingerprint(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the canonical text."""
    text = json.dumps(canonical(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def canonical(value: object) -> object:
    """Specifications as plain JSON; texts of a notation stand for what was parsed from them."""
    if isinstance(value, Path):
        return [
            value.root.value,
            *(step if isinstance(step, str | int) else ["*"] for step in value.steps),
        ]
    if isinstance(value, Template):
        return {"template": value.text}
    if isinstance(value, Reference):
        return {"reference": str(value)}
    if isinstance(value, ColumnType):
        return value.sql
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return {"decimal": str(value.normalize())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _members(value)
    if isinstance(value, Mapping):
        return {_key(key): canonical(member) for key, member in value.items()}
    if isinstance(value, tuple | list):
        return [canonical(member) for member in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no canonical form of {type(value).__name__}")


def _members(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)
    out: dict[str, object] = {}
    for field in dataclasses.fields(value):
        member, default = getattr(value, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if member != default:
            out[field.name] = canonical(member)
    return out


def _key(key: object) -> str:
    """Keys of `values` maps are typed: 1 and "1" are two."""
    return key if isinstance(key, str) else f"{type(key).__name__}:{key}"

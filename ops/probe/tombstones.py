"""Whether a record says of itself that it was deleted: by the mapping's `deleted`, else by its looks.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import MISSING, Path, Root, find

_FLAGS = ("deleted", "_deleted", "is_deleted", "isDeleted", "removed")
_TIMES = ("deleted_at", "deletedAt", "removed_at")
_KINDS = ("type", "event", "action", "status", "state")


def says_gone(record: Any, plan: str, mappings: Sequence[MappingSpec]) -> bool:
    """`mappings`: those of the stream; what one says of rows that a function makes is not asked."""
    declared = [one for one in mappings if one.deleted is not None and one.python is None]
    if declared:
        return any(_matches(spec, record, plan) for spec in declared)
    if not isinstance(record, dict):
        return False
    kinds = (record.get(name) for name in _KINDS)
    return (
        any(record.get(name) is True for name in _FLAGS)
        or any(record.get(name) not in (None, "") for name in _TIMES)
        or any(isinstance(kind, str) and kind.lower().endswith("deleted") for kind in kinds)
    )


def _matches(spec: MappingSpec, record: Any, plan: str) -> bool:
    place = spec.entity.of(plan)
    entity = MISSING if place is None else find(place.steps, record)

    def value_of(path: Path) -> object:
        return find(path.steps, entity if path.root is Root.ENTITY else record)

    return spec.deleted is not None and spec.deleted.matches(value_of)

"""Mappings and pages for the tests of mapping, written short."""

from __future__ import annotations

from typing import Any

from apply.mapping.compile import compile_mapping
from apply.mapping.types import Mapped, Place
from schemas.definitions.column_types import parse_type
from schemas.definitions.mapping import (
    Alternative,
    ByPlan,
    ColumnSpec,
    MappingSpec,
    Personal,
    RevisionKind,
    RevisionSpec,
)
from schemas.definitions.paths import Path, parse_entity_path, parse_mapping_path
from schemas.records import Observation

FETCHED_US = 1_700_000_000_000_000


def path(*texts: str) -> ByPlan[tuple[Alternative, ...]]:
    """These places, one after the other."""
    return ByPlan(tuple(Alternative(parse_mapping_path(text, each=True)) for text in texts))


def column(name: str, of: str, **more: Any) -> ColumnSpec:
    """A column at its own name unless `path` says otherwise; shown in messages."""
    more = {"path": path(name), "personal": Personal.NO, **more}
    return ColumnSpec(name, parse_type(of), **more)


def spec(*columns: ColumnSpec, **more: Any) -> MappingSpec:
    """A mapping with the key `id` and these columns, without a revision unless one is given."""
    found = {"id": column("id", "text"), **{one.name: one for one in columns}}
    return MappingSpec(
        **{
            "name": "things", "version": 1, "source": "s", "stream": "t", "table": "things",
            "key": ("id",), "revision": RevisionSpec(RevisionKind.NONE), "columns": found,
            "entity": ByPlan(parse_entity_path("$")), **more,
        }
    )  # fmt: skip


def dated(
    of: str = "bigint", kind: RevisionKind = RevisionKind.COARSE, **more: Any
) -> RevisionSpec:
    """A revision at `rev`."""
    at: ByPlan[Path] = more.pop("path", ByPlan(parse_mapping_path("rev")))
    return RevisionSpec(kind, at, parse_type(of), **more)


def page(*records: str | bytes, **more: Any) -> Observation:
    """One observation with these records."""
    raws = [one if isinstance(one, bytes) else one.encode() for one in records]
    return Observation(
        **{
            "partition_id": "s/t", "plan": "interval", "scope": "x", "pass_": "p", "page": 1,
            "reason": "r", "method": "GET", "url": "u", "definition_hash": "h", "status": 200,
            "requested_at": 1, "received_at": FETCHED_US, "records": raws, **more,
        }
    )  # fmt: skip


def mapped(of: MappingSpec, *records: str | bytes, **more: Any) -> Mapped:
    """These records under this mapping."""
    place = Place(4, 1, 11, more.pop("tenant", None), more.pop("began", None))
    return compile_mapping(of, 6).map_page(page(*records, **more), place)


def values(of: MappingSpec, *records: str | bytes, **more: Any) -> list[tuple[Any, ...]]:
    """The mapped columns of the rows, without the key."""
    found = mapped(of, *records, **more)
    assert not found.faults, found.faults
    width = len(of.columns)
    return [row[1:width] for row in found.rows]

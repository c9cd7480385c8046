"""Finds a key in the records of an observation with the mapping itself. Pure.

The filter of the mapping is left out, so that records it ignored are found as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

from apply.mapping.compile import compile_mapping
from apply.mapping.outside import Outside
from apply.mapping.readable import key_number, readable, readable_key
from apply.mapping.types import DELETED, INDEX, REVISION, CompiledMapping, Place
from ops.explain.model import Sighting
from schemas.definitions.mapping import MappingSpec, RevisionKind
from schemas.records import Observation


class Search:
    """Looks for one key, given as text by key column."""

    def __init__(self, spec: MappingSpec, key: Mapping[str, str], outside: Outside) -> None:
        self._spec = spec
        self._compiled: CompiledMapping = compile_mapping(replace(spec, where=None), 0, outside)
        self._wanted = {name: _in_one_form(spec, name, text) for name, text in key.items()}

    def sightings(
        self, observation: Observation, partition: int, generation: int, offset: int,
        tenant: str | None,
    ) -> Iterator[Sighting]:  # fmt: skip
        """The records of one observation that have the key, in order."""
        place = Place(0, generation, offset, tenant, None)
        mapped = self._compiled.map_page(observation, place)
        found: dict[int, tuple[str | None, bool]] = {}
        for row in mapped.rows:
            if self._matches(readable_key(self._compiled, row)):
                found[row[INDEX]] = (self._revision(row), bool(row[DELETED]))
        for fault in mapped.faults:
            if fault.key is not None and self._matches(fault.key):
                found[fault.index] = (None, False)
        original = observation.original_offset
        for index, (revision, deleted) in sorted(found.items()):
            yield Sighting(
                partition=partition,
                generation=generation,
                offset=offset,
                origin=offset if original is None else original,
                index=index,
                plan=observation.plan,
                scope=observation.scope,
                pass_=observation.pass_,
                page=observation.page,
                part=observation.part,
                reason=observation.reason,
                url=observation.url,
                run=observation.run,
                fetched_at=observation.received_at,
                as_of=observation.as_of,
                revision=revision,
                deleted=deleted,
                raw=observation.records[index - observation.first_index],
            )

    def _matches(self, key: Mapping[str, Any]) -> bool:
        return all(
            name in key and as_typed(key[name]) == value for name, value in self._wanted.items()
        )

    def _revision(self, row: tuple[Any, ...]) -> str | None:
        revision = self._spec.revision
        if revision.kind is RevisionKind.NONE or revision.type is None:
            return None
        return as_typed(readable(revision.type, row[REVISION]))


def _in_one_form(spec: MappingSpec, name: str, text: str) -> str:
    """A number of a key as `readable_key` writes it, however it was typed."""
    column = spec.columns.get(name)
    if column is None or column.type.name != "numeric" or column.type.arguments:
        return text
    try:
        return key_number(column.type, Decimal(text))
    except InvalidOperation:
        return text


def as_typed(value: Any) -> str:
    """A value as an operator types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

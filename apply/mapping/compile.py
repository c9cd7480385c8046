"""Compiles a mapping into straight-line Python, one function per plan, made when first needed.

Ordinary records take the generated code; every other one is decided by `interpret`, which alone
makes faults and tombstones.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apply.mapping.casts import ValueFault
from apply.mapping.functions import entities, members_of
from apply.mapping.generate import generate
from apply.mapping.interpret import interpret, missing, seen
from apply.mapping.outside import UNUSED, Make, Outside
from apply.mapping.raw import read_page, read_plain
from apply.mapping.rules import (
    Rules,
    compile_child,
    needs_exact_numbers,
    resolve,
    table_columns,
)
from apply.mapping.types import CompiledMapping, Mapped, Place
from apply.outcomes import PENDING, Outcome
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import MISSING
from schemas.records import Observation

_PLANS = ("interval", "keyset", "cursor", "snapshot")
MapOrdinary = Callable[..., None]


def compile_mapping(
    spec: MappingSpec, version_id: int, outside: Outside = UNUSED
) -> CompiledMapping:
    """The mapping as a function; `version_id` is its number in `gapless.mapping_version`.

    Raises ValueError for a specification that no loader gives (such as an array as a key).
    """
    columns = table_columns(spec)
    keys = [spec.columns[name] for name in spec.key]
    keys += [
        one
        for child in spec.children.values()
        for name, one in child.columns.items()
        if name in child.key
    ]
    for column in keys:
        if column.type.array or column.type.name == "jsonb":
            raise ValueError(f"column {column.name}: {column.type.sql} cannot be part of a key")
    make = None if spec.python is None else outside.function(spec.python)
    mapper = _Mapper(spec, version_id, needs_exact_numbers(spec), outside, make, members_of(spec))
    for plan in _PLANS:
        mapper.for_plan(plan)
    positions = tuple(range(len(spec.key)))
    children = tuple(compile_child(spec, child) for child in spec.children.values())
    return CompiledMapping(spec, version_id, columns, positions, mapper.map_page, children)


@dataclass(slots=True)
class _Mapper:
    spec: MappingSpec
    version_id: int
    exact: bool
    outside: Outside
    make: Make | None
    members: frozenset[str]
    plans: dict[str, tuple[Rules, MapOrdinary]] = field(default_factory=dict)

    def for_plan(self, plan: str) -> tuple[Rules, MapOrdinary]:
        found = self.plans.get(plan)
        if found is None:
            rules = resolve(self.spec, plan, self.outside)
            found = self.plans[plan] = (rules, _compiled(self.spec, rules))
        return found

    def map_page(self, observation: Observation, place: Place) -> Mapped:
        rules, map_ordinary = self.for_plan(observation.plan)
        context = seen(rules, observation, place, self.version_id)
        records = observation.records
        mapped = Mapped(observation.first_index, bytearray(len(records)))
        missing(mapped, observation)
        made: list[object] = []
        if self.make is not None:
            made = entities(mapped, observation, place.tenant, self.make, self.members)
        odd: list[int] = []
        ignored: list[int] = []
        try:
            map_ordinary(
                self._values(records), records, made, context,
                mapped.rows.append, odd.append, ignored.append, mapped.children.__setitem__,
            )  # fmt: skip
        except ValueFault:
            # What all records share is odd, and no record was looked at.
            odd = list(range(len(records)))
        for at in ignored:
            mapped.outcomes[at] = Outcome.IGNORED
        for at in odd:
            if mapped.outcomes[at] == PENDING:
                interpret(mapped, at, records[at], context, made[at] if made else MISSING)
        return mapped

    def _values(self, records: list[bytes]) -> list[object]:
        values = read_page(records, exact=self.exact)
        if values is None:
            values = [read_plain(raw, exact=self.exact) for raw in records]
        return values


def _compiled(spec: MappingSpec, rules: Rules) -> MapOrdinary:
    source, names = generate(rules)
    # So that a traceback through this code shows its lines.
    file = f"<mapping {spec.name} version {spec.version}, {rules.plan}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = dict(names)
    exec(compile(source, file, "exec"), space)
    found: MapOrdinary = space["map_ordinary"]
    return found

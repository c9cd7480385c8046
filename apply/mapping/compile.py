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
from apply.mapping.generate import generate, whole_values
from apply.mapping.interpret import interpret, missing, seen
from apply.mapping.outside import UNUSED, Make, Outside
from apply.mapping.raw import Decode, read_page, read_plain
from apply.mapping.rules import (
    Rules,
    compile_child,
    needs_exact_numbers,
    resolve,
    table_columns,
)
from apply.mapping.shape import Form, Learner
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


@dataclass(frozen=True, slots=True)
class _Shaped:
    """The code for pages whose records have a form, and what decodes them."""

    map_ordinary: MapOrdinary
    decode: Decode


@dataclass(slots=True)
class _Plan:
    """What is compiled for the records of one plan; `shaped` once their shape is known."""

    rules: Rules
    map_ordinary: MapOrdinary
    learner: Learner
    shaped: _Shaped | None = None


@dataclass(slots=True)
class _Mapper:
    spec: MappingSpec
    version_id: int
    exact: bool
    outside: Outside
    make: Make | None
    members: frozenset[str]
    plans: dict[str, _Plan] = field(default_factory=dict)

    def for_plan(self, plan: str) -> _Plan:
        found = self.plans.get(plan)
        if found is None:
            rules = resolve(self.spec, plan, self.outside)
            learner = Learner(whole_values(rules))
            found = self.plans[plan] = _Plan(rules, _compiled(self.spec, rules), learner)
        return found

    def map_page(self, observation: Observation, place: Place) -> Mapped:
        plan = self.for_plan(observation.plan)
        context = seen(plan.rules, observation, place, self.version_id)
        records = observation.records
        mapped = Mapped(observation.first_index, bytearray(len(records)))
        missing(mapped, observation)
        made: list[object] = []
        if self.make is not None:
            made = entities(mapped, observation, place.tenant, self.make, self.members)
        odd: list[int] = []
        ignored: list[int] = []
        map_ordinary, values = self._read(plan, records)
        try:
            map_ordinary(
                values, records, made, context,
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

    def _read(self, plan: _Plan, records: list[bytes]) -> tuple[MapOrdinary, list[object]]:
        """The records' values, and the code for values of their kind."""
        shaped = plan.shaped
        if shaped is not None and all(records):  # a hole says nothing about the shape
            values = read_page(records, exact=self.exact, decode=shaped.decode)
            if not plan.learner.keeps(hit=values is not None):
                plan.shaped = None
            if values is not None:
                return shaped.map_ordinary, values
        values = read_page(records, exact=self.exact)
        if values is None:
            return plan.map_ordinary, [read_plain(raw, exact=self.exact) for raw in records]
        form = plan.learner.see(values)
        if form is not None:
            code = _compiled(self.spec, plan.rules, form)
            plan.shaped = _Shaped(code, form.decoder(exact=self.exact))
        return plan.map_ordinary, values


def _compiled(spec: MappingSpec, rules: Rules, form: Form | None = None) -> MapOrdinary:
    source, names = generate(rules, form)
    # So that a traceback through this code shows its lines.
    of = rules.plan if form is None else f"{rules.plan}, {len(form.members)} members"
    file = f"<mapping {spec.name} version {spec.version}, {of}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = dict(names)
    exec(compile(source, file, "exec"), space)
    found: MapOrdinary = space["map_ordinary"]
    return found

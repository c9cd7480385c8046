"""Compiles a mapping into straight-line Python, one function per plan, made when first needed.

Ordinary records take the generated code; every other one is decided by `interpret`, which alone
makes faults and tombstones.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from apply.mapping.casts import ValueFault
from apply.mapping.code_texts import NOTHING_COUNTED
from apply.mapping.functions import entities, members_of
from apply.mapping.generate import generate
from apply.mapping.interpret import Seen, interpret, missing, seen
from apply.mapping.outside import UNUSED, Make, Outside
from apply.mapping.raw import Decode, names_once, read_page, read_plain, read_unchecked
from apply.mapping.reads import raw_numbers, whole_values
from apply.mapping.rules import (
    Rules,
    compile_child,
    needs_exact_numbers,
    resolve,
    table_columns,
)
from apply.mapping.shape import Form, Learner, Name
from apply.mapping.types import Children, CompiledMapping, Mapped, Place, Row
from apply.outcomes import PENDING, Outcome
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import MISSING
from schemas.records import Observation

_PLANS = ("interval", "keyset", "cursor", "snapshot")
MapOrdinary = Callable[..., int]
TRUST = 20
"""So many pages one after the other may hold other quotes (escaped ones, say), until none is counted."""


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
class _Shaped:
    """The code for pages whose records have a form, and what decodes them.

    `trust`: how much it is worth to count their quotes.
    """

    map_ordinary: MapOrdinary
    decode: Decode
    trust: int = TRUST

    def has_quotes(self, joined: bytes, texts: int) -> bool:
        """Whether these bytes have the quotes of so many names and texts, and no others."""
        if texts == NOTHING_COUNTED or not self.trust:
            return False
        has = joined.count(b'"') == 2 * texts
        self.trust = TRUST if has else self.trust - 1
        return has


@dataclass(slots=True)
class CountedPage:
    """What generated code makes of a page: rows, positions it leaves to the plain mapper, and others."""

    rows: list[Row] = field(default_factory=list)
    odd: Sequence[int] = ()
    ignored: Sequence[int] = ()
    children: dict[int, Children] = field(default_factory=dict)

    def run(
        self,
        map_ordinary: MapOrdinary,
        values: Sequence[object],
        records: Sequence[bytes],
        made: Sequence[object],
        context: Seen,
    ) -> int:
        """Once. What the code returns."""
        odd: list[int] = []
        ignored: list[int] = []
        self.odd, self.ignored = odd, ignored
        try:
            return map_ordinary(
                values, records, made, context,
                self.rows.append, odd.append, ignored.append, self.children.__setitem__,
            )  # fmt: skip
        except ValueFault:
            # What all records share is odd, and no record was looked at.
            self.odd = range(len(records))
            return NOTHING_COUNTED


@dataclass(slots=True)
class _Plan:
    """What is compiled for the records of one plan; `shaped` once their shape is known.

    `numbers`: values that shaped records keep as JSON writes them, if their shape has room for it;
    `exact`: whether other fractions have to be.
    """

    rules: Rules
    map_ordinary: MapOrdinary
    learner: Learner
    numbers: frozenset[Name]
    exact: bool
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
            numbers, columns = raw_numbers(rules)
            learner = Learner(whole_values(rules), numbers)
            exact = needs_exact_numbers(self.spec, columns)
            found = _Plan(rules, _compiled(self.spec, rules), learner, numbers, exact)
            self.plans[plan] = found
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
        found = self._by_shape(plan, records, context)
        if found is None:
            found = CountedPage()
            found.run(plan.map_ordinary, self._read(plan, records), records, made, context)
        mapped.rows, mapped.children = found.rows, found.children
        for at in found.ignored:
            mapped.outcomes[at] = Outcome.IGNORED
        for at in found.odd:
            if mapped.outcomes[at] == PENDING:
                interpret(mapped, at, records[at], context, made[at] if made else MISSING)
        return mapped

    def _by_shape(self, plan: _Plan, records: list[bytes], context: Seen) -> CountedPage | None:
        """What the code for the records' shape makes of them; None if they do not have it."""
        shaped = plan.shaped
        if shaped is None or not all(records):  # a hole says nothing about the shape
            return None
        found, read = CountedPage(), read_unchecked(records, shaped.decode)
        if read is not None:
            values, joined = read
            texts = found.run(shaped.map_ordinary, values, records, [], context)
            if not (shaped.has_quotes(joined, texts) or names_once(values, joined)):
                read = None
        if not plan.learner.keeps(hit=read is not None):
            plan.shaped = None
        return None if read is None else found

    def _read(self, plan: _Plan, records: list[bytes]) -> list[object]:
        """The values of records that have no known shape, which may be learnt from them."""
        values = read_page(records, exact=self.exact)
        if values is None:
            return [read_plain(raw, exact=self.exact) for raw in records]
        form = plan.learner.see(values)
        if form is not None:
            code = _compiled(self.spec, plan.rules, form)
            # an object that was never seen is read as it is, and so is the number in it
            exact = plan.exact or not form.keeps(plan.numbers)
            plan.shaped = _Shaped(code, form.decoder(exact=exact))
        return values


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

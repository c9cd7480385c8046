"""Paths of a mapping that lead nowhere in a sample of records, and what was probably meant. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apply.mapping.raw import Unreadable, read_record
from schemas.definitions.mapping import Alternative, ColumnSpec, MappingSpec
from schemas.definitions.paths import MISSING, Path, Root, find, format_steps
from schemas.definitions.problems import closest
from schemas.records import Observation

_DEEPEST = 6
_MOST_PATHS = 2_000


@dataclass(frozen=True, slots=True)
class NoSuchPath:
    """A column whose path no record has. `instead` is in `count` of them; None: nothing is alike."""

    column: str
    path: str
    records: int
    instead: str | None
    count: int

    @property
    def message(self) -> str:
        return f"none of {self.records} sampled records has {self.path}"

    @property
    def advice(self) -> str:
        rare = "If it is rare, add `default:`."
        if self.instead is None:
            return rare
        return f"Did you mean `{self.instead}` (in {self.count} of {self.records})? {rare}"


def paths_to_nowhere(spec: MappingSpec, pages: Sequence[Observation]) -> list[NoSuchPath]:
    """Columns without a default that find nothing in any record that the mapping wants."""
    records = list(_wanted(spec, pages))
    found = []
    for column in spec.columns.values():
        missed = [
            one
            for plan, record, entity in records
            for one in _alternatives(column, plan)
            if _looks(one.path, spec) and not _has(one.path, record, entity)
        ]
        asked = sum(any(_looks(one.path, spec) for one in _alternatives(column, plan))
                    for plan, _, _ in records)  # fmt: skip
        tried = sum(len(_alternatives(column, plan)) for plan, _, _ in records)
        if not asked or len(missed) < tried or column.default is not None:
            continue
        path = missed[0].path
        instead, count = _instead(path, records)
        found.append(NoSuchPath(column.name, path.text, asked, instead, count))
    return found


def _wanted(
    spec: MappingSpec, pages: Sequence[Observation]
) -> Iterator[tuple[str, object, object]]:
    """The plan, the record and the entity of every record that is an object and not filtered."""
    for page in pages:
        steps = spec.entity.of(page.plan)
        for raw in page.records:
            try:
                record = read_record(raw)
            except Unreadable:
                continue
            entity = MISSING if steps is None else find(steps.steps, record)
            if isinstance(entity, dict) and _is_wanted(spec, page, record, entity):
                yield page.plan, record, entity


def _is_wanted(spec: MappingSpec, page: Observation, record: object, entity: object) -> bool:
    if spec.where is None or spec.python is not None:
        return True

    def value_of(path: Path) -> object:
        if path.root is Root.OBSERVATION:
            return {"plan": page.plan, "run": page.run}.get(str(path.steps[0]), MISSING)
        return find(path.steps, entity if path.root is Root.ENTITY else record)

    return spec.where.matches(value_of)


def _alternatives(column: ColumnSpec, plan: str) -> tuple[Alternative, ...]:
    return () if column.path is None else column.path.of(plan) or ()


def _looks(path: Path, spec: MappingSpec) -> bool:
    """Whether records can tell: what a function makes, and what we observed, is not in them."""
    return path.root is Root.RECORD or (path.root is Root.ENTITY and spec.python is None)


def _has(path: Path, record: object, entity: object) -> bool:
    return find(path.steps, entity if path.root is Root.ENTITY else record) is not MISSING


def _instead(path: Path, records: Sequence[tuple[str, object, object]]) -> tuple[str | None, int]:
    counts: Counter[str] = Counter()
    for _, record, entity in records:
        counts.update(set(_paths(entity if path.root is Root.ENTITY else record, ())))
    prefix = "$." if path.root is Root.RECORD else ""
    written = path.text.removeprefix(prefix)
    near = closest(written, list(counts)[:_MOST_PATHS])
    if near is None:  # the same name somewhere else
        last = written.rpartition(".")[2]
        same = [one for one in counts if one.rpartition(".")[2] == last]
        near = max(same, key=lambda one: counts[one], default=None)
    return (None, 0) if near is None else (prefix + near, counts[near])


def _paths(value: object, steps: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict) and len(steps) < _DEEPEST:
        for name, member in value.items():
            yield format_steps((*steps, name))
            yield from _paths(member, (*steps, name))

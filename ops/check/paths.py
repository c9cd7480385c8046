"""Paths of a mapping that lead nowhere in a sample of records, and what was probably meant. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from apply.mapping.raw import Unreadable, read_record
from schemas.definitions.mapping import Alternative, ChildSpec, ColumnSpec, MappingSpec
from schemas.definitions.paths import EACH, MISSING, Path, Root, find, format_steps
from schemas.definitions.problems import closest
from schemas.records import Observation

_DEEPEST = 6
_MOST_PATHS = 2_000
_Seen = tuple[str, object, object]
"""The plan, a record, and what paths start from in it."""


@dataclass(frozen=True, slots=True)
class NoSuchPath:
    """A path that no record has. `instead` is in `count` of them; None: nothing is alike.

    `place`: the keys of the mapping that lead to it. `of`: what was sampled, records or the elements
    of a child's lists. `rare`: what to do if it is right all the same.
    """

    place: tuple[str, ...]
    path: str
    records: int
    instead: str | None
    count: int
    of: str = "records"
    rare: str = "If it is rare, add `default:`."

    @property
    def message(self) -> str:
        return f"none of {self.records} sampled {self.of} has {self.path}"

    @property
    def advice(self) -> str:
        if self.instead is None:
            return self.rare
        return f"Did you mean `{self.instead}` (in {self.count} of {self.records})? {self.rare}"


def paths_to_nowhere(spec: MappingSpec, pages: Sequence[Observation]) -> list[NoSuchPath]:
    """Columns without a default that find nothing in any record that the mapping wants."""
    records = list(_wanted(spec, pages))
    made = spec.python is not None
    found = list(_nowhere(spec.columns.values(), records, made=made))
    for child in spec.children.values():
        found += _list_nowhere(child, records, made=made)
        elements = list(_elements(child, records, made=made))
        for one in _nowhere(child.columns.values(), elements, made=False):
            place = ("children", child.name, *one.place)
            found.append(replace(one, place=place, of=f"elements of {child.name}"))
    return found


def _nowhere(
    columns: Iterable[ColumnSpec], records: Sequence[_Seen], *, made: bool
) -> Iterator[NoSuchPath]:
    """`made`: a function makes the entities, so they are not known here."""
    for column in columns:
        missed = [
            one
            for plan, record, entity in records
            for one in _alternatives(column, plan)
            if _looks(one.path, made=made) and not _has(one.path, record, entity)
        ]
        asked = sum(any(_looks(one.path, made=made) for one in _alternatives(column, plan))
                    for plan, _, _ in records)  # fmt: skip
        tried = sum(len(_alternatives(column, plan)) for plan, _, _ in records)
        if not asked or len(missed) < tried or column.default is not None:
            continue
        path = missed[0].path
        instead, count = _instead(path, records)
        yield NoSuchPath(("columns", column.name), path.text, asked, instead, count)


def _list_nowhere(
    child: ChildSpec, records: Sequence[_Seen], *, made: bool
) -> Iterator[NoSuchPath]:
    """The list of a child that no record has; an empty one is there."""
    lists = [(_list_of(path), seen) for path, seen in _paths_of(child, records, made=made)]
    if lists and not any(_has(path, record, entity) for path, (_, record, entity) in lists):
        path = lists[0][0]
        instead, count = _instead(path, records)
        place = ("children", child.name, "path")
        rare = "Or are they empty lists that are left out?"
        yield NoSuchPath(place, path.text, len(lists), instead, count, rare=rare)


def _elements(child: ChildSpec, records: Sequence[_Seen], *, made: bool) -> Iterator[_Seen]:
    """The elements of a child's lists that are objects, each with its record."""
    for path, (plan, record, entity) in _paths_of(child, records, made=made):
        listed = find(_list_of(path).steps, entity if path.root is Root.ENTITY else record)
        inside = path.steps[path.steps.index(EACH) + 1 :]
        for one in listed if isinstance(listed, list) else ():
            element = find(inside, one)
            if isinstance(element, dict):
                yield plan, record, element


def _paths_of(
    child: ChildSpec, records: Sequence[_Seen], *, made: bool
) -> Iterator[tuple[Path, _Seen]]:
    for seen in records:
        path = child.path.of(seen[0])
        if path is not None and _looks(path, made=made):
            yield path, seen


def _list_of(path: Path) -> Path:
    """Where the list itself stands."""
    steps = path.steps[: path.steps.index(EACH)]
    return replace(path, steps=steps, text=path.text.partition("[*]")[0])


def _wanted(spec: MappingSpec, pages: Sequence[Observation]) -> Iterator[_Seen]:
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


def _looks(path: Path, *, made: bool) -> bool:
    """Whether records can tell: what a function makes, and what we observed, is not in them."""
    return path.root is Root.RECORD or (path.root is Root.ENTITY and not made)


def _has(path: Path, record: object, entity: object) -> bool:
    return find(path.steps, entity if path.root is Root.ENTITY else record) is not MISSING


def _instead(path: Path, records: Sequence[_Seen]) -> tuple[str | None, int]:
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

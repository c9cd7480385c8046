"""Which values of a record the rules of one plan look at, and how the shape of records has to keep them."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from apply.mapping.code_predicates import minds_null
from apply.mapping.rules import Rules
from schemas.definitions.paths import Path, Root, Step

_NOWHERE = "\0"


def whole_values(rules: Rules) -> frozenset[tuple[str, ...]] | None:
    """Values that the code needs as they are, for the shape of the records; None: no shape will do.

    A predicate that tells null from missing looks for itself, and so does a function.
    """
    read = _read_from_record(rules)
    if read is None:
        return None
    names = {tuple(takewhile(lambda step: isinstance(step, str), steps)) for steps in read}
    return None if () in names else frozenset(names)  # type: ignore[arg-type]


def raw_numbers(rules: Rules) -> tuple[frozenset[tuple[str, ...]], frozenset[str]]:
    """Values that are read as JSON writes them, in records that have a shape: their names in the
    record, and the columns that read nothing else. Nobody else looks at them."""
    read = Counter(_read_from_record(rules) or ())
    entity = () if rules.entity is None else rules.entity.steps
    names: set[tuple[str, ...]] = set()
    columns: set[str] = set()
    for rule in rules.columns:
        if rule.number is None or len(rule.paths) != 1:  # a second way is not always looked at
            continue
        [one] = rule.paths
        path = _from_record(one.path, entity)
        if (
            one.pattern is None
            and one.prefix is None
            and read[path] == 1
            and all(isinstance(step, str) for step in path)
            and not any(_touch(path, other) for other in read if other != path)
        ):
            names.add(path)  # type: ignore[arg-type]
            columns.add(rule.name)
    return frozenset(names), frozenset(columns)


def _touch(one: tuple[Step, ...], other: tuple[Step, ...]) -> bool:
    """Whether one of them leads through the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _read_from_record(rules: Rules) -> list[tuple[Step, ...]] | None:
    """The way from the record to every value that is looked at; None: no shape will do."""
    if rules.made or rules.entity is None:
        return None
    entity, found = rules.entity.steps, []
    predicates = [one for one in (rules.where, rules.deleted) if one is not None]
    for line in (line for one in predicates for lines in one.any_of for line in lines):
        if any(map(minds_null, line.tests)) or line.path.root is Root.OBSERVATION:
            return None
        found.append(_from_record(line.path, entity))
    every = [*rules.keys, *rules.columns, *([rules.revision] if rules.revision else [])]
    found += [_from_record(one.path, entity) for rule in every for one in rule.paths]
    for child in rules.children:
        if child.path is not None:
            found.append(_from_record(child.path, entity))
        inner = [one.path for rule in (*child.keys, *child.columns) for one in rule.paths]
        found += [path.steps for path in inner if path.root is Root.RECORD]
    return found


def _from_record(path: Path, entity: tuple[Step, ...]) -> tuple[Step, ...]:
    """Where in the record; an observation's path leads nowhere there."""
    if path.root is Root.OBSERVATION:
        return (_NOWHERE,)
    return (*entity, *path.steps) if path.root is Root.ENTITY else path.steps

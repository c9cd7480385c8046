"""The plain mapper: one record at a time, one rule after the other, easy to read.

It decides about every record that the compiled mapper does not find ordinary, and is the oracle
that the compiled one is tested against. Details of faults never show a value that may be personal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from apply.mapping.casts import Moment, ValueFault
from apply.mapping.raw import Unreadable, content_hash, read_record
from apply.mapping.readable import readable_part
from apply.mapping.rules import ChildRules, Rule, Rules, take
from apply.mapping.types import PG_EPOCH_US, Children, Key, Mapped, Place, Row
from apply.outcomes import KeyValue, Outcome, Reason, RecordFault
from schemas.definitions.paths import EACH, MISSING, Path, Root, find
from schemas.records import Observation

_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Seen:
    """What all records of one observation share."""

    rules: Rules
    observed: Mapping[str, object]  # values of `observation.` paths; None where there is none
    first_index: int
    system: tuple[Any, ...]  # source epoch, generation, partition id, offset
    version_id: int
    observed_at: int  # as rows hold times
    began: int | None

    @property
    def listing(self) -> bool:
        """Whether the page lists what exists, rather than what has changed."""
        return self.rules.plan == "snapshot"


def seen(rules: Rules, observation: Observation, place: Place, version_id: int) -> Seen:
    """What the rows of this observation have in common."""
    original = observation.original_offset
    as_of = None if observation.as_of is None else Moment(observation.as_of)
    return Seen(
        rules=rules,
        observed={
            "tenant": place.tenant,
            "plan": observation.plan,
            "run": observation.run,
            "fetched_at": Moment(observation.received_at),
            "as_of": as_of,
        },
        first_index=observation.first_index,
        system=(
            observation.source_epoch,
            place.generation,
            place.partition_id_no,
            place.offset if original is None else original,
        ),
        version_id=version_id,
        observed_at=observation.received_at - PG_EPOCH_US,
        began=place.began,
    )


class _Refused(Exception):
    """The record is a fault."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def interpret_page(observation: Observation, context: Seen) -> Mapped:
    """Every record of an observation, in order."""
    mapped = Mapped(context.first_index, bytearray(len(observation.records)))
    missing(mapped, observation)
    for at, raw in enumerate(observation.records):
        if not mapped.outcomes[at]:
            interpret(mapped, at, raw, context)
    return mapped


def missing(mapped: Mapped, observation: Observation) -> None:
    """Outcomes of the slots that came without bytes. Only an erased one has a known end."""
    for one in observation.missing:
        at = one.index - mapped.first_index
        if not 0 <= at < len(mapped.outcomes):
            continue
        if one.why == "erased":
            mapped.outcomes[at] = Outcome.ERASED
            continue
        mapped.outcomes[at] = Outcome.QUARANTINED
        mapped.unreadable += 1
        detail = f"{one.size} bytes were not stored"
        if one.sha256 is not None:
            detail += f"; SHA-256 {one.sha256.hex()}"
        mapped.faults.append(RecordFault(one.index, Reason(one.why), detail))


def interpret(mapped: Mapped, at: int, raw: bytes, context: Seen, made: object = MISSING) -> None:
    """One record, at its position in the part: a row, or an outcome with its evidence.

    `made`: the entity that a function made of it, where the mapping has one.
    """
    rules = context.rules
    index = context.first_index + at
    try:
        record = read_record(raw)
    except Unreadable as error:
        mapped.outcomes[at] = Outcome.QUARANTINED
        mapped.unreadable += 1
        mapped.faults.append(RecordFault(index, Reason.UNREADABLE, str(error)))
        return
    entity = made
    if not rules.made:
        entity = MISSING if rules.entity is None else find(rules.entity.steps, record)
    value_of = _looking(record, entity, context)
    if rules.where is not None and not rules.where.matches(value_of):
        mapped.outcomes[at] = Outcome.IGNORED
        if context.listing:
            _show_ignored(mapped, value_of, context)
        return
    key: Key | None = None
    deleted = False
    try:
        if not isinstance(entity, dict):
            raise _Refused(Reason.NOT_AN_OBJECT, "the entity is no JSON object")
        deleted = rules.deleted is not None and rules.deleted.matches(value_of)
        key = tuple(_read(rule, value_of, Reason.MISSING_KEY) for rule in rules.keys)
        values = _values(rules, value_of, deleted)
        children = () if deleted else _children(record, entity, key, index, context)
    except _Refused as fault:
        mapped.outcomes[at] = Outcome.QUARANTINED
        if key is None:
            mapped.unreadable += 1
        elif context.listing or not deleted:
            mapped.other_keys.append(key)
        shown = None if key is None else key_of(rules, key)
        mapped.faults.append(RecordFault(index, fault.reason, fault.detail, shown))
        return
    mapped.rows.append(_row(key + values, deleted, index, content_hash(raw), context))
    if any(children):
        mapped.children[index] = children


def _looking(record: object, entity: object, context: Seen) -> Callable[[Path], object]:
    """What paths lead to from here."""

    def value_of(path: Path) -> object:
        if path.root is Root.OBSERVATION:
            return context.observed[str(path.steps[0])]
        return find(path.steps, entity if path.root is Root.ENTITY else record)

    return value_of


def _children(record: object, entity: object, key: Key, index: int, context: Seen) -> Children:
    """The rows of all child tables. A fault in one of them is a fault of the record."""
    lineage = (*context.system[1:], index, context.version_id)
    found: list[list[Row]] = []
    for child in context.rules.children:
        rows: list[Row] = []
        places: dict[Key, int] = {}
        for position, element in enumerate(_elements(child, record, entity)):
            here = f"{child.name}[{position}]"
            if not isinstance(element, dict):
                raise _Refused(Reason.NOT_AN_OBJECT, f"{here} is no JSON object")
            value_of = _looking(record, element, context)
            try:
                own = tuple(_read(rule, value_of, Reason.MISSING_KEY) for rule in child.keys)
                others = tuple(
                    _read(rule, value_of, Reason.MISSING_VALUE) for rule in child.columns
                )
            except _Refused as fault:
                raise _Refused(fault.reason, f"{here}: {fault.detail}") from None
            first = places.setdefault(own or (position,), position)
            if first != position:
                detail = f"{here} has the key of {child.name}[{first}]"
                raise _Refused(Reason.DUPLICATE_CHILD, detail)
            rows.append(_child_row(key, own, others, position, lineage))
        found.append(rows)
    return tuple(found)


def _elements(child: ChildRules, record: object, entity: object) -> list[object]:
    """The list that a child table is made of; none where the record has no such list."""
    if child.path is None:
        return []
    steps = child.path.steps
    at = steps.index(EACH)
    found = find(steps[:at], entity if child.path.root is Root.ENTITY else record)
    if found is MISSING or found is None:
        return []
    if not isinstance(found, list):
        what = describe(found, shown=False)
        raise _Refused(Reason.WRONG_TYPE, f"{child.name} {what} is no list")
    return [find(steps[at + 1 :], element) for element in found]


def _child_row(key: Key, own: Key, others: Row, position: int, lineage: Row) -> Row:
    """A row in the order of `CompiledChild.columns`; `own` is empty where the position is the key."""
    if own:
        return (*key, *own, *others, position, *lineage)
    return (*key, position, *others, *lineage)


def key_of(rules: Rules, key: Key) -> dict[str, KeyValue]:
    """A key by column, JSON-ready."""
    return {
        rule.name: readable_part(rule.type, value)
        for rule, value in zip(rules.keys, key, strict=True)
    }  # fmt: skip


def _show_ignored(mapped: Mapped, value_of: Callable[[Path], object], context: Seen) -> None:
    """A listed entity exists, whether or not the mapping wants this record of it."""
    try:
        key = tuple(_read(rule, value_of, Reason.MISSING_KEY) for rule in context.rules.keys)
    except _Refused:
        return
    mapped.other_keys.append(key)


def _values(rules: Rules, value_of: Callable[[Path], object], deleted: bool) -> tuple[Any, ...]:
    """All but the key. Of a tombstone only the revision has to be there."""
    revision: tuple[Any, ...] = ()
    if rules.revision is not None:
        revision = (_read(rules.revision, value_of, Reason.MISSING_REVISION),)
    if deleted:
        return tuple(_read_tombstone(rule, value_of) for rule in rules.columns) + revision
    return tuple(_read(rule, value_of, Reason.MISSING_VALUE) for rule in rules.columns) + revision


def _read(rule: Rule, value_of: Callable[[Path], object], if_missing: Reason) -> Any:
    value: object = None
    try:
        for alternative in rule.paths:
            value = value_of(alternative.path)
            if value is not MISSING and value is not None:
                return rule.finish.cast(take(alternative, value))
    except ValueFault as fault:
        detail = f"{rule.name} {describe(value, shown=rule.shown)} {fault.what}"
        raise _Refused(fault.reason, detail) from None
    found = rule.constant if rule.default is None else rule.default
    if found is None and rule.required:
        paths = " or ".join(one.path.text for one in rule.paths)
        raise _Refused(if_missing, f"{rule.name} has no value at {paths or 'any path'}")
    return found


def _read_tombstone(rule: Rule, value_of: Callable[[Path], object]) -> Any:
    """What a tombstone still says; nothing is made up for it, and nothing of it is a fault."""
    for alternative in rule.paths:
        value = value_of(alternative.path)
        if value is not MISSING and value is not None:
            try:
                return rule.finish.cast(take(alternative, value))
            except ValueFault:
                return None
    return rule.constant


def _row(values: Row, deleted: bool, index: int, content: int, context: Seen) -> Row:
    return (
        *values,
        context.observed_at if deleted else None,
        *context.system,
        index,
        context.version_id,
        deleted,
        content,
        context.observed_at,
        context.began,
    )


def describe(value: object, *, shown: bool) -> str:
    """A value in a message: itself if it may be shown, else only what it is."""
    if shown and isinstance(value, str):
        text = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return f'"{text}"'.replace("\0", "\\0")
    if shown and isinstance(value, int | Decimal):
        return str(value).lower()[:_SHOWN_CHARACTERS]
    if isinstance(value, str):
        return f"(a text of {len(value)} characters)"
    if isinstance(value, bool):
        return "(a boolean)"
    if isinstance(value, int | Decimal):
        return "(a number)"
    return "(a list)" if isinstance(value, list) else "(an object)"

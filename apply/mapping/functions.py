"""Entities that a function makes: what is asked of it, and what of its answers can be believed.

Pure: the function itself runs elsewhere. A row is read like any record, so its columns have the
same types, bounds and faults; a member that no column reads is refused, or a typo would be NULL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from apply.mapping.outside import Failed, Make, Skipped
from apply.mapping.raw import Unreadable, read_record
from apply.mapping.types import Mapped
from apply.outcomes import PENDING, Outcome, Reason, RecordFault
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.paths import MISSING, Path, Root
from schemas.records import Observation

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTED_NAMES = 12


def members_of(spec: MappingSpec) -> frozenset[str]:
    """The members of a row that anything in the mapping reads."""
    return frozenset(
        path.steps[0]
        for path in _paths(_rows_paths(spec))
        if path.root is Root.ENTITY and path.steps and isinstance(path.steps[0], str)
    )


def _rows_paths(spec: MappingSpec) -> list[object]:
    """All that reads the row itself; what a child's columns read stands in its elements."""
    children = [child.path for child in spec.children.values()]
    return [dataclasses.replace(spec, children={}), children]


def _paths(value: object) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _paths(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _paths(one)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _paths(getattr(value, field.name))


def entities(
    mapped: Mapped,
    observation: Observation,
    tenant: str | None,
    make: Make,
    members: frozenset[str],
) -> list[object]:
    """What the function makes of each record; MISSING where there is nothing more to map.

    Outcomes of ignored and failed records are set. A record that is no JSON is never given to it.
    """
    found: list[object] = [MISSING] * len(observation.records)
    asked = [at for at, raw in enumerate(observation.records) if _readable(mapped, at, raw)]
    if not asked:
        return found
    answers = make([observation.records[at] for at in asked], _observed(observation, tenant))
    for at, made in zip(asked, answers, strict=True):
        if isinstance(made, Skipped):
            mapped.outcomes[at] = Outcome.IGNORED
            # What is listed exists, and nobody can tell which row it must keep.
            mapped.unreadable += observation.plan == "snapshot"
            continue
        row = made if isinstance(made, Failed) else _row(made, members)
        if isinstance(row, Failed):
            fail(mapped, at, row)
        else:
            found[at] = row
    return found


def fail(mapped: Mapped, at: int, failed: Failed) -> None:
    """A record that the function made nothing of; nobody can tell its key."""
    mapped.outcomes[at] = Outcome.QUARANTINED
    mapped.unreadable += 1
    index = mapped.first_index + at
    mapped.faults.append(RecordFault(index, failed.reason, failed.detail))


def _readable(mapped: Mapped, at: int, raw: bytes) -> bool:
    if mapped.outcomes[at] != PENDING:
        return False
    try:
        read_record(raw)
    except Unreadable as error:
        fail(mapped, at, Failed(Reason.UNREADABLE, str(error)))
        return False
    return True


def _row(made: bytes, members: frozenset[str]) -> dict[str, object] | Failed:
    try:
        row = read_record(made)
    except Unreadable as error:
        return Failed(Reason.MAPPER_FAILED, f"the function returned a row that is {error}")
    if not isinstance(row, dict):
        return Failed(Reason.MAPPER_FAILED, "the function returned a row that is no mapping")
    if b"\\u0000" in made and _holds_nul(row):  # which compiled code takes for granted
        return Failed(Reason.NUL, "the function returned a text that holds U+0000")
    if strange := len(row.keys() - members):
        return Failed(
            Reason.MAPPER_FAILED,
            f"the function returned {strange} members that no column reads; "
            f"columns read {_listed(sorted(members))}",
        )
    return row


def _holds_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(one) for key, one in value.items())
    return isinstance(value, list) and any(map(_holds_nul, value))


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _LISTED_NAMES else ""
    return ", ".join(names[:_LISTED_NAMES]) + more


def _observed(observation: Observation, tenant: str | None) -> dict[str, object]:
    as_of = observation.as_of
    return {
        "partition_id": observation.partition_id,
        "plan": observation.plan,
        "tenant": tenant,
        "run": observation.run,
        "fetched_at": _EPOCH + timedelta(microseconds=observation.received_at),
        "as_of": None if as_of is None else _EPOCH + timedelta(microseconds=as_of),
    }

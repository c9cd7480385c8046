"""Moves exceptions from state to state, with all that hangs on it: ledger bytes, coverage, history.

Invariant: no state changes but by an event that the table of `exception_states` takes, and outcome
and exception of a record never contradict each other. Runs inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apply.decisions import heal_coverage, set_outcomes
from apply.exception_states import Event, State, sources, target
from apply.outcomes import Outcome
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection

_SQL = load("exceptions")
_OUTCOME = {
    State.RETRYABLE: Outcome.RETRYABLE,
    State.QUARANTINED: Outcome.QUARANTINED,
    State.REPEATED: Outcome.QUARANTINED,
    State.DISMISSED: Outcome.QUARANTINED,
}


@dataclass(frozen=True, slots=True)
class Moved:
    """An exception that took an event; `before` is the state that it left."""

    where: Where
    partition_id_no: int
    plan: str
    scope: str
    fingerprint: bytes | None
    content: bytes | None
    before: State


@dataclass(frozen=True, slots=True)
class Said:
    """What an event says beside itself. None leaves what the row has.

    `outcome`: what the record became, where the event resolves it. `by` None: nobody decided.
    """

    now: datetime
    by: str | None = None
    note: str | None = None
    reason: str | None = None
    detail: str | None = None
    due_at: datetime | None = None
    tried_version: int | None = None
    outcome: Outcome = Outcome.SUPERSEDED


_TRIES = (Event.FAIL, Event.REFUSE, Event.EXHAUST, Event.LAND)
_FRESH = (Event.RETRY, Event.REMAP, Event.PROMOTE)
_UNTOLD = (Event.REPEAT, Event.KNOWN)


def move(connection: Connection, event: Event, places: Sequence[Where], said: Said) -> list[Moved]:
    """One event on these exceptions; returns those that took it."""
    if not places:
        return []
    reached = target(event)
    values = {
        **arrays(places), "sources": list(sources(event)), "target": reached.value,
        "event": event.value, "fresh": event in _FRESH, "tried": int(event in _TRIES),
        "told": event not in _UNTOLD, "now": said.now, "by": said.by, "note": said.note,
        "reason": said.reason, "detail": said.detail, "due_at": said.due_at,
        "tried_version": said.tried_version,
    }  # fmt: skip
    moved = [_moved(row) for row in connection.execute(_SQL["move"], values)]
    outcome = said.outcome if reached is State.RESOLVED else _OUTCOME[reached]
    set_outcomes(connection, [one.where for one in moved], outcome)
    if reached is State.RESOLVED:
        for one in moved:
            heal_coverage(connection, one.where, one.scope)
    return moved


def uncover(connection: Connection, ended: Iterable[Moved], now: datetime) -> None:
    """These ended well: of what they stood for, the same bytes are superseded, others are tried."""
    groups = [one for one in ended if one.fingerprint is not None]
    if not groups:
        return
    contents = {(one.fingerprint, one.content) for one in groups}
    same: list[Where] = []
    other: list[Where] = []
    for where, fingerprint, content, has_raw in covered(connection, groups):
        (other if has_raw and (fingerprint, content) not in contents else same).append(where)
    move(connection, Event.SUPERSEDE, same, Said(now, "apply", "a later sighting landed"))
    move(connection, Event.PROMOTE, other, Said(now, due_at=now))


def covered(
    connection: Connection, groups: Sequence[Moved]
) -> list[tuple[Where, bytes, bytes | None, bool]]:
    """What these stand for: place, fingerprint, content, and whether its own bytes were kept."""
    asked = {
        "partition_ids": [one.partition_id_no for one in groups],
        "mapping_versions": [one.where.mapping_version for one in groups],
        "fingerprints": [one.fingerprint for one in groups],
    }
    found = connection.execute(_SQL["covered"], asked)
    return [(Where(*row[:5]), bytes(row[5]), _bytes(row[6]), row[7]) for row in found]


def arrays(places: Sequence[Where]) -> dict[str, Any]:
    """Coordinates as parallel arrays, as the queries take them."""
    return {
        "mapping_versions": [one.mapping_version for one in places],
        "partitions": [one.partition for one in places],
        "generations": [one.generation for one in places],
        "offsets": [one.offset for one in places],
        "indexes": [one.index for one in places],
    }


def _moved(row: Sequence[Any]) -> Moved:
    return Moved(
        Where(*row[:5]), row[5], row[6], row[7], _bytes(row[8]), _bytes(row[9]), State(row[10])
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)

"""Which rows really changed, and how: what becomes an event of the outbox.

Old and new state are both read back from the table, so both are what the database made of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apply.guard import before_sql
from apply.mapping.readable import readable_key
from apply.mapping.types import (
    GENERATION,
    INDEX,
    OFFSET,
    PARTITION_ID,
    REVISION,
    SOURCE_EPOCH,
    SYSTEM_COLUMNS,
    CompiledMapping,
    Row,
)
from apply.share import Coordinates, coordinates
from apply.sink import Connection
from apply.sql_text import equal_sql, quote, target_sql
from schemas.definitions.mapping import Personal, RevisionKind

Effect = Literal["created", "changed", "deleted"]
Before = Mapping[Coordinates, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """One row that really changed. `payload` is JSON text; `identity` makes the event unique."""

    compiled: CompiledMapping
    key: str
    effect: Effect
    identity: str
    payload: str


class Events:
    """The statements that tell what an upsert of one mapping changed."""

    def __init__(self, compiled: CompiledMapping, stage: str) -> None:
        self._compiled = compiled
        self._state = before_sql(compiled, stage)
        hidden = shown_not(compiled)
        self._payload = (
            'SELECT n."_partition_id", n."_offset", n."_index", (to_jsonb(t) - %s::text[])::text'
            f" FROM {quote(stage)} n JOIN {target_sql(compiled.spec)} t"
            f" ON {equal_sql(compiled, 'n', 't')}"
        )
        self._hidden = sorted(hidden)

    def before(self, connection: Connection) -> Before:
        """The rows that the stage may change, as they are; locks them."""
        found = connection.execute(self._state.encode())
        return {(row[0], row[1], row[2]): tuple(row[3:]) for row in found}

    def after(
        self,
        connection: Connection,
        before: Before,
        written: set[Coordinates],
        winners: Sequence[Row],
    ) -> list[Change]:
        """The changes among the rows that were written."""
        now = self.before(connection)
        found: dict[Coordinates, Effect] = {}
        for at in written:
            effect = _effect(before.get(at), now[at])
            if effect is not None and self._wanted(effect):
                found[at] = effect
        if not found:
            return []
        rows = {coordinates(row): row for row in winners}
        states = connection.execute(self._payload.encode(), [self._hidden])
        payloads = {(row[0], row[1], row[2]): str(row[3]) for row in states}
        # in the order of the keys, as rows are written: the same on every run
        return [
            _change(self._compiled, rows[at], found[at], payloads[at])
            for at in map(coordinates, winners)
            if at in found
        ]

    def _wanted(self, effect: Effect) -> bool:
        return wanted_type(self._compiled, effect) is not None


def wanted_type(compiled: CompiledMapping, effect: Effect) -> str | None:
    """The event type that this effect has in this mapping; None: no event."""
    events = compiled.spec.events
    if events is None:
        return None
    return {"created": events.created, "changed": events.changed, "deleted": events.deleted}[effect]


def shown_not(compiled: CompiledMapping) -> set[str]:
    """Columns that no event carries: the system's own, and those that are declared personal."""
    personal = {
        name
        for name, column in compiled.spec.columns.items()
        if column.personal is Personal.KEEP and name not in compiled.spec.key
    }
    return personal | {column.name for column in SYSTEM_COLUMNS if column.name != "deleted_at"}


def key_text(values: Iterable[Any]) -> str:
    """The entity's key as a JSON array of plain values, in the order of the key columns."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def _effect(old: tuple[Any, ...] | None, new: tuple[Any, ...]) -> Effect | None:
    gone = bool(new[0])
    was_there = old is not None and not old[0]
    if was_there:
        if gone:
            return "deleted"
        return "changed" if old is not None and old[1:] != new[1:] else None
    return None if gone else "created"


def _change(compiled: CompiledMapping, row: Row, effect: Effect, payload: str) -> Change:
    has_revision = compiled.spec.revision.kind is not RevisionKind.NONE
    revision = str(row[REVISION]) if has_revision else ""
    observed = (row[GENERATION], row[PARTITION_ID], row[OFFSET], row[INDEX])
    key = key_text(readable_key(compiled, row).values())
    return change(compiled, key, effect, (row[SOURCE_EPOCH], revision, *observed), payload)


def change(
    compiled: CompiledMapping, key: str, effect: Effect, observed: Sequence[Any], payload: str
) -> Change:
    """`observed`: what tells this state from every other of the entity; repeated work makes the
    same identity again."""
    told = json.dumps([compiled.spec.name, key, [str(one) for one in observed], effect])
    return Change(compiled, key, effect, hashlib.sha256(told.encode()).hexdigest()[:40], payload)

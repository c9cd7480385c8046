"""Which rows really changed, and how: what becomes an event of the outbox.

Old and new state are both read back from the table, so both are what the database made of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from apply.faults import NotKept
from apply.guard import before_sql, compared_fields
from apply.mapping.readable import readable_key
from apply.mapping.types import (
    DELETED,
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
Before = Mapping[Coordinates, tuple[bool, bytes]]
"""Per record: whether its row is deleted, and a hash of each field that events compare, in a row."""
_HASH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Change:
    """One row that really changed. `payload` is JSON text; `identity` makes the event unique.

    `changed`: the compared fields that differ; none where the row was created or deleted.
    """

    compiled: CompiledMapping
    key: str
    effect: Effect
    identity: str
    payload: str
    changed: tuple[str, ...] = ()


class Events:
    """The statements that tell what an upsert of one mapping changed."""

    def __init__(self, compiled: CompiledMapping, stage: str) -> None:
        self._compiled = compiled
        self._compared = compared_fields(compiled)
        # the fields only have to be compared, so the database sends a hash of each
        self._state = (
            'SELECT s."_partition_id", s."_offset", s."_index", s."_deleted",'
            f" {_hashes_sql(self._compared)} FROM ({before_sql(compiled, stage)}) s"
        )
        self._payload = (
            'SELECT n."_partition_id", n."_offset", n."_index", (to_jsonb(t) - %s::text[])::text'
            f" FROM {quote(stage)} n JOIN {target_sql(compiled.spec)} t"
            f" ON {equal_sql(compiled, 'n', 't')}"
        )
        self._hidden = sorted(shown_not(compiled))
        effects: tuple[Effect, ...] = ("created", "changed", "deleted")
        self._wanted = {one for one in effects if wanted_type(compiled, one) is not None}

    def before(self, connection: Connection) -> Before:
        """The rows that the stage may change, as they are; locks them."""
        found = connection.execute(self._state.encode())
        return {(row[0], row[1], row[2]): (row[3], row[4]) for row in found}

    def after(
        self,
        connection: Connection,
        before: Before,
        written: set[Coordinates],
        winners: Sequence[Row],
    ) -> list[Change]:
        """The changes among the rows that were written. Raises NotKept if one is not there."""
        differing = self._differing(connection, before, winners)
        found: list[tuple[Row, Effect]] = []
        for row in winners:  # in the order of the keys, as rows are written
            at = coordinates(row)
            effect = _effect(before.get(at), bool(row[DELETED]))
            same = effect == "changed" and not differing.get(at)
            if at in written and effect in self._wanted and not same:
                assert effect is not None
                found.append((row, effect))
        if not found:
            return []
        states = connection.execute(self._payload.encode(), [self._hidden])
        payloads = {(row[0], row[1], row[2]): row[3] for row in states}
        if any(coordinates(row) not in payloads for row, _ in found):
            raise NotKept
        return [
            _change(
                self._compiled,
                row,
                effect,
                payloads[coordinates(row)],
                differing.get(coordinates(row), ()) if effect == "changed" else (),
            )
            for row, effect in found
        ]

    def _differing(
        self, connection: Connection, before: Before, winners: Sequence[Row]
    ) -> dict[Coordinates, tuple[str, ...]]:
        """Which compared fields differ, for the rows that live before and after."""
        alive = {at for at, (deleted, _) in before.items() if not deleted}
        if not any(not row[DELETED] and coordinates(row) in alive for row in winners):
            return {}
        now = self.before(connection)
        return {at: self._names(before[at][1], now[at][1]) for at in alive if at in now}

    def _names(self, old: bytes, new: bytes) -> tuple[str, ...]:
        if old == new:
            return ()
        starts = range(0, len(new), _HASH_BYTES)
        return tuple(
            name
            for name, at in zip(self._compared, starts, strict=True)
            if old[at : at + _HASH_BYTES] != new[at : at + _HASH_BYTES]
        )


def _hashes_sql(fields: Sequence[str]) -> str:
    """A hash of each field, one behind the other; zeros stand for NULL."""
    return " || ".join(
        (
            "''::bytea",
            *(
                f"coalesce(int8send(hashtextextended(s.{quote(name)}::text, 0)), int8send(0))"
                for name in fields
            ),
        )
    )


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


def _effect(old: tuple[bool, bytes] | None, gone: bool) -> Effect | None:
    """What happens to a row that is written; a change may still turn out to be none."""
    if old is not None and not old[0]:
        return "deleted" if gone else "changed"
    return None if gone else "created"


def _change(
    compiled: CompiledMapping, row: Row, effect: Effect, payload: str, changed: tuple[str, ...]
) -> Change:
    has_revision = compiled.spec.revision.kind is not RevisionKind.NONE
    revision = str(row[REVISION]) if has_revision else ""
    observed = (row[GENERATION], row[PARTITION_ID], row[OFFSET], row[INDEX])
    key = key_text(readable_key(compiled, row).values())
    return change(compiled, key, effect, (row[SOURCE_EPOCH], revision, *observed), payload, changed)


def change(
    compiled: CompiledMapping,
    key: str,
    effect: Effect,
    observed: Sequence[Any],
    payload: str,
    changed: tuple[str, ...] = (),
) -> Change:
    """`observed`: what tells this state from every other of the entity; repeated work makes the
    same identity again."""
    told = "\n".join((compiled.spec.name, key, *map(str, observed), effect))
    identity = hashlib.sha256(told.encode()).hexdigest()[:40]
    return Change(compiled, key, effect, identity, payload, changed)

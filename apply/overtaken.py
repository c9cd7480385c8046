"""Resolves quarantined records that the row of their entity has overtaken: nothing is lost of them.

Judged by the guard itself, with the record's own revision. One whose revision cannot be read stays,
since a later observation may show an older state. A chore: it looks at few at a time, round and round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import structlog

from apply.changes import Change
from apply.exception_states import Event
from apply.exceptions import Said, move, uncover
from apply.guard import beats, below_listing
from apply.mapping.casts import Moment
from apply.mapping.revision import revision_of
from apply.mapping.rules import Rules, resolve
from apply.mapping.types import PG_EPOCH_US, REVISION, SOURCE_EPOCH, CompiledMapping, Row
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection
from apply.sql_text import quote, target_sql
from apply.store import Store
from schemas.definitions.mapping import RevisionKind
from schemas.keys import split_partition_id

_log = structlog.get_logger(__name__)
_SQL = load("exceptions")
_AT_ONCE = 500
_START = (-1, -1, -1, -1, -1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(2000, 1, 1).toordinal()


def overtaken(record: Row, row: Row, kind: RevisionKind) -> bool:
    """Whether the row of its entity comes after a record that never became one. Of one owner.

    Of both only what follows the mapped columns is looked at: from REVISION on.
    """
    same_epoch = record[SOURCE_EPOCH] == row[SOURCE_EPOCH]
    if kind is not RevisionKind.NONE and record[REVISION] is None and same_epoch:
        return below_listing(record, row)
    return beats(row, record, kind)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An exception beside the row of its key, as the query returns both."""

    where: Where
    partition_id_no: int
    source_epoch: int
    original_offset: int
    raw: bytes | None
    plan: str
    fetched_at: datetime
    as_of: datetime | None
    run: str | None
    partition_id: str
    began: int | None
    row: Row

    def observed(self) -> dict[str, object]:
        """Values of `observation.` paths."""
        return {
            "tenant": split_partition_id(self.partition_id)[2],
            "plan": self.plan,
            "run": self.run,
            "fetched_at": Moment(_us(self.fetched_at)),
            "as_of": None if self.as_of is None else Moment(_us(self.as_of)),
        }

    def record(self, rules: Rules) -> Row:
        """What its row would have been, from the revision on."""
        where = self.where
        revision = None if self.raw is None else revision_of(rules, self.observed(), self.raw)
        return (
            revision, None, self.source_epoch, where.generation, self.partition_id_no,
            self.original_offset, where.index, where.mapping_version, False, 0, 0, self.began,
        )  # fmt: skip


class Overtaken:
    """Looks at the exceptions of one mapping. Used by the writer's thread."""

    def __init__(self, compiled: CompiledMapping) -> None:
        self._spec = compiled.spec
        self._kind = compiled.spec.revision.kind
        self._rules: dict[str, Rules] = {}
        self._after: Sequence[int] = _START
        keys = " AND ".join(
            f"t.{quote(one.name)} = (e.key ->> '{one.name}')::{one.pg_type}"
            for one in compiled.key_columns
        )
        has_revision = self._kind is not RevisionKind.NONE
        revision = "t.source_revision" if has_revision else "NULL"
        self._query = _SQL["overtaken"] % {
            "revision": revision, "target": target_sql(compiled.spec), "keys": keys,
        }  # fmt: skip

    def look(self, store: Store, now: datetime) -> int:
        """One step of the round. Returns how many were resolved. Raises SinkFault."""
        return store.beside(lambda connection, held: self._look(connection, held, now))

    def _look(
        self, connection: Connection, held: list[int], now: datetime
    ) -> tuple[int, list[Change]]:
        try:
            with connection.transaction():
                found = self._candidates(connection, held)
        except psycopg.DataError as error:
            # a key of an older version that is none of today's type: its rows stay as they are
            _log.warning("keys not compared", mapping=self._spec.name, sqlstate=error.sqlstate)
            return 0, []
        last = found[-1].where if len(found) == _AT_ONCE else None
        self._after = _START if last is None else _place(last)
        over = [
            one.where
            for one in found
            if overtaken(one.record(self._of(one.plan)), one.row, self._kind)
        ]
        said = Said(now, "apply", "the row of its entity is newer")
        moved = move(connection, Event.SUPERSEDE, over, said)
        uncover(connection, moved, now)
        return len(moved), []

    def _of(self, plan: str) -> Rules:
        found = self._rules.get(plan)
        if found is None:
            found = self._rules[plan] = resolve(self._spec, plan)
        return found

    def _candidates(self, connection: Connection, held: list[int]) -> list[_Candidate]:
        values = [self._spec.name, held, *self._after, _AT_ONCE]
        found = []
        for row in connection.execute(self._query.encode(), values):
            number, epoch, original, raw, plan, fetched_at, as_of, run, text, began = row[5:15]
            revision, row_epoch, generation, offset, index, version, row_began = row[15:]
            state: Row = (
                _as_row(revision), None, row_epoch, generation, number, offset, index, version,
                False, 0, 0, row_began,
            )  # fmt: skip
            found.append(
                _Candidate(
                    Where(*row[:5]), number, epoch, original, None if raw is None else bytes(raw),
                    plan, fetched_at, as_of, run, text, began, state,
                )
            )  # fmt: skip
        return found


def _place(where: Where) -> tuple[int, int, int, int, int]:
    return (where.partition, where.generation, where.offset, where.index, where.mapping_version)


def _us(at: datetime) -> int:
    return round((at - _EPOCH) / timedelta(microseconds=1))


def _as_row(revision: Any) -> Any:
    """A revision as the database says it, in the form that rows hold."""
    if isinstance(revision, datetime):
        return _us(revision) - PG_EPOCH_US
    if isinstance(revision, date):
        return revision.toordinal() - _EPOCH_DAY
    return revision

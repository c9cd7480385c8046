"""The edge to Postgres: one repeatable-read transaction, read through server-side cursors.

Everything an audit reads of Postgres is of one instant, however long it takes, and never in memory
as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self

import msgspec
import psycopg
from psycopg import sql

from ops.audit.coverage import Stretch
from ops.audit.facts import ExceptionRow, LedgerRow, MarkRow, Position, Version
from schemas.keys import mark_key
from schemas.records import Mark

_FETCH = 2_000
_TEXT = '\'YYYY-MM-DD"T"HH24:MI:SS.US"Z"\''
_PLACE = 'partition = %s AND generation = %s AND "offset" >= %s AND "offset" < %s'
Generations = Sequence[tuple[int, int, int]]
"""(generation, first offset, offset behind the last), in the order of offsets."""


def generation_stretches(known: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Where each generation (number, first offset; rising numbers) still holds in today's log.

    A later generation takes over from its first offset on: what the log was cut to stays the
    older one's, and a topic made anew leaves nothing to the older ones.
    """
    found: list[tuple[int, int, int]] = []
    until = 1 << 62
    for generation, first in reversed(known):
        if first < until:
            found.insert(0, (generation, first, until))
            until = first
    if until > 0:
        found.insert(0, (0, 0, until))
    return found


class SinkSnapshot:
    """What Postgres says at one instant. Use as a context; one thread."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn)
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.read_only = True
        self._connection.execute("SET LOCAL TimeZone TO 'UTC'")
        self._cursors = 0
        rows = self._connection.execute("SELECT id, text FROM gapless.partition_id")
        self._partition_ids: dict[int, str] = {int(number): str(text) for number, text in rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def deployment(self) -> str:
        """Words that tell this database and its topic from all others, as they stand now."""
        row = self._connection.execute(
            "SELECT current_database() || ' of ' || (SELECT min(applied_at) FROM"
            " gapless.schema_migration) || ' reads ' || coalesce((SELECT string_agg(partition ||"
            " '.' || generation || ' ' || topic_id, ', ' ORDER BY partition, generation) FROM"
            " gapless.log_generation), 'nothing')"
        ).fetchone()
        assert row is not None
        return str(row[0])

    def positions(self) -> list[Position]:
        rows = self._connection.execute(
            "SELECT pipeline, partition, generation, next_offset_to_apply, last_offset, last_key"
            " FROM gapless.position ORDER BY pipeline, partition"
        )
        return [Position(*row) for row in rows]

    def versions(self) -> list[Version]:
        rows = self._connection.execute(
            "SELECT id, mapping, version, source, stream, table_name, state = 'live'"
            " FROM gapless.mapping_version ORDER BY id"
        )
        return [Version(*row) for row in rows]

    def generations(self, partition: int) -> Generations:
        """Which generation the offsets of today's log belong to, by offset."""
        rows = self._connection.execute(
            "SELECT generation, first_offset FROM gapless.log_generation WHERE partition = %s"
            " ORDER BY generation",
            (partition,),
        )
        return generation_stretches([(int(row[0]), int(row[1])) for row in rows])

    def ledger(self, partition: int, of: Generations) -> Iterator[LedgerRow]:
        """Ledger rows of one partition by offset."""
        rows = self._by_generation(
            'SELECT "offset", mapping_version, partition_id, plan, scope, pass, page, part, parts,'
            " original_offset, records, counts, outcomes FROM gapless.page_ledger"
            f' WHERE {_PLACE} ORDER BY "offset", mapping_version',
            partition,
            of,
        )
        for row in rows:
            owner, counts, outcomes = self._partition_ids[row[2]], tuple(row[11]), bytes(row[12])
            values = (*row[:2], owner, *row[3:11], counts, outcomes)
            yield LedgerRow(*values)

    def exceptions(self, partition: int, of: Generations) -> Iterator[ExceptionRow]:
        """Exceptions of one partition by offset."""
        rows = self._by_generation(
            'SELECT "offset", mapping_version, index, state FROM gapless.exception'
            f' WHERE {_PLACE} ORDER BY "offset", mapping_version, index',
            partition,
            of,
        )
        for row in rows:
            yield ExceptionRow(*row)

    def marks(self, partition: int, of: Generations) -> Iterator[MarkRow]:
        """Marks of one partition by offset."""
        rows = self._by_generation(
            'SELECT "offset", partition_id, kind, plan, scope, state,'
            " (extract(epoch FROM at) * 1000000)::bigint, body"
            f' FROM gapless.mark WHERE {_PLACE} ORDER BY "offset"',
            partition,
            of,
        )
        for offset, owner, *rest, body in rows:
            mark = msgspec.convert(body, Mark)
            owner_text = self._partition_ids[owner]
            values = (offset, owner_text, *rest, mark.start, mark.end, mark_key(mark))
            yield MarkRow(*values)

    def searched_by_marks(self) -> Iterator[Stretch]:
        """What done marks say was fully searched, by partition id, plan and start."""
        return self._stretches(
            "SELECT p.text, m.plan, m.body->>'start', m.body->>'end'"
            " FROM gapless.mark m JOIN gapless.partition_id p ON p.id = m.partition_id"
            " WHERE m.state = 'done' AND m.kind IN ('interval_complete', 'caught_up')"
            " AND m.plan IN ('interval', 'keyset') ORDER BY 1, 2, 3, 4"
        )

    def searched_by_coverage(self) -> Iterator[Stretch]:
        """What `coverage` says was fully searched, by partition id, plan and start."""
        return self._stretches(
            f"SELECT p.text, c.plan, to_char(c.start_at, {_TEXT}), to_char(c.end_at, {_TEXT})"
            " FROM gapless.coverage c JOIN gapless.partition_id p ON p.id = c.partition_id"
            " WHERE c.state IN ('complete', 'complete_with_errors') AND c.plan IN ('interval', 'keyset')"
            " ORDER BY 1, 2, 3, 4"
        )

    def complete_snapshots(self) -> dict[str, str]:
        """Partition id → its last complete snapshot."""
        rows = self._connection.execute(
            "SELECT DISTINCT ON (partition_id) partition_id, snapshot FROM gapless.snapshot"
            " WHERE completed IS NOT NULL ORDER BY partition_id, generation DESC, began DESC"
        )
        return {self._partition_ids[row[0]]: str(row[1]) for row in rows}

    def open_gaps(self) -> int:
        row = self._connection.execute(
            "SELECT count(*) FROM gapless.gap WHERE accepted_at IS NULL"
        ).fetchone()
        return int(row[0]) if row else 0

    def rows(
        self, query: sql.Composed, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> Iterator[Any]:
        """Any other query, streamed."""
        self._cursors += 1
        with self._connection.cursor(f"audit_{self._cursors}") as cursor:
            cursor.itersize = _FETCH
            cursor.execute(query, parameters)
            yield from cursor

    def _by_generation(
        self, query: LiteralString, partition: int, of: Generations
    ) -> Iterator[Any]:
        for generation, first, until in of:
            yield from self._stream(query, (partition, generation, first, until))

    def _stretches(self, query: LiteralString) -> Iterator[Stretch]:
        for row in self._stream(query):
            yield Stretch(*row)

    def _stream(self, query: LiteralString, parameters: Sequence[Any] = ()) -> Iterator[Any]:
        return self.rows(sql.Composed([sql.SQL(query)]), parameters)

"""What a replay would change, counted without changing it.

Folds the log into a temporary table by the guard itself, then compares slice by slice: each slice
is upserted for real, looked at and rolled back. What only constraints refuse is not foreseen.
"""

from __future__ import annotations

from typing import Protocol

from apply.barrier import barrier
from apply.batch import Batch, Part
from apply.fold import fold, split_barred
from apply.guard import upsert_sql
from apply.mapping.types import CompiledMapping
from apply.outcomes import Outcome
from apply.queries import load
from apply.rows import Target
from apply.share import shares
from apply.sink import Connection
from apply.sql_text import columns_sql, copy_sql, equal_sql, quote, target_sql

_SQL = load("replay")
_SHADOW, _NUMBERED, _BEFORE = "replay_shadow", "replay_numbered", "replay_before"
_NUMBER = "_replay_number"
_SLICE = 5_000


class Tally(Protocol):
    """Where the counts go: the replay's report."""

    outcomes: list[int]
    added: int
    changed: int
    unchanged: int
    changed_columns: dict[str, int]
    newly_failing: int
    healed: int


class DryRun:
    """One rehearsal on one connection."""

    def __init__(self, connection: Connection, compiled: CompiledMapping, tally: Tally) -> None:
        self._connection, self._compiled, self._tally = connection, compiled, tally
        self._target = Target(compiled)
        self._target.prepare(connection)
        columns, keys = columns_sql(compiled.columns), columns_sql(compiled.key_columns)
        table = target_sql(compiled.spec)
        connection.execute(
            f"CREATE TEMPORARY TABLE {_SHADOW} AS SELECT {columns} FROM {table} WITH NO DATA".encode()
        )
        connection.execute(f"ALTER TABLE {_SHADOW} ADD PRIMARY KEY ({keys})".encode())
        # the very statement of the sink, only into the temporary table
        self._into_shadow = upsert_sql(compiled, self._target.stage).replace(table, _SHADOW)

    def take(self, batch: Batch) -> None:
        """Fold one batch into the temporary table; count outcomes that need no table."""
        with self._connection.transaction():
            for share in shares(batch):
                numbers = [page.partition_id_no for page, _ in share.works]
                found = barrier(self._connection, numbers, self._compiled.version_id)
                rows, barred = split_barred(share.rows(), found.swept)
                folded = fold(rows, self._compiled)
                self._stage(self._connection, folded.winners)
                self._connection.execute(self._into_shadow.encode())
                beaten = len(barred) + len(folded.losers)
                self._tally.outcomes[Outcome.SUPERSEDED - 1] += beaten
                self._tally.outcomes[Outcome.APPLIED - 1] += len(rows) + len(barred) - beaten
        for part in batch.parts:
            self._failing(part)

    def _stage(self, connection: Connection, rows: list[tuple[object, ...]]) -> None:
        with connection.cursor().copy(
            copy_sql(self._compiled, self._target.stage).encode()
        ) as copy:
            copy.set_types(self._compiled.type_names)
            for row in rows:
                copy.write_row(row)

    def _failing(self, part: Part) -> None:
        """Records that fail under this version, against those that fail under an older one."""
        now: set[tuple[int, int]] = set()
        for page in part.pages:
            for work in page.works:
                now |= {(page.offset, fault.index) for fault in work.mapped.faults}
                for outcome in Outcome:
                    self._tally.outcomes[outcome - 1] += work.mapped.outcomes.count(outcome.value)
        offsets = [page.offset for page in part.pages]
        if not offsets:
            return
        asked = {
            "mapping_version": self._compiled.version_id, "partition": part.partition,
            "generation": part.generation, "offsets": offsets,
        }  # fmt: skip
        rows = self._connection.execute(_SQL["known_exceptions"], asked)
        before = {(offset, index) for offset, index in rows}
        self._tally.newly_failing += len(now - before)
        self._tally.healed += len(before - now)

    def compare(self) -> None:
        """Hold the folded rows against the table."""
        keys = columns_sql(self._compiled.key_columns)
        self._connection.execute(
            (
                f"CREATE TEMPORARY TABLE {_NUMBERED} AS SELECT *, row_number() OVER (ORDER BY {keys})"
                f" AS {_NUMBER} FROM {_SHADOW}"
            ).encode()
        )
        self._connection.execute(f"CREATE INDEX ON {_NUMBERED} ({_NUMBER})".encode())
        first, moved = 1, _SLICE
        while moved == _SLICE:
            with self._connection.transaction(force_rollback=True):
                moved = self._next_slice(first)
                self._compare_slice()
            first += _SLICE

    def _next_slice(self, first: int) -> int:
        columns = columns_sql(self._compiled.columns)
        statement = (
            f"INSERT INTO {quote(self._target.stage)} ({columns}) SELECT {columns} FROM {_NUMBERED}"
            f" WHERE {_NUMBER} BETWEEN %s AND %s"
        )
        return self._connection.execute(statement.encode(), [first, first + _SLICE - 1]).rowcount

    def _compare_slice(self) -> None:
        connection, compiled, stage = self._connection, self._compiled, quote(self._target.stage)
        table, keys = target_sql(compiled.spec), compiled.key_columns
        connection.execute(
            (
                f"CREATE TEMPORARY TABLE {_BEFORE} AS SELECT t.* FROM {stage} n JOIN {table} t"
                f" ON {equal_sql(compiled, 'n', 't')}"
            ).encode()
        )
        connection.execute(f"ALTER TABLE {_BEFORE} ADD PRIMARY KEY ({columns_sql(keys)})".encode())
        connection.execute(self._target.upsert.encode())
        compared = [n for n in compiled.spec.columns if n not in compiled.spec.key]
        differs = [f"t.{quote(n)} IS DISTINCT FROM b.{quote(n)}" for n in (*compared, "_deleted")]
        there = f"b.{quote(keys[0].name)} IS NOT NULL"
        counts = ", ".join(f"count(*) FILTER (WHERE {there} AND {one})" for one in differs)
        row = connection.execute(
            (
                f"SELECT count(*) FILTER (WHERE NOT ({there})),"
                f" count(*) FILTER (WHERE {there} AND ({' OR '.join(differs)})), count(*), {counts}"
                f" FROM {stage} n JOIN {table} t ON {equal_sql(compiled, 'n', 't')}"
                f" LEFT JOIN {_BEFORE} b ON {equal_sql(compiled, 'n', 'b')}"
            ).encode()
        ).fetchone()
        assert row is not None
        self._tally.added += row[0]
        self._tally.changed += row[1]
        self._tally.unchanged += row[2] - row[0] - row[1]
        for name, count in zip((*compared, "deleted"), row[3:], strict=True):
            if count:
                self._tally.changed_columns[name] = self._tally.changed_columns.get(name, 0) + count

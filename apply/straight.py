"""Rows that are new to the table go straight into it: one COPY, no temporary table, no upsert.

Where a table is filled (backfills, a table built beside the live one) that halves the work of
Postgres. It is tried only after batches in which every row was new; a key that is there after all
takes the try back, and the upsert decides as always. A row that no key holds needs no guard.
"""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import errors

from apply.mapping.types import CompiledMapping
from apply.sink import Connection
from apply.sql_text import columns_sql, target_sql

_LEAST_ROWS = 200
_BATCHES_MAX = 64


class Straight:
    """Of one mapping; remembers how new the last batches were."""

    def __init__(self, compiled: CompiledMapping) -> None:
        table = target_sql(compiled.spec)
        self._copy = f"COPY {table} ({columns_sql(compiled.columns)}) FROM STDIN (FORMAT BINARY)"
        self._updated = "SELECT pg_stat_get_xact_tuples_updated(%s::regclass)"
        self._table = table
        self._new = self._seen = 0
        self._wanted: float = 1
        """Batches of new rows before a try: twice as many after each one that failed."""

    def pays(self, rows: int) -> bool:
        """Whether so many rows are worth a try."""
        return rows >= _LEAST_ROWS and self._new >= self._wanted

    def upserted(self, connection: Connection, rows: int, written: int) -> None:
        """What the upsert did with so many rows, the first of this transaction in the table."""
        if rows < _LEAST_ROWS:
            return
        [[updated]] = connection.execute(self._updated, [self._table]).fetchall()
        # what earlier transactions updated is counted too, until the server has reported it
        all_new = written == rows and updated in (0, self._seen)
        self._new = self._new + 1 if all_new else 0
        self._seen = updated

    def land(self, connection: Connection, pieces: Iterable[bytes]) -> bool:
        """Whether these rows (a whole binary COPY) are in the table now; if not, none of them is.

        Raises what Postgres says of anything but a key that is taken.
        """
        try:
            with connection.transaction(), connection.cursor().copy(self._copy.encode()) as copy:
                for piece in pieces:
                    copy.write(piece)
        except errors.UniqueViolation:
            self._new, self._wanted = 0, min(2 * self._wanted, _BATCHES_MAX)
            return False
        except (errors.FeatureNotSupported, errors.WrongObjectType):
            self._wanted = float("inf")  # row security, or a view: COPY is no way into it
            return False
        return True

"""Rows that are new to the table go straight into it: one COPY, no temporary table, no upsert.

Where a table is filled (backfills, a table built beside the live one) that halves the work of
Postgres. It is tried only after batches in which every row was new; a key that is there after all
takes the try back, and the upsert decides as always. A row that no key holds needs no guard.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg
from psycopg import errors

from apply.mapping.types import CompiledMapping
from apply.sink import Connection
from apply.sql_text import columns_sql, quote, target_sql

_LEAST_ROWS = 200
_BATCHES_MAX = 64
REST_BATCHES = 7
"""Not counted after one that updated rows: most likely the next ones do too."""
# COPY is held up by nothing that somebody alters by hand: bytes of one type are read as another one's,
# and without the key's index the same row comes twice. The upsert finds both. Whoever reads the
# table, if only no row of it, keeps it as it is until the end of the transaction.
_AS_EXPECTED = """
SELECT NOT EXISTS (SELECT FROM {table} LIMIT 0)
  AND NOT EXISTS (
    SELECT FROM pg_attribute s LEFT JOIN pg_attribute t
      ON t.attrelid = %(table)s::regclass AND t.attname = s.attname AND NOT t.attisdropped
    WHERE s.attrelid = %(stage)s::regclass AND s.attnum > 0 AND t.atttypid IS DISTINCT FROM s.atttypid)
  AND EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = %(table)s::regclass AND i.indisunique AND i.indimmediate AND i.indisvalid
      AND i.indpred IS NULL AND i.indexprs IS NULL AND %(key)s = (
        SELECT array_agg(a.attname::text ORDER BY a.attname)
        FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) AS k (number)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number))"""


class Straight:
    """Of one mapping; remembers how new the last batches were."""

    def __init__(self, compiled: CompiledMapping, stage: str) -> None:
        """`stage`: the temporary table of the upsert, whose columns are as they were when it was
        made."""
        table = target_sql(compiled.spec)
        self._copy = f"COPY {table} ({columns_sql(compiled.columns)}) FROM STDIN (FORMAT BINARY)"
        self._updated = "SELECT pg_stat_get_xact_tuples_updated(%s::regclass)"
        self._table = table
        self._as_expected = _AS_EXPECTED.format(table=table)
        key = sorted(column.name for column in compiled.key_columns)
        self._asked = {"table": table, "stage": f"pg_temp.{quote(stage)}", "key": key}
        self._new = self._rest = 0
        self._wanted: float = 1
        """Batches of new rows before a try: twice as many after each one that failed."""

    def pays(self, rows: int) -> bool:
        """Whether so many rows are worth a try."""
        return rows >= _LEAST_ROWS and self._new >= self._wanted

    def counts(self, rows: int) -> bool:
        """Whether to tell `upserted` about the next upsert, of so many rows."""
        if rows < _LEAST_ROWS:
            return False
        self._rest, counts = max(0, self._rest - 1), self._rest == 0
        return counts

    def updated(self, connection: Connection) -> int:
        """How many rows of the table were updated, for `upserted`; to ask before and after an upsert.
        What earlier transactions updated may be counted too."""
        [[updated]] = connection.execute(self._updated, [self._table]).fetchall()
        return int(updated)

    def upserted(self, rows: int, written: int, updated: int) -> None:
        """What the upsert did with so many rows: it wrote and updated so many."""
        self._new = self._new + 1 if written == rows and not updated else 0
        self._rest = REST_BATCHES if updated else 0

    def land(self, connection: Connection, pieces: Iterable[bytes], rows: int) -> bool:
        """Whether so many rows (a whole binary COPY) are in the table now; if not, none of them is.

        Raises what Postgres says of anything but a key that is taken.
        """
        if not self._is_as_expected(connection):
            self._failed()
            return False
        landed = False
        try:
            with connection.transaction():
                cursor = connection.cursor()
                with cursor.copy(self._copy.encode()) as copy:
                    for piece in pieces:
                        copy.write(piece)
                landed = cursor.rowcount == rows
                if not landed:
                    raise psycopg.Rollback  # a trigger has left rows out; the upsert finds out which
        # a column that is generated now comes as no column at all; the upsert says what it is
        except (errors.UniqueViolation, errors.InvalidColumnReference):
            landed = False
        except (errors.FeatureNotSupported, errors.WrongObjectType):
            self._wanted = float("inf")  # row security, or a view: COPY is no way into it
            return False
        if not landed:
            self._failed()
        return landed

    def _is_as_expected(self, connection: Connection) -> bool:
        [[found]] = connection.execute(self._as_expected.encode(), self._asked).fetchall()
        return bool(found)

    def _failed(self) -> None:
        self._new, self._wanted = 0, min(2 * self._wanted, _BATCHES_MAX)

"""Target tables and presence tables of mappings: created, widened by new columns, never rebuilt.

What would change the meaning of stored rows (a type, a key) is refused with what to do instead.
Runs in the caller's transaction; knows nothing of versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from apply.mapping.rules import table_columns
from apply.mapping.types import SYSTEM_COLUMNS, Column
from apply.sql_text import columns_sql, present_sql, quote, target_sql
from schemas.definitions.mapping import MappingSpec

Connection = psycopg.Connection[tuple[Any, ...]]

FILLFACTOR = (
    80  # room for updates of a row beside it; with the column order worth a third of the rate
)
_LONGEST_NAME = 63 - len("present_")
_WANTED = "gapless_wanted"
_NOT_NULL = frozenset(
    column.name for column in SYSTEM_COLUMNS if column.name not in ("deleted_at", "_began")
)


class TableRefused(Exception):
    """A table cannot hold this mapping's rows; `advice` says what to write or do instead."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


@dataclass(frozen=True, slots=True)
class _Found:
    """A column as the database has it."""

    kind: str
    collation: str


def create_table_sql(spec: MappingSpec) -> Iterator[str]:
    """The statements that make the tables of a mapping, for a database without them."""
    columns = table_columns(spec)
    keys = columns[: len(spec.key)]
    lines = ",\n  ".join(_column_sql(column, spec) for column in columns)
    yield (
        f"CREATE TABLE {target_sql(spec)} (\n  {lines},\n  PRIMARY KEY ({columns_sql(keys)})\n)"
        f" WITH (fillfactor = {FILLFACTOR})"
    )
    if "tenant_id" in spec.key and spec.absent != "keep":
        # A sweep looks at one tenant's rows; without this it would read the whole table.
        name = quote(f"{spec.table[:_LONGEST_NAME]}_tenant")
        yield f'CREATE INDEX {name} ON {target_sql(spec)} ("_partition_id")'
    yield from create_present_sql(spec)


def create_present_sql(spec: MappingSpec) -> Iterator[str]:
    """The presence table. It is logged: lost presence would look like absence and delete rows.

    The index is for the planner: it never has statistics of a snapshot that has just been listed,
    expects one row of it, and without an index compares every row with every listed key.
    """
    key_columns = table_columns(spec)[: len(spec.key)]
    keys = [_column_sql(column, spec) for column in key_columns]
    lines = ",\n  ".join(
        ["partition_id integer NOT NULL", 'snapshot text COLLATE "C" NOT NULL', *keys]
    )
    yield f"CREATE TABLE IF NOT EXISTS {present_sql(spec)} (\n  {lines}\n)"
    name = quote(f"listed_{spec.table}")
    yield (
        f"CREATE INDEX IF NOT EXISTS {name} ON {present_sql(spec)}"
        f" (partition_id, snapshot, {columns_sql(key_columns)})"
    )


def _column_sql(column: Column, spec: MappingSpec) -> str:
    text = column.pg_type.split("(")[0] in ("text", "char", "varchar")
    ordered = column.name in spec.key or column.name == "source_revision"
    # The guard and the fold compare texts byte by byte, whatever the database's language is.
    collate = ' COLLATE "C"' if text and ordered else ""
    needed = column.name in spec.key or column.name in _NOT_NULL
    return f"{quote(column.name)} {column.pg_type}{collate}{' NOT NULL' if needed else ''}"


def migrate_table(connection: Connection, spec: MappingSpec) -> list[str]:
    """Make the tables of a mapping or add the columns they lack; says what was done.

    Raises TableRefused, then nothing may be committed.
    """
    if len(spec.table.encode()) > _LONGEST_NAME:
        raise TableRefused(
            f"the table name {spec.table} is longer than {_LONGEST_NAME} bytes",
            "Write a shorter `table:`.",
        )
    have = _columns(connection, target_sql(spec))
    if have is None:
        for statement in create_table_sql(spec):
            connection.execute(statement.encode())
        return [f"table {spec.table} created"]
    _check_ours(connection, spec, have)
    wanted = _wanted(connection, spec)
    _check_types(spec, have, wanted)
    missing = [column for column in table_columns(spec) if column.name not in have]
    for column in missing:
        connection.execute(
            f"ALTER TABLE {target_sql(spec)} ADD COLUMN {_column_sql(column, spec)}".encode()
        )
    for statement in create_present_sql(spec):
        connection.execute(statement.encode())
    if not missing:
        return []
    return [f"table {spec.table} has new columns: {', '.join(column.name for column in missing)}"]


def _columns(connection: Connection, table: str) -> dict[str, _Found] | None:
    """Columns by name; None if there is no such table."""
    rows = connection.execute(
        """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(c.collname, '')
        FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
        WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
        """,
        (table,),
    ).fetchall()
    return {name: _Found(kind, collation) for name, kind, collation in rows} or None


def _wanted(connection: Connection, spec: MappingSpec) -> dict[str, _Found]:
    """The mapping's columns as this database would have them."""
    columns = ", ".join(_column_sql(column, spec) for column in table_columns(spec))
    connection.execute(f"CREATE TEMPORARY TABLE {_WANTED} ({columns})".encode())
    found = _columns(connection, f"pg_temp.{_WANTED}")
    connection.execute(f"DROP TABLE pg_temp.{_WANTED}".encode())
    return found or {}


def _check_ours(connection: Connection, spec: MappingSpec, have: dict[str, _Found]) -> None:
    if not {column.name for column in SYSTEM_COLUMNS} <= have.keys():
        raise TableRefused(
            f"the table {spec.table} exists and was not made by Gapless",
            "Write another `table:`, or rename that table.",
        )
    row = connection.execute(
        """
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
        """,
        (target_sql(spec),),
    ).fetchone()
    key = [] if row is None or row[0] is None else list(row[0])
    if key != list(spec.key):
        raise TableRefused(
            f"the table {spec.table} has the key {', '.join(key)}, this mapping {', '.join(spec.key)}",
            "Another key is another table: write a new `table:`, then `gapless replay` fills it.",
        )


def _check_types(spec: MappingSpec, have: dict[str, _Found], wanted: dict[str, _Found]) -> None:
    for name, want in wanted.items():
        found = have.get(name)
        if found is None and name == "source_revision":
            raise TableRefused(
                f"the rows of {spec.table} have no revision, and this mapping declares one",
                "Write a new `table:`, then `gapless replay` fills it.",
            )
        if found is not None and found != want:
            kinds = [
                one.kind + (f" COLLATE {one.collation}" if one.collation == "C" else "")
                for one in (found, want)
            ]
            raise TableRefused(
                f"column {name} of {spec.table} is {kinds[0]}, this mapping says {kinds[1]}",
                "Give the column a new name, or write a new `table:`; then `gapless replay` fills it.",
            )
    if "source_revision" in have and "source_revision" not in wanted:
        raise TableRefused(
            f"the rows of {spec.table} have a revision, and this mapping declares none",
            "Write a new `table:`, then `gapless replay` fills it.",
        )

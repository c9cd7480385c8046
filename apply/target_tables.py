"""Target, child and presence tables of mappings: created, widened by new columns, never rebuilt.

What would change the meaning of stored rows (a type, a key) is refused with the command that builds
the table anew. Columns and child tables that a mapping no longer names stay. Runs in the caller's
transaction; knows nothing of versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from apply.mapping.rules import compile_child, table_columns
from apply.mapping.types import CHILD_SYSTEM_COLUMNS, SYSTEM_COLUMNS, Column
from apply.sql_text import child_sql, columns_sql, present_sql, quote, target_sql
from schemas.definitions.mapping import POSITION, ChildSpec, MappingSpec

Connection = psycopg.Connection[tuple[Any, ...]]

FILLFACTOR = (
    80  # room for updates of a row beside it; with the column order worth a third of the rate
)
_LONGEST_NAME = 63 - len("present_")
_WANTED = "gapless_wanted"
_NULLABLE = frozenset(("deleted_at", "_began"))
_CHILD_SYSTEM = (Column(POSITION, "integer", "int4"), *CHILD_SYSTEM_COLUMNS)


class TableRefused(Exception):
    """A table cannot hold this mapping's rows; `advice` says what to write or do instead.

    `key`: the key of the definition that it is about.
    """

    def __init__(self, message: str, advice: str, key: str = "version") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.key = key


@dataclass(frozen=True, slots=True)
class Found:
    """A column as the database has it."""

    kind: str
    collation: str

    def __str__(self) -> str:
        return self.kind + (f" COLLATE {self.collation}" if self.collation == "C" else "")


@dataclass(frozen=True, slots=True)
class Differing:
    """A column that is another than the mapping of its table would make it."""

    table: str
    column: str
    found: Found
    wanted: Found


@dataclass(frozen=True, slots=True)
class _Layout:
    """One table as a mapping wants it: `sql` its quoted name, `key` its primary key's columns.

    `system`: what marks a table as one of Gapless. `what` and `place`: whose it is, and the key of
    the definition that says so.
    """

    mapping: str
    table: str
    sql: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    system: tuple[Column, ...]
    what: str = "mapping"
    place: str = "version"

    def column_sql(self, column: Column) -> str:
        """A column as DDL writes it."""
        text = column.pg_type.split("(")[0] in ("text", "char", "varchar")
        ordered = column.name in self.key or column.name == "source_revision"
        # The guard and the fold compare texts byte by byte, whatever the database's language is.
        collate = ' COLLATE "C"' if text and ordered else ""
        system = column in self.system and column.name not in _NULLABLE
        needed = system or column.name in self.key
        return f"{quote(column.name)} {column.pg_type}{collate}{' NOT NULL' if needed else ''}"

    def create_sql(self) -> str:
        """The statement that makes it."""
        lines = ",\n  ".join(self.column_sql(column) for column in self.columns)
        key = ", ".join(map(quote, self.key))
        return (
            f"CREATE TABLE {self.sql} (\n  {lines},\n  PRIMARY KEY ({key})\n)"
            f" WITH (fillfactor = {FILLFACTOR})"
        )

    @property
    def rebuild(self) -> str:
        """What does that which is refused here."""
        return f"`gapless replay {self.mapping} --shadow` builds it anew from the log."


def _target(spec: MappingSpec) -> _Layout:
    columns = table_columns(spec)
    return _Layout(spec.name, spec.table, target_sql(spec), columns, spec.key, SYSTEM_COLUMNS)


def _child(spec: MappingSpec, child: ChildSpec) -> _Layout:
    compiled = compile_child(spec, child)
    key = tuple(column.name for column in compiled.key_columns)
    return _Layout(
        spec.name, child.table, child_sql(spec, child), compiled.columns, key, _CHILD_SYSTEM,
        f"child {child.name}", child.name,
    )  # fmt: skip


def create_table_sql(spec: MappingSpec) -> Iterator[str]:
    """The statements that make the tables of a mapping, for a database without them."""
    yield from _create_target_sql(spec)
    for child in spec.children.values():
        yield _child(spec, child).create_sql()


def _create_target_sql(spec: MappingSpec) -> Iterator[str]:
    yield _target(spec).create_sql()
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
    layout = _target(spec)
    key_columns = layout.columns[: len(spec.key)]
    keys = [layout.column_sql(column) for column in key_columns]
    lines = ",\n  ".join(
        ["partition_id integer NOT NULL", 'snapshot text COLLATE "C" NOT NULL', *keys]
    )
    yield f"CREATE TABLE IF NOT EXISTS {present_sql(spec)} (\n  {lines}\n)"
    name = quote(f"listed_{spec.table}")
    yield (
        f"CREATE INDEX IF NOT EXISTS {name} ON {present_sql(spec)}"
        f" (partition_id, snapshot, {columns_sql(key_columns)})"
    )


def migrate_table(connection: Connection, spec: MappingSpec) -> list[str]:
    """Make the tables of a mapping or add the columns they lack; says what was done.

    Raises TableRefused, then nothing may be committed.
    """
    if len(spec.table.encode()) > _LONGEST_NAME:
        raise TableRefused(
            f"the table name {spec.table} is longer than {_LONGEST_NAME} bytes",
            "Write a shorter `table:`.",
            "table",
        )
    layout = _target(spec)
    is_new = _columns(connection, layout.sql) is None
    if is_new:
        for statement in _create_target_sql(spec):
            connection.execute(statement.encode())
        done = [f"table {spec.table} created"]
    else:
        done = _widen(connection, layout)
        for statement in create_present_sql(spec):
            connection.execute(statement.encode())
    for child in spec.children.values():
        done += _migrate_child(connection, spec, _child(spec, child), is_new=is_new)
    return done


def _migrate_child(
    connection: Connection, spec: MappingSpec, layout: _Layout, *, is_new: bool
) -> list[str]:
    if _columns(connection, layout.sql) is not None:
        return _widen(connection, layout)
    connection.execute(layout.create_sql().encode())
    later = (
        "" if is_new else f"; `gapless replay {spec.name}` fills it for the rows of {spec.table}"
    )
    return [f"table {layout.table} created{later}"]


def differing(connection: Connection, spec: MappingSpec) -> list[Differing]:
    """The columns of a mapping's tables that are there, but are others than it declares."""
    found = []
    for layout in (_target(spec), *(_child(spec, child) for child in spec.children.values())):
        have = _columns(connection, layout.sql) or {}
        for name, want in _wanted(connection, layout).items():
            if have.get(name, want) != want:
                found.append(Differing(layout.table, name, have[name], want))
    return found


def _widen(connection: Connection, layout: _Layout) -> list[str]:
    """Add the columns that a table lacks. Raises TableRefused for what cannot be added."""
    have = _columns(connection, layout.sql) or {}
    _check_ours(connection, layout, have)
    _check_types(layout, have, _wanted(connection, layout))
    missing = [column for column in layout.columns if column.name not in have]
    for column in missing:
        statement = f"ALTER TABLE {layout.sql} ADD COLUMN {layout.column_sql(column)}"
        connection.execute(statement.encode())
    if not missing:
        return []
    names = ", ".join(column.name for column in missing)
    return [f"table {layout.table} has new columns: {names}"]


def _columns(connection: Connection, table: str) -> dict[str, Found] | None:
    """Columns by name; None if there is no such table."""
    rows = connection.execute(
        """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(c.collname, '')
        FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
        WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
        """,
        (table,),
    ).fetchall()
    return {name: Found(kind, collation) for name, kind, collation in rows} or None


def _wanted(connection: Connection, layout: _Layout) -> dict[str, Found]:
    """The mapping's columns as this database would have them."""
    columns = ", ".join(layout.column_sql(column) for column in layout.columns)
    connection.execute(f"CREATE TEMPORARY TABLE {_WANTED} ({columns})".encode())
    found = _columns(connection, f"pg_temp.{_WANTED}")
    connection.execute(f"DROP TABLE pg_temp.{_WANTED}".encode())
    return found or {}


def _check_ours(connection: Connection, layout: _Layout, have: dict[str, Found]) -> None:
    ours = {column.name for column in layout.system}
    other_kind = {column.name for column in SYSTEM_COLUMNS if column.name[0] == "_"} - ours
    if not ours <= have.keys() or other_kind & have.keys():
        raise TableRefused(
            f"the table {layout.table} exists and was not made by Gapless for this {layout.what}",
            "Write another `table:`, or rename that table.",
            "table" if layout.place == "version" else layout.place,
        )
    row = connection.execute(
        """
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
        """,
        (layout.sql,),
    ).fetchone()
    key = [] if row is None or row[0] is None else list(row[0])
    if key != list(layout.key):
        raise TableRefused(
            f"the table {layout.table} has the key {', '.join(key)}, this {layout.what}"
            f" {', '.join(layout.key)}",
            f"Another key is another table: {layout.rebuild}",
            layout.place,
        )


def _check_types(layout: _Layout, have: dict[str, Found], wanted: dict[str, Found]) -> None:
    if "source_revision" in wanted and "source_revision" not in have:
        raise TableRefused(
            f"the rows of {layout.table} have no revision, and this mapping declares one",
            f"Their order would change: {layout.rebuild}",
        )
    if "source_revision" in have and "source_revision" not in wanted:
        raise TableRefused(
            f"the rows of {layout.table} have a revision, and this mapping declares none",
            f"Their order would change: {layout.rebuild}",
        )
    for name, want in wanted.items():
        found = have.get(name)
        if found is not None and found != want:
            raise TableRefused(
                f"column {name} of {layout.table} is {found}, this {layout.what} says {want}",
                f"Give the column a new name, or keep its name and build the table anew:"
                f" `gapless replay {layout.mapping} --shadow`.",
                layout.place,
            )

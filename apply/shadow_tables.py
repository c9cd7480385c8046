"""The tables of a mapping beside the live ones: made, given what the live ones have, exchanged, dropped.

They have the names of the live tables in a schema of their own, so indexes and constraints keep
their names and a swap moves tables, nothing else. What cannot be carried over is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from apply.mapping.types import SYSTEM_COLUMNS
from apply.queries import load
from apply.replay_report import ReplayRefused
from apply.sink import Connection
from apply.sql_text import quote
from apply.target_tables import create_table_sql
from schemas.definitions.mapping import MappingSpec

_SQL = load("shadow")
BESIDE = "gapless_beside"
_HOP = "gapless_hop"
_OURS = frozenset(column.name for column in SYSTEM_COLUMNS) | {"source_revision"}


def beside(spec: MappingSpec) -> MappingSpec:
    """The same mapping with its tables beside the live ones."""
    return replace(spec, schema=BESIDE)


def tables_of(connection: Connection, versions: Sequence[int]) -> tuple[str, ...]:
    """All tables with rows of these versions of a mapping, its own first."""
    rows = connection.execute(_SQL["tables"], {"versions": list(versions)})
    return tuple(name for (name,) in rows)


def make(connection: Connection, spec: MappingSpec) -> None:
    """Make empty tables beside the live ones. In the caller's transaction."""
    for statement in create_table_sql(beside(spec)):
        connection.execute(statement.encode())


@dataclass(frozen=True, slots=True)
class _Pair:
    """One live table and the one beside it."""

    live: str
    new: str
    oid: int
    new_oid: int
    owner: str
    options: list[str]
    comment: str | None
    new_comment: str | None
    columns: dict[str, tuple[Any, ...]]
    new_columns: dict[str, tuple[Any, ...]]


def _pairs(connection: Connection, tables: Sequence[str]) -> list[_Pair]:
    found = []
    for name in tables:
        live, new = f"public.{quote(name)}", f"{BESIDE}.{quote(name)}"
        old = connection.execute(_SQL["table"], {"table": live}).fetchone()
        ours = connection.execute(_SQL["table"], {"table": new}).fetchone()
        if old is None or ours is None:
            continue  # a table that only one of the versions has
        columns = [
            {row[0]: row for row in connection.execute(_SQL["columns"], {"oid": oid})}
            for oid in (old[0], ours[0])
        ]
        found.append(_Pair(live, new, old[0], ours[0], old[1], old[3], old[4], ours[4], *columns))
    return found


def _obstacles(connection: Connection, spec: MappingSpec, tables: Sequence[str]) -> list[str]:
    known = {
        name for (name,) in connection.execute(_SQL["columns_of_versions"], {"mapping": spec.name})
    }
    known |= _OURS | set(spec.columns)
    found = []
    for table in tables:
        row = connection.execute(_SQL["table"], {"table": f"public.{quote(table)}"}).fetchone()
        if row is None:
            continue
        at = {"oid": row[0]}
        if row[2]:
            found.append("row level security")
        found += [one[0] for one in connection.execute(_SQL["obstacles"], at)]
        for name, _, generated, *_ in connection.execute(_SQL["columns"], at):
            if table == spec.table and name not in known and not generated:
                found.append(f"column {name}, which no version of the mapping fills")
    return found


def refuse_obstacles(connection: Connection, spec: MappingSpec, tables: Sequence[str]) -> None:
    """Raises ReplayRefused, naming everything on the live tables that a swap would leave behind."""
    found = _obstacles(connection, spec, tables)
    if found:
        raise ReplayRefused(
            f"the table {spec.table} has what cannot be carried over to another one: "
            f"{'; '.join(found)}. Drop it before, and make it again after the swap"
        )


def carry(connection: Connection, tables: Sequence[str], *, indexes: bool) -> list[str]:
    """Give the tables beside what the live ones have and they lack; says what.

    `indexes`: also plain ones, which are quicker made once the rows are there. Raises ReplayRefused
    for what does not fit the new table.
    """
    done = []
    with connection.transaction():
        connection.execute("SET LOCAL search_path = ''")
        for pair in _pairs(connection, tables):
            for said, statement in _lacking(connection, pair, indexes=indexes):
                try:
                    with connection.transaction():
                        connection.execute(statement.encode())
                except psycopg.Error as error:
                    if error.sqlstate is None or error.sqlstate[:2] in ("08", "53", "57", "55"):
                        raise
                    raise ReplayRefused(
                        f"{said} of {pair.live} does not fit the new table "
                        f"({error.diag.message_primary}): drop it before, and make it again after "
                        "the swap"
                    ) from error
                done.append(said)
    return done


def _lacking(connection: Connection, pair: _Pair, *, indexes: bool) -> list[tuple[str, str]]:
    """(what, the statement that makes it), in an order that works."""
    found = []
    for name, kind, generated, expression, _ in pair.columns.values():
        if generated and name not in pair.new_columns:
            stored = "STORED" if generated == "s" else "VIRTUAL"
            statement = f"ALTER TABLE {pair.new} ADD COLUMN {quote(name)} {kind}"
            statement += f" GENERATED ALWAYS AS ({expression}) {stored}"
            found.append((f"generated column {name}", statement))
    have = {row[0] for row in connection.execute(_SQL["constraints"], {"oid": pair.new_oid})}
    for name, text in connection.execute(_SQL["constraints"], {"oid": pair.oid}).fetchall():
        if name not in have:
            statement = f"ALTER TABLE {pair.new} ADD CONSTRAINT {quote(name)} {text}"
            found.append((f"constraint {name}", statement))
    have = {row[0] for row in connection.execute(_SQL["indexes"], {"oid": pair.new_oid})}
    for name, text, unique in connection.execute(_SQL["indexes"], {"oid": pair.oid}).fetchall():
        if name not in have and (unique or indexes):
            [(plain,)] = connection.execute("SELECT %s::regclass::text", [pair.live]).fetchall()
            found.append((f"index {name}", text.replace(f" ON {plain} ", f" ON {pair.new} ", 1)))
    return found + _comments(pair) + _rights(connection, pair)


def _rights(connection: Connection, pair: _Pair) -> list[tuple[str, str]]:
    [(owner, options)] = connection.execute(
        "SELECT pg_get_userbyid(relowner), coalesce(reloptions, '{}') FROM pg_class WHERE oid = %s",
        [pair.new_oid],
    ).fetchall()
    found = []
    lacking = [one for one in pair.options if one not in options]
    if lacking:
        statement = f"ALTER TABLE {pair.new} SET ({', '.join(lacking)})"
        found.append((f"options {', '.join(lacking)}", statement))
    have = set(connection.execute(_SQL["grants"], {"oid": pair.new_oid}).fetchall())
    for one in connection.execute(_SQL["grants"], {"oid": pair.oid}).fetchall():
        column, privilege, grantee, grantable = one
        if one in have or (column is not None and column not in pair.new_columns):
            continue
        whom = grantee if grantee == "PUBLIC" else quote(grantee)
        on = f"({quote(column)}) " if column is not None else ""
        statement = f"GRANT {privilege} {on}ON {pair.new} TO {whom}"
        statement += " WITH GRANT OPTION" if grantable else ""
        found.append((f"{privilege} for {grantee}", statement))
    if owner != pair.owner:  # last: afterwards the table may be another's
        statement = f"ALTER TABLE {pair.new} OWNER TO {quote(pair.owner)}"
        found.append((f"owner {pair.owner}", statement))
    return found


def _comments(pair: _Pair) -> list[tuple[str, str]]:
    found = []
    if pair.comment is not None and pair.comment != pair.new_comment:
        found.append(("comment", f"COMMENT ON TABLE {pair.new} IS {_literal(pair.comment)}"))
    for name, *_, comment in pair.columns.values():
        if comment is not None and name in pair.new_columns and pair.new_columns[name][4] is None:
            what = f"{pair.new}.{quote(name)}"
            said = f"comment of column {name}"
            found.append((said, f"COMMENT ON COLUMN {what} IS {_literal(comment)}"))
    return found


def _literal(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def exchange(connection: Connection, tables: Sequence[str]) -> list[str]:
    """The tables beside become the live ones and the live ones stand beside, in this transaction.

    Views over the live tables are made to read the new ones; returns their names. Raises
    ReplayRefused where a view would become another, psycopg.errors.LockNotAvailable where somebody
    reads.
    """
    connection.execute("SET LOCAL search_path = ''")
    views = []
    for name in tables:
        live = connection.execute(_SQL["table"], {"table": f"public.{quote(name)}"}).fetchone()
        if live is not None:
            views += connection.execute(_SQL["views"], {"oid": live[0]}).fetchall()
    places = [("public", name) for name in tables]
    places += [("gapless", f"present_{name}") for name in tables]
    _move(connection, [(BESIDE, name, _HOP) for _, name in places])
    _move(connection, [(schema, name, BESIDE) for schema, name in places])
    _move(connection, [(_HOP, name, schema) for schema, name in places])
    for view, text, options in views:
        having = f" WITH ({', '.join(options)})" if options else ""
        try:
            with connection.transaction():
                connection.execute(f"CREATE OR REPLACE VIEW {view}{having} AS {text}".encode())
        except psycopg.Error as error:
            if error.sqlstate == "55P03":
                raise
            raise ReplayRefused(
                f"the view {view} cannot read the new table ({error.diag.message_primary}): drop it "
                "before, and make it again after the swap"
            ) from error
    return [view for view, _, _ in views]


def _move(connection: Connection, moves: list[tuple[str, str, str]]) -> None:
    for schema, name, to in moves:
        connection.execute(f"ALTER TABLE IF EXISTS {schema}.{quote(name)} SET SCHEMA {to}".encode())


def drop(connection: Connection, tables: Sequence[str]) -> None:
    """Drop the tables beside."""
    for name in tables:
        for table in (name, f"present_{name}"):
            connection.execute(f"DROP TABLE IF EXISTS {BESIDE}.{quote(table)}".encode())

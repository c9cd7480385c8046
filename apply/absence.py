"""Deletes by absence: the SQL that finds and clears rows which complete listings lacked.

A row is cleared only if it was last observed below the barrier and no listing that counts, and no
change since, has shown its key. It stays as a dead row without a revision, at the order "began".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from apply.changes import Change, change, key_text, shown_not, wanted_type
from apply.children import bereave_sql
from apply.mapping.readable import key_number
from apply.mapping.types import CompiledMapping
from apply.sink import Connection
from apply.sql_text import columns_sql, equal_sql, present_sql, target_sql
from schemas.definitions.column_types import ColumnType
from schemas.definitions.mapping import RevisionKind

_LIVING = 'NOT t."_deleted"'
_OLDER = (
    't."_partition_id" = %(partition_id)s'
    ' AND (t."_generation", t."_offset") < (%(generation)s::int2, %(barrier)s::int8)'
)
_CLEARED = (
    't."_partition_id" = %(partition_id)s AND t."_deleted" AND t."_generation" = %(generation)s::int2'
    ' AND t."_offset" = %(barrier)s::int8 AND t."_index" = 0 AND t."_began" = %(barrier)s::int8'
)


@dataclass(frozen=True, slots=True)
class Absence:
    """Where a sweep looks: rows of one partition id below (generation, barrier), not shown in
    any of `snapshots`."""

    partition_id_no: int
    generation: int
    barrier: int
    snapshots: Sequence[str]
    source_epoch: int
    at: datetime

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "partition_id": self.partition_id_no,
            "generation": self.generation,
            "barrier": self.barrier,
            "snapshots": list(self.snapshots),
            "source_epoch": self.source_epoch,
            "at": self.at,
        }


def _absent(compiled: CompiledMapping, which: str) -> str:
    """Keys of the older rows that no snapshot listed; `which`: a condition on rows `t`.

    A difference of sets, not an anti-join: the planner has no statistics of a snapshot that has
    just been listed, expects one key in it, and would compare every row with every key.
    """
    return (
        f"SELECT {columns_sql(compiled.key_columns, 't')} FROM {target_sql(compiled.spec)} t"
        f" WHERE ({which}) AND {_OLDER} EXCEPT"
        f" SELECT {columns_sql(compiled.key_columns, 'p')} FROM {present_sql(compiled.spec)} p"
        " WHERE p.partition_id = %(partition_id)s AND p.snapshot = ANY(%(snapshots)s)"
    )


def share_absent(
    connection: Connection, compiled: CompiledMapping, where: Absence
) -> tuple[int, int]:
    """How many living rows would be deleted, and how many there are."""
    statement = (
        f"SELECT (SELECT count(*) FROM ({_absent(compiled, _LIVING)}) a),"
        f" (SELECT count(*) FROM {target_sql(compiled.spec)} t"
        f' WHERE t."_partition_id" = %(partition_id)s AND {_LIVING})'
    )
    row = connection.execute(statement.encode(), where.parameters).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def sweep(
    connection: Connection, compiled: CompiledMapping, where: Absence
) -> tuple[int, list[Change]]:
    """Clear the absent rows. Returns how many living ones were deleted, and their events.

    Dead rows lose their revision too: should the entity come back, any revision is news. Rows of
    child tables go with their parents.
    """
    update, keys = _clear(compiled), columns_sql(compiled.key_columns)
    if wanted_type(compiled, "deleted") is None:
        counted = f"WITH cleared AS ({update} RETURNING old.was_deleted)"
        counted += " SELECT count(*) FILTER (WHERE NOT was_deleted) FROM cleared"
        row = connection.execute(counted.encode(), where.parameters).fetchone()
        _bereave(connection, compiled, where)
        return (0 if row is None else int(row[0])), []
    told = (
        f"WITH cleared AS ({update} RETURNING old.was_deleted, t.*)"
        f" SELECT {keys}, (to_jsonb(c) - %(hidden)s::text[])::text FROM cleared c"
        f" WHERE NOT was_deleted ORDER BY {keys}"
    )
    hidden = sorted({*shown_not(compiled), "was_deleted"})
    found = connection.execute(told.encode(), {**where.parameters, "hidden": hidden})
    observed = (where.source_epoch, "", where.generation, where.partition_id_no, where.barrier, 0)
    types = [compiled.spec.columns[name].type for name in compiled.spec.key]
    changes = [
        change(compiled, key_text(map(_plain, types, key)), "deleted", observed, state)
        for *key, state in found
    ]
    _bereave(connection, compiled, where)
    return len(changes), changes


def _bereave(connection: Connection, compiled: CompiledMapping, where: Absence) -> None:
    for statement in bereave_sql(compiled, _CLEARED):
        connection.execute(statement.encode(), where.parameters)


def _clear(compiled: CompiledMapping) -> str:
    """The update, without what it returns; locks in the order of keys, as every writer does."""
    table, keys = target_sql(compiled.spec), columns_sql(compiled.key_columns, "t")
    dated = compiled.spec.revision.kind is not RevisionKind.NONE
    to_clear = _LIVING + (" OR t.source_revision IS NOT NULL" if dated else "")
    return (
        f'WITH old AS (SELECT {keys}, t."_deleted" AS was_deleted FROM ({_absent(compiled, to_clear)}) a'
        f" JOIN {table} t ON {equal_sql(compiled, 'a', 't')}"
        f" WHERE ({to_clear}) AND {_OLDER} ORDER BY {keys} FOR UPDATE OF t)"
        f" UPDATE {table} t SET deleted_at = coalesce(t.deleted_at, %(at)s),"
        + (" source_revision = NULL," if dated else "")
        + ' "_deleted" = true, "_generation" = %(generation)s, "_offset" = %(barrier)s, "_index" = 0,'
        ' "_began" = %(barrier)s, "_source_epoch" = greatest(t."_source_epoch", %(source_epoch)s::int2)'
        f" FROM old WHERE {equal_sql(compiled, 'old', 't')}"
    )


def forget_presence(
    connection: Connection,
    compiled: CompiledMapping,
    partition_id_no: int,
    keep: Sequence[str],
    *,
    only: str | None = None,
) -> None:
    """Drop presence that no sweep will ask for again: of all snapshots but `keep`, or of one."""
    statement = (
        f"DELETE FROM {present_sql(compiled.spec)} WHERE partition_id = %(number)s"
        " AND snapshot <> ALL(%(keep)s) AND (%(only)s::text IS NULL OR snapshot = %(only)s)"
    )
    values = {"number": partition_id_no, "keep": list(keep), "only": only}
    connection.execute(statement.encode(), values)


def _plain(of: ColumnType, value: Any) -> Any:
    """A key's value as `readable_key` writes it, so that one entity has one key in all events."""
    if isinstance(value, Decimal):
        return key_number(of, value)
    if of.name == "char":
        return value.rstrip(" ")  # Postgres fills it up
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value if isinstance(value, int | str) else str(value)

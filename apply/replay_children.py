"""Holds child tables that a replay has filled against the live ones: what comes, changes and goes.

Only below rows that have a new state; the children of rows that go are told with these. Reads only.
"""

from __future__ import annotations

from apply.children import parent_equal_sql
from apply.mapping.types import CompiledChild
from apply.replay_diff import READ, Sides, column_types
from apply.replay_report import ChildDiff, Diff
from apply.sink import Connection
from apply.sql_text import child_sql, quote
from schemas.definitions.mapping import MappingSpec


def compare_children(connection: Connection, of: Sides, live: MappingSpec, diff: Diff) -> None:
    """Elements of every child table of the new version, by whether the live one has them."""
    for child in of.compiled.children:
        diff.children[child.spec.table] = _compared(connection, of, live, child)


def _compared(
    connection: Connection, of: Sides, live: MappingSpec, child: CompiledChild
) -> ChildDiff:
    new_table, live_table = child_sql(of.compiled.spec, child.spec), child_sql(live, child.spec)
    new, old = column_types(connection, new_table), column_types(connection, live_table)
    parents = parent_equal_sql(of.compiled, child, "c", "excluded")
    comes = (
        f"SELECT c.* FROM {new_table} c JOIN {of.new} excluded ON {parents}"
        f" LEFT JOIN {of.live} t ON {of.same_key} {READ}"
        f' WHERE t."_partition_id" IS NULL OR t."_offset" < e.end_at AND {of.counts}'
    )
    keys = [column.name for column in child.key_columns]
    if not all(name in old for name in keys):
        row = connection.execute(f"SELECT count(*) FROM ({comes}) n".encode()).fetchone()
        return ChildDiff(added=row[0] if row else 0)

    def pair(name: str) -> tuple[str, str]:
        cast = "" if new[name] == old[name] else "::text"
        return f"n.{quote(name)}{cast}", f"o.{quote(name)}{cast}"

    stands = (
        f"SELECT c.* FROM {live_table} c JOIN {of.live} t ON {parent_equal_sql(of.compiled, child, 'c', 't')}"
        f" JOIN {of.new} excluded ON {of.same_key} {READ}"
        f' WHERE t."_offset" < e.end_at AND {of.counts}'
    )
    same = " AND ".join(" = ".join(pair(name)) for name in keys)
    others = [name for name in child.spec.columns if name not in keys]
    differs = " OR ".join(
        " IS DISTINCT FROM ".join(pair(name)) if name in old else f"n.{quote(name)} IS NOT NULL"
        for name in others
    )
    there, was = 'n."_offset" IS NOT NULL', 'o."_offset" IS NOT NULL'
    row = connection.execute(
        (
            f"SELECT count(*) FILTER (WHERE NOT ({was})),"
            f" count(*) FILTER (WHERE {there} AND {was} AND ({differs or 'false'})),"
            f" count(*) FILTER (WHERE NOT ({there}))"
            f" FROM ({comes}) n FULL JOIN ({stands}) o ON {same}"
        ).encode()
    ).fetchone()
    assert row is not None
    return ChildDiff(*row)

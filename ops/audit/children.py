"""Does every row of a child table belong to the very observation that its parent's row is of?

Asked of Postgres itself. Together with the lineage of the parents this proves where the children come
from, and that no set was left behind by a newer, beaten, deleted or swept one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from ops.audit.findings import Findings
from ops.audit.sink import SinkSnapshot
from schemas.definitions.mapping import PARENT_PREFIX, POSITION

_DEFINED = """
SELECT v.mapping || ' v' || v.version, v.table_name, ARRAY(SELECT jsonb_array_elements_text(
  v.definition->'key')), c.value->>'table'
FROM gapless.mapping_version v, jsonb_each(v.definition->'children') c
WHERE v.state = 'live' ORDER BY v.id, 4
"""

_OF_ANOTHER = """
SELECT p.partition, p.text, c._generation, c._offset, c._index, c._mapping_version,
  CASE WHEN t._partition_id IS NULL THEN 'there is no such row'
       WHEN t._deleted THEN 'that row is deleted'
       ELSE 'that row is of another observation' END
FROM {child} c
LEFT JOIN {parent} t ON {same_key}
LEFT JOIN gapless.partition_id p ON p.id = c._partition_id
WHERE t._deleted IS DISTINCT FROM false
  OR (c._generation, c._partition_id, c._offset, c._index, c._mapping_version)
    IS DISTINCT FROM (t._generation, t._partition_id, t._offset, t._index, t._mapping_version)
ORDER BY p.partition, c._offset, c._index
"""

# Positions are the indices of a list, so a set without a hole ends at its number.
_WITH_HOLES = """
SELECT p.partition, p.text, min(c._offset), min(c._index), max(c.{position}) + 1 - count(*)
FROM {child} c LEFT JOIN gapless.partition_id p ON p.id = c._partition_id
GROUP BY p.partition, p.text, {parent_key} HAVING count(*) <> max(c.{position}) + 1
ORDER BY 1, 3, 4
"""

_COUNT = "SELECT count(*) FROM {child}"


@dataclass(frozen=True, slots=True)
class ChildTable:
    """One child table of a live mapping version; `mapping` names both."""

    mapping: str
    parent: str
    key: tuple[str, ...]
    table: str


def child_tables(sink: SinkSnapshot) -> Iterator[ChildTable]:
    """The child tables of all live mapping versions."""
    for mapping, parent, key, table in sink.rows(sql.SQL(_DEFINED).format()):
        yield ChildTable(mapping, parent, tuple(key), table)


def judge_children(sink: SinkSnapshot, one: ChildTable, findings: Findings) -> int:
    """Checks every row of a child table; returns how many there are."""
    child = sql.Identifier("public", one.table)
    key = [(sql.Identifier(PARENT_PREFIX + name), sql.Identifier(name)) for name in one.key]
    same_key = sql.SQL(" AND ").join(sql.SQL("c.{} = t.{}").format(*pair) for pair in key)
    of_another = sql.SQL(_OF_ANOTHER).format(
        child=child, parent=sql.Identifier("public", one.parent), same_key=same_key
    )
    for partition, owner, generation, offset, index, mapping_version, says in sink.rows(of_another):
        findings.add(
            "child_of_another",
            f"a row of {one.table}, generation {generation}, mapping version {mapping_version},"
            f" names a row of {one.parent}: {says}",
            partition=partition,
            offset=offset,
            index=index,
            partition_id=owner,
            mapping=one.mapping,
        )
    with_holes = sql.SQL(_WITH_HOLES).format(
        child=child,
        position=sql.Identifier(POSITION),
        parent_key=sql.SQL(", ").join(sql.SQL("c.{}").format(own) for own, _ in key),
    )
    for partition, owner, offset, index, missing in sink.rows(with_holes):
        findings.add(
            "child_missing",
            f"of the rows of {one.table} that one record became, {missing} are not there",
            partition=partition,
            offset=offset,
            index=index,
            partition_id=owner,
            mapping=one.mapping,
        )
    return sum(int(row[0]) for row in sink.rows(sql.SQL(_COUNT).format(child=child)))

"""Does every row of a target table name an applied record of the log? Asked of Postgres itself.

The ledger rows that this rests on are compared with the log elsewhere. A row that was deleted by
absence names the begin mark of its snapshot instead of a record.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from ops.audit.facts import Version
from ops.audit.findings import Findings
from ops.audit.sink import SinkSnapshot

_COUNT = "SELECT count(*) FROM {table}"

# A part of a page does not say where its indices begin: the parts before it do.
_WITHOUT_RECORD = """
SELECT p.partition, p.text, t._generation, t._offset, t._index, t._mapping_version,
  CASE WHEN l."offset" IS NULL THEN 'no ledger row at its offset'
       WHEN byte.outcome IS NULL THEN 'the page has no such record'
       ELSE 'its record has outcome ' || byte.outcome END
FROM {table} t
LEFT JOIN gapless.partition_id p ON p.id = t._partition_id
LEFT JOIN gapless.page_ledger l ON l.partition = p.partition AND l.generation = t._generation
  AND l."offset" = t._offset AND l.mapping_version = t._mapping_version
LEFT JOIN LATERAL ({first_index}) first ON true
LEFT JOIN LATERAL ({outcome}) byte ON true
WHERE byte.outcome IS DISTINCT FROM 1
  AND NOT (t._deleted AND EXISTS (
    SELECT 1 FROM gapless.snapshot s WHERE s.partition_id = t._partition_id
      AND s.generation = t._generation AND t._offset IN (s.began, s.barrier)))
  AND NOT EXISTS (
    SELECT 1 FROM gapless.page_ledger l
    LEFT JOIN LATERAL ({first_index}) first ON true
    LEFT JOIN LATERAL ({outcome}) byte ON true
    WHERE l.partition = p.partition AND l.generation = t._generation
      AND l."offset" = t._offset AND l.mapping_version = ANY(%(versions)s) AND byte.outcome = 1)
  AND NOT (l."offset" IS NULL AND EXISTS (
    SELECT 1 FROM gapless.page_ledger r WHERE r.partition = p.partition
      AND r.generation = t._generation AND r.original_offset = t._offset
      AND r."offset" > t._offset AND r.mapping_version = ANY(%(versions)s)))
ORDER BY p.partition, t._offset, t._index
"""

# A part of a page does not say where its indices begin: the parts before it do.
_FIRST_INDEX = """
SELECT CASE WHEN l.part = 1 THEN 0 ELSE (
  SELECT coalesce(sum(e.records), 0)::int FROM gapless.page_ledger e
  WHERE e.partition_id = l.partition_id AND e.pass = l.pass AND e.page = l.page
    AND e.mapping_version = l.mapping_version AND e.generation = l.generation
    AND e.part < l.part) END AS index"""

_OUTCOME = """
SELECT CASE WHEN t._index - first.index BETWEEN 0 AND octet_length(l.outcomes) - 1
  THEN get_byte(l.outcomes, t._index - first.index) END AS outcome"""


def judge_table(
    sink: SinkSnapshot, version: Version, versions: Sequence[Version], findings: Findings
) -> int:
    """Checks every row of a mapping's table; returns how many there are.

    A record that an older version refused and the live one healed has its outcome there, so the
    outcome may be of any version of the same mapping.
    """
    table = sql.Identifier("public", version.table)
    query = sql.SQL(_WITHOUT_RECORD).format(
        table=table, first_index=sql.SQL(_FIRST_INDEX), outcome=sql.SQL(_OUTCOME)
    )
    family = [v.id for v in versions if v.mapping == version.mapping]
    for partition, owner, generation, offset, index, mapping_version, says in sink.rows(
        query, {"versions": family}
    ):
        findings.add(
            "row_without_record",
            f"a row of {version.table}, generation {generation},"
            f" mapping version {mapping_version}: {says}",
            partition=partition,
            offset=offset,
            index=index,
            partition_id=owner,
            mapping=f"{version.mapping} v{version.version}",
        )
    return sum(int(row[0]) for row in sink.rows(sql.SQL(_COUNT).format(table=table)))

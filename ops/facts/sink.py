"""Facts of Postgres for status, metrics and the page: one short read-only transaction.

Personal data is never read here: reasons and details of exceptions hold none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

_POSITIONS = """
SELECT pipeline, partition, generation, next_offset_to_apply, start_offset, end_offset, owner,
  checkpointed_at, halted FROM gapless.position ORDER BY pipeline, partition"""
# Not sightings: a record that is read again, or asked about by two versions of its mapping, is one record.
RECORDS: LiteralString = """count(DISTINCT coalesce(encode(e.fingerprint, 'hex'),
  concat_ws('/', e.partition, e.generation, e."offset", e.index)))"""
_COVERAGE = """
SELECT p.text AS partition_id, c.plan, min(c.start_at) AS start_at, max(c.end_at) AS end_at,
  count(*) FILTER (WHERE c.state = 'failed') AS failed,
  count(*) FILTER (WHERE c.state = 'gap') AS gaps,
  coalesce(sum(c.errors), 0)::bigint AS errors, sum(c.pages)::bigint AS pages,
  sum(c.records)::bigint AS records
FROM gapless.coverage c JOIN gapless.partition_id p ON p.id = c.partition_id
GROUP BY p.text, c.plan"""
_EXCEPTIONS = f"""
SELECT p.text AS partition_id, v.mapping, e.state, e.reason, {RECORDS} AS count,
  min(e.first_seen_at) AS since, min(e.detail) AS detail, count(DISTINCT e.detail) AS details,
  min(e.due_at) AS due_at
FROM gapless.exception e JOIN gapless.partition_id p ON p.id = e.partition_id
LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
WHERE e.state IN ('quarantined', 'retryable') AND coalesce(v.state, 'live') NOT IN ('shadow', 'kept')
GROUP BY p.text, v.mapping, e.state, e.reason ORDER BY 1, 2, 3, 4"""
# Of the records that were applied within that time, by what speaks for each of them now: not by versions
# that a newer one has replaced there, not by one that was swapped back, and not by a replay of what is older.
_OUTCOMES = """
WITH version AS (
  SELECT v.id, v.mapping, v.version,
    v.state IN ('shadow', 'kept') OR coalesce(v.version > (SELECT max(version) FROM gapless.mapping_version
      WHERE mapping = v.mapping AND state = 'live'), false) AS aside
  FROM gapless.mapping_version v
)
SELECT p.text AS partition_id, l.counts, count(*) AS pages FROM (
  SELECT l.partition_id, l.counts FROM gapless.page_ledger l
  LEFT JOIN version v ON v.id = l.mapping_version
  WHERE l.applied_at >= now() - %(within)s::interval AND NOT coalesce(v.aside, false) AND NOT EXISTS (
      SELECT FROM gapless.page_ledger o LEFT JOIN version n ON n.id = o.mapping_version
      WHERE (o.partition, o.generation, o."offset") = (l.partition, l.generation, l."offset")
        AND o.mapping_version <> l.mapping_version
        AND coalesce(n.mapping = v.mapping AND o.applied_at < now() - %(within)s::interval
          OR NOT n.aside AND (v.id IS NULL OR n.mapping = v.mapping AND n.version > v.version),
          false))
) l JOIN gapless.partition_id p ON p.id = l.partition_id GROUP BY p.text, l.counts"""
_GAPS = """
SELECT g.id, p.text AS partition_id, g.partition, g."offset", g.from_text, g.to_text, g.cause,
  g.found_at FROM gapless.gap g LEFT JOIN gapless.partition_id p ON p.id = g.partition_id
WHERE g.accepted_at IS NULL ORDER BY g.id LIMIT 1000"""
_PENDING = """
SELECT p.text AS partition_id, m.kind, m.plan, m.scope, m.applied_at, m.partition, m."offset"
FROM gapless.mark m JOIN gapless.partition_id p ON p.id = m.partition_id
WHERE m.state = 'pending' ORDER BY m.applied_at LIMIT 1000"""
_SNAPSHOTS = """
SELECT DISTINCT ON (p.text, v.mapping) p.text AS partition_id, v.mapping, s.snapshot, s.state,
  s.listed, s.swept, s.unreadable, s.note, s.at, s.completed
FROM gapless.snapshot s JOIN gapless.partition_id p ON p.id = s.partition_id
LEFT JOIN gapless.mapping_version v ON v.id = s.mapping_version
WHERE coalesce(v.state, 'live') NOT IN ('shadow', 'kept')
ORDER BY p.text, v.mapping, s.began DESC"""
# Each way out by its own index: what was sent is most of the table, and is not looked at. Copies of
# quarantined records are no events, and are written whether a relay runs or not. Before one has they are nothing
# that waits: once one has, some of the oldest rows are no longer as they were written.
_OUTBOX = """
WITH relayed AS (
  SELECT coalesce(bool_or(state <> 'unsent' OR attempts > 0 OR error IS NOT NULL), false) AS yes
  FROM (SELECT state, attempts, error FROM gapless.outbox ORDER BY id LIMIT 1000) oldest
), waiting AS (
  SELECT id, state, created_at, error, effect FROM gapless.outbox
  WHERE state IN ('unsent', 'dead') AND topic IS NOT NULL
  UNION ALL
  SELECT id, state, created_at, error, effect FROM gapless.outbox
  WHERE state IN ('unsent', 'dead') AND topic IS NULL
), named AS (
  SELECT id, created_at, error, CASE WHEN effect <> 'quarantined' OR state <> 'unsent' THEN state
    WHEN (SELECT yes FROM relayed) THEN 'copies' ELSE 'unrelayed' END AS state FROM waiting
)
SELECT state, count(*) AS count, min(created_at) AS since,
  (array_agg(error ORDER BY id) FILTER (WHERE error IS NOT NULL))[1] AS error FROM named
GROUP BY state"""


@dataclass(slots=True)
class SinkFacts:
    """What Postgres says at one instant; rows as mappings with the names of the queries above.

    `outbox`: by state; unsent copies of quarantined records are `copies`, or `unrelayed` where no
    relay has run yet.
    `outcomes`: partition id → six counts since the time asked for; empty if it was not asked.
    """

    now: datetime
    positions: list[Row] = field(default_factory=list)
    coverage: list[Row] = field(default_factory=list)
    exceptions: list[Row] = field(default_factory=list)
    gaps: list[Row] = field(default_factory=list)
    pending_marks: list[Row] = field(default_factory=list)
    snapshots: list[Row] = field(default_factory=list)
    outbox: list[Row] = field(default_factory=list)
    outcomes: dict[str, list[int]] = field(default_factory=dict)


def read_sink(dsn: str, outcomes_within: timedelta | None = None, timeout_s: int = 5) -> SinkFacts:
    """All facts of one instant. Raises psycopg.Error; waits at most `timeout_s` for a connection.

    `outcomes_within`: also count the outcomes of this last time, which reads the whole ledger.
    """
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=timeout_s) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute("SET LOCAL statement_timeout = '60s'")
        now = connection.execute("SELECT now() AS now").fetchone()
        assert now is not None
        found = SinkFacts(
            now=now["now"],
            positions=_all(connection, _POSITIONS),
            coverage=_all(connection, _COVERAGE),
            exceptions=_all(connection, _EXCEPTIONS),
            gaps=_all(connection, _GAPS),
            pending_marks=_all(connection, _PENDING),
            snapshots=_all(connection, _SNAPSHOTS),
            outbox=_all(connection, _OUTBOX),
        )
        if outcomes_within is not None:
            found.outcomes = _outcomes(connection, outcomes_within)
    return found


def _outcomes(connection: Connection, within: timedelta) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in connection.execute(_OUTCOMES, {"within": within}):
        sums = found.setdefault(row["partition_id"], [0] * 6)
        for at, count in enumerate(row["counts"]):
            sums[at] += count * row["pages"]
    return found


def _all(connection: Connection, query: LiteralString) -> list[Row]:
    return connection.execute(query).fetchall()

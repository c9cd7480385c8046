"""The outbox in Postgres, as the relay reads and marks it. Always inside the caller's transaction.

A head is locked from the moment it is chosen until it is marked: two relays never have the same key
in hand, and one that stops is cut off by the server after `hold_s`. Selects by state only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from ops.relay.event import Event
from ops.relay.schedule import Head, Later, Marks

Connection = psycopg.Connection[dict[str, Any]]


def _heads(own: LiteralString, other: LiteralString, only: LiteralString) -> LiteralString:
    """Heads of the keys behind a given one: a step per key along the index of one way out.

    `other`: the events of the key that go the other way hold it up all the same.
    """
    step: LiteralString = f"""
  SELECT id, mapping, key, state, due_at FROM gapless.outbox
  WHERE state IN ('unsent', 'dead') AND topic {own} AND {only}"""
    return f"""
WITH RECURSIVE head AS (
  ({step} AND (mapping, key) > (%(after_mapping)s, %(after_key)s)
  ORDER BY mapping, key, id LIMIT 1)
  UNION ALL
  SELECT n.* FROM head, LATERAL ({step} AND (mapping, key) > (head.mapping, head.key)
    ORDER BY mapping, key, id LIMIT 1) n)
SELECT h.id, h.mapping, h.key, h.state = 'unsent' AND h.due_at <= now() AND NOT EXISTS (
  SELECT 1 FROM gapless.outbox b WHERE b.state IN ('unsent', 'dead') AND b.topic {other}
    AND b.mapping = h.mapping AND b.key = h.key AND b.id < h.id) AS due
FROM (SELECT * FROM head LIMIT %(most)s) h"""


_TO_TOPICS = _heads("IS NOT NULL", "IS NULL", "true")
_POSTED = _heads("IS NULL", "IS NOT NULL", "mapping = %(mapping)s")
# A copy's bytes are read when it is published, of the later sighting that stands for its own where
# that is the same. What an erasure or a retention has taken meanwhile goes out as a tombstone of its key.
_LOCK = """
SELECT o.id, o.mapping, o.key, o.sequence, o.type, o.topic, o.idempotency_key, o.attempts,
  o.created_at, o.headers, CASE WHEN o.effect = 'quarantined' THEN coalesce(o.value, e.raw,
    (SELECT s.raw FROM gapless.exception s WHERE s.partition_id = e.partition_id
      AND s.mapping_version = e.mapping_version AND s.fingerprint = e.fingerprint
      AND s.content = e.content AND s.raw IS NOT NULL
      AND s.state IN ('retryable', 'quarantined', 'repeated', 'dismissed') LIMIT 1))
    ELSE coalesce(o.value, convert_to(o.payload::text, 'UTF8')) END AS body
FROM gapless.outbox o LEFT JOIN gapless.exception e ON o.effect = 'quarantined'
  AND e.partition = (o.payload->>'partition')::int
  AND e.generation = (o.payload->>'generation')::int2
  AND e."offset" = (o.payload->>'offset')::bigint AND e.index = (o.payload->>'index')::int
  AND e.mapping_version = (o.payload->>'mapping_version')::int
WHERE o.id = ANY(%s) AND o.state = 'unsent' AND o.due_at <= now()
ORDER BY o.id FOR UPDATE OF o SKIP LOCKED"""
_SENT = "UPDATE gapless.outbox SET state = 'sent', sent_at = now(), error = NULL WHERE id = ANY(%s)"
_LATER = """
UPDATE gapless.outbox SET state = %(state)s, attempts = %(attempts)s, error = %(error)s,
  due_at = clock_timestamp() + make_interval(secs => %(wait_s)s) WHERE id = %(id)s"""


def connect(dsn: str, hold_s: float) -> Connection:
    """A connection whose transactions the server ends after `hold_s` of silence. Raises psycopg.Error.

    A relay that was stopped, or whose machine is gone, so lets go of its keys; what it still sends
    when it wakes up are late copies under their old ids and sequences, and it can mark nothing.
    """
    connection = psycopg.connect(
        dsn, row_factory=dict_row, connect_timeout=5, tcp_user_timeout=int(hold_s * 1000)
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', %s, false)",
        (f"{int(hold_s * 1000)}ms",),
    )
    connection.commit()
    return connection


def heads(
    connection: Connection, mapping: str | None, after: tuple[str, str] | None, most: int
) -> list[Head]:
    """Heads of keys behind `after`, in the order of the keys. `mapping` None: those for topics."""
    after_mapping, after_key = after or ("", "")  # no mapping has an empty name
    rows = connection.execute(
        _TO_TOPICS if mapping is None else _POSTED,
        {
            "mapping": mapping, "after_mapping": after_mapping, "after_key": after_key,
            "most": most,
        },
    )  # fmt: skip
    return [Head(**row) for row in rows]


def lock(connection: Connection, ids: Sequence[int]) -> list[Event]:
    """Those of the heads that are unsent and nobody else has in hand, oldest first."""
    return [Event(**row) for row in connection.execute(_LOCK, (list(ids),))]


def mark(connection: Connection, marks: Marks) -> None:
    """Write down what became of the events that were locked."""
    if marks.sent:
        connection.execute(_SENT, (marks.sent,))
    if marks.later:
        connection.cursor().executemany(_LATER, [_parameters(one) for one in marks.later])


def _parameters(one: Later) -> dict[str, Any]:
    return {
        "id": one.id, "state": one.state, "attempts": one.attempts, "error": one.error,
        "wait_s": one.wait_s,
    }  # fmt: skip

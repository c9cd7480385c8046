"""What operators see of the outbox, and what they decide of events that are not published.

Lists hold no content of events. A decision is kept with the name of who made it.
"""

from __future__ import annotations

import json
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

WAITING = ("dead", "unsent")
STATES = (*WAITING, "sent", "skipped")
_COLUMNS: LiteralString = """
SELECT id, mapping, topic, type, effect, sequence, state, attempts, due_at, created_at, sent_at,
  error FROM gapless.outbox"""
# Each state by an index of its own where there is one: what was sent is most of the table.
_LISTED = f"""
SELECT * FROM (
  ({_COLUMNS} WHERE state IN ('unsent', 'dead') AND topic IS NOT NULL
    AND state = ANY(%(states)s) AND (%(mapping)s::text IS NULL OR mapping = %(mapping)s)
    ORDER BY id LIMIT %(limit)s)
  UNION ALL
  ({_COLUMNS} WHERE state IN ('unsent', 'dead') AND topic IS NULL
    AND state = ANY(%(states)s) AND (%(mapping)s::text IS NULL OR mapping = %(mapping)s)
    ORDER BY id LIMIT %(limit)s)
  UNION ALL
  ({_COLUMNS} WHERE state IN ('sent', 'skipped')
    AND state = ANY(%(states)s) AND (%(mapping)s::text IS NULL OR mapping = %(mapping)s)
    ORDER BY id DESC LIMIT %(limit)s)
) found ORDER BY id LIMIT %(limit)s"""
_SHOWN = """
SELECT o.id, o.mapping, o.topic, o.type, o.effect, o.key, o.sequence, o.idempotency_key, o.state,
  o.attempts, o.due_at, o.created_at, o.sent_at, o.error, o.payload::text AS payload,
  (SELECT count(*) FROM gapless.outbox n WHERE n.mapping = o.mapping AND n.key = o.key
    AND n.id > o.id AND n.state IN ('unsent', 'dead')) AS behind,
  (SELECT min(b.id) FROM gapless.outbox b WHERE b.mapping = o.mapping AND b.key = o.key
    AND b.id < o.id AND b.state IN ('unsent', 'dead')) AS waits_for
FROM gapless.outbox o WHERE o.id = %s"""
_DECIDED = """
SELECT at, by, action, note FROM gapless.operator_action
WHERE about @> jsonb_build_object('events', jsonb_build_array(%s::bigint)) ORDER BY id"""
# Also one that waits for its next try: whoever has put the receiver right need not wait for it.
_RETRY = """
UPDATE gapless.outbox SET state = 'unsent', attempts = 0, due_at = now()
WHERE (id = %(event)s OR mapping = %(mapping)s)
  AND (state = 'dead' OR (state = 'unsent' AND due_at > now())) RETURNING id"""
_SKIP = """
UPDATE gapless.outbox SET state = 'skipped'
WHERE (id = %(event)s OR mapping = %(mapping)s) AND state = 'dead' RETURNING id"""


def waiting(
    dsn: str, limit: int = 200, *, states: tuple[str, ...] = WAITING, mapping: str | None = None
) -> list[dict[str, Any]]:
    """Events in these states, oldest first, without key and content. Raises psycopg.Error."""
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return connection.execute(
            _LISTED, {"states": list(states), "mapping": mapping, "limit": limit}
        ).fetchall()


def shown(dsn: str, event: int) -> dict[str, Any] | None:
    """One event with key and content, which may be personal, and what was decided of it."""
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        found = connection.execute(_SHOWN, (event,)).fetchone()
        if found is None:
            return None
        found["payload"] = json.loads(found["payload"], parse_float=str)
        found["decisions"] = connection.execute(_DECIDED, (event,)).fetchall()
        return found


def decide(
    connection: psycopg.Connection[Any],
    action: str,
    which: int | str,
    *,
    by: str,
    note: str,
) -> list[int]:
    """An operator's word: `retry`, or `skip` for ever, a dead event or all dead ones of a mapping.

    `retry` also takes those that wait for their next try. Returns the ids it was for; none: it was
    for nothing, and nothing is kept. Waits for a relay that has one of them in hand.
    """
    event, mapping = (which, None) if isinstance(which, int) else (None, which)
    query = {"retry": _RETRY, "skip": _SKIP}[action]
    with connection.transaction():
        rows = connection.execute(query, {"event": event, "mapping": mapping}).fetchall()
        ids = sorted(int(row[0] if isinstance(row, tuple) else row["id"]) for row in rows)
        if ids:
            connection.execute(
                "INSERT INTO gapless.operator_action (by, action, about, note) VALUES (%s, %s, %s, %s)",
                (by, f"{action}_event", Jsonb({"mapping": mapping, "events": ids}), note),
            )
    return ids

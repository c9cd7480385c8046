"""Records that could not be applied: lists them and shows one with its evidence.

Personal data never leaves here unless it is asked for: keys and raw bytes come only with `raw`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
_COLUMNS = """
SELECT e.partition, e.generation, e."offset", e.index, p.text AS partition_id, v.mapping, v.version,
  e.state, e.reason, e.detail, e.plan, e.scope, e.attempts, e.due_at, e.fetched_at, e.created_at,
  e.decided_by, e.decided_at, e.decided_note, octet_length(e.raw) AS size, e.key, e.raw
FROM gapless.exception e JOIN gapless.partition_id p ON p.id = e.partition_id
LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
"""
_LIST = (
    _COLUMNS
    + """
WHERE (%(mapping)s::text IS NULL OR v.mapping = %(mapping)s)
  AND (%(partition_id)s::text IS NULL OR p.text = %(partition_id)s)
  AND (%(reason)s::text IS NULL OR e.reason = %(reason)s) AND e.state = ANY(%(states)s)
ORDER BY e.created_at, e.partition, e."offset", e.index LIMIT %(limit)s"""
)
_SHOW = (
    _COLUMNS
    + """
WHERE e.partition = %(partition)s AND e."offset" = %(offset)s AND e.index = %(index)s
ORDER BY e.generation DESC, e.mapping_version DESC"""
)
_PLACE = re.compile(r"^(\d+)/(\d+)/(\d+)$")
OPEN = ("quarantined", "retryable")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: log partition, offset, index within its page."""

    partition: int
    offset: int
    index: int


def parse_place(text: str) -> Place:
    """`3/48214/17`. Raises ValueError."""
    match = _PLACE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no place of a record; write PARTITION/OFFSET/INDEX")
    return Place(*(int(part) for part in match.groups()))


def listed(
    dsn: str,
    *,
    mapping: str | None = None,
    partition_id: str | None = None,
    reason: str | None = None,
    states: Sequence[str] = OPEN,
    limit: int = 200,
) -> list[Row]:
    """Exceptions, oldest first. Raises psycopg.Error."""
    values = {
        "mapping": mapping, "partition_id": partition_id, "reason": reason,
        "states": list(states), "limit": limit,
    }  # fmt: skip
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return connection.execute(_LIST, values).fetchall()


def shown(dsn: str, place: Place) -> list[Row]:
    """The exceptions of one record, one per mapping version. Raises psycopg.Error."""
    values = {"partition": place.partition, "offset": place.offset, "index": place.index}
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return connection.execute(_SHOW, values).fetchall()


def to_json(row: Row, *, raw: bool) -> Row:
    """Times as text. With `raw` also the key and the bytes, which may be personal."""
    found = {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in row.items()
        if name not in ("key", "raw")
    }
    found["place"] = f"{row['partition']}/{row['offset']}/{row['index']}"
    if raw:
        found["key"] = row["key"]
        found["raw"] = None if row["raw"] is None else bytes(row["raw"]).decode("utf-8", "replace")
    return found


def to_lines(rows: Sequence[Row]) -> str:
    """One line per exception, and what to do next."""
    if not rows:
        return "Nothing is in quarantine, nothing waits to be tried again."
    lines = [
        f"{row['partition']}/{row['offset']}/{row['index']:<5} {row['partition_id']}  "
        f"{row['mapping'] or 'no mapping'} v{row['version'] or 0}  {row['state']}  "
        f"{row['reason']}: {row['detail']}"
        for row in rows
    ]
    return "\n".join([*lines, "", "look  gapless quarantine show PLACE"])


def to_text(row: Row, *, raw: bool) -> str:
    """One exception with its evidence."""
    fields = {
        "place": f"{row['partition']}/{row['offset']}/{row['index']} (generation "
        f"{row['generation']})",
        "partition id": row["partition_id"],
        "mapping": f"{row['mapping']} v{row['version']}" if row["mapping"] else "none",
        "state": row["state"],
        "reason": f"{row['reason']}: {row['detail']}",
        "fetched": f"{row['fetched_at']:%Y-%m-%d %H:%M:%S} by {row['plan']} of {row['scope']}",
        "size": "not stored" if row["size"] is None else f"{row['size']:,} bytes",
    }
    if row["attempts"]:
        fields["attempts"] = str(row["attempts"])
    if row["state"] == "retryable" and row["due_at"] is not None:
        fields["next try"] = f"{row['due_at']:%Y-%m-%d %H:%M:%S}"
    if row["decided_by"] is not None:
        said = f": {row['decided_note']}" if row["decided_note"] else ""
        fields["decided"] = f"{row['decided_at']:%Y-%m-%d %H:%M:%S} by {row['decided_by']}{said}"
    lines = [f"{name:<13} {value}" for name, value in fields.items()]
    if not raw:
        return "\n".join([*lines, "raw           kept, not shown: it may be personal; add --raw"])
    body = b"" if row["raw"] is None else bytes(row["raw"])
    return "\n".join(
        [*lines, f"key           {row['key']}", "raw", body.decode("utf-8", "replace")]
    )

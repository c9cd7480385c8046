"""Records that could not be applied: lists them and shows one with its evidence.

Personal data never leaves here unless it is asked for: raw bytes come only with `raw`, and so does a
key unless all its columns are declared `personal: false`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from ops.facts.sink import RECORDS

Row = dict[str, Any]
_FROM = """
FROM gapless.exception e JOIN gapless.partition_id p ON p.id = e.partition_id
LEFT JOIN gapless.mapping_version v ON v.id = e.mapping_version
LEFT JOIN gapless.mapping_version t ON t.id = e.tried_version
"""
_COLUMNS = (
    """
SELECT e.partition, e.generation, e."offset", e.index, e.mapping_version AS version_id,
  p.text AS partition_id, v.mapping, v.version, t.version AS tried_version, e.state, e.reason,
  e.detail, e.plan, e.scope, e.attempts, e.due_at, e.fetched_at, e.created_at, e.sightings,
  e.first_seen_at, e.last_seen_at, e.decided_by, e.decided_at, e.decided_note,
  octet_length(e.raw) AS size, e.key, e.raw, e.fingerprint, v.state IN ('shadow', 'kept') AS beside,
  (SELECT bool_and(CASE WHEN name = 'tenant_id' AND NOT v.definition -> 'columns' ? name THEN true
      ELSE coalesce(v.definition -> 'columns' -> name ->> 'personal' = 'no', false) END)
    FROM jsonb_object_keys(e.key) name) AS key_public
"""
    + _FROM
)
_CHOSEN = """
WHERE (%(mapping)s::text IS NULL OR v.mapping = %(mapping)s)
  AND (%(partition_id)s::text IS NULL OR p.text = %(partition_id)s)
  AND (%(tenant)s::text IS NULL OR p.tenant = %(tenant)s)
  AND (%(reason)s::text IS NULL OR e.reason = %(reason)s) AND e.state = ANY(%(states)s)
"""
_LIST = (
    _COLUMNS
    + _CHOSEN
    + """ORDER BY e.first_seen_at, e.partition, e."offset", e.index LIMIT %(limit)s"""
)
_COUNTS = (
    f"""
SELECT p.text AS partition_id, v.mapping, e.state, e.reason, {RECORDS} AS count,
  sum(e.sightings)::bigint AS sightings, min(e.first_seen_at) AS since,
  v.state IN ('shadow', 'kept') AS beside
"""
    + _FROM
    + _CHOSEN
    + "GROUP BY 1, 2, 3, 4, beside ORDER BY 2, 4, 3, 1"
)
_SHOW = (
    _COLUMNS
    + """
WHERE e.partition = %(partition)s AND e."offset" = %(offset)s AND e.index = %(index)s
ORDER BY e.generation DESC, e.mapping_version DESC"""
)
_HISTORY = """
SELECT at, event, state, reason, detail, by, note FROM gapless.exception_history
WHERE partition = %(partition)s AND generation = %(generation)s AND "offset" = %(offset)s
  AND index = %(index)s AND mapping_version = %(version_id)s ORDER BY id"""
_NOT_SAID = ("key", "raw", "history", "fingerprint", "key_public")
_PLACE = re.compile(r"^(\d+)/(\d+)/(\d+)$")
OPEN = ("quarantined", "retryable")
STATES = (*OPEN, "repeated", "resolved", "dismissed")


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


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which exceptions: all that is given has to hold."""

    mapping: str | None = None
    partition_id: str | None = None
    tenant: str | None = None
    reason: str | None = None
    states: Sequence[str] = OPEN

    def values(self) -> dict[str, Any]:
        return {**asdict(self), "states": list(self.states)}


def listed(dsn: str, chosen: Chosen, *, limit: int = 200) -> list[Row]:
    """Exceptions, those that have waited longest first. Raises psycopg.Error."""
    return _read(dsn, _LIST, {**chosen.values(), "limit": limit})


def counted(dsn: str, chosen: Chosen) -> list[Row]:
    """How many records by partition id, mapping, state and reason, however often each was seen.

    Raises psycopg.Error.
    """
    return _read(dsn, _COUNTS, chosen.values())


def shown(dsn: str, place: Place) -> list[Row]:
    """The exceptions of one record, one per mapping version, with `history`. Raises psycopg.Error."""
    rows = _read(dsn, _SHOW, asdict(place))
    for row in rows:
        row["history"] = _read(dsn, _HISTORY, row)
    return rows


def mappings(dsn: str) -> list[str]:
    """The mappings that were ever registered. Raises psycopg.Error."""
    rows = _read(dsn, "SELECT DISTINCT mapping FROM gapless.mapping_version ORDER BY 1", {})
    return [row["mapping"] for row in rows]


def _read(dsn: str, query: LiteralString, values: Mapping[str, Any]) -> list[Row]:
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return connection.execute(query, values).fetchall()


def to_json(row: Row, *, raw: bool) -> Row:
    """Times as text. With `raw` also the bytes, and a key that may be personal."""
    found = {name: _plain(value) for name, value in row.items() if name not in _NOT_SAID}
    if "offset" in row:
        found["place"] = f"{row['partition']}/{row['offset']}/{row['index']}"
    if "history" in row:
        found["history"] = [{k: _plain(v) for k, v in one.items()} for one in row["history"]]
    if raw or row.get("key_public"):
        found["key"] = row["key"]
    if raw:
        found["raw"] = None if row["raw"] is None else bytes(row["raw"]).decode("utf-8", "replace")
    return found


def to_lines(rows: Sequence[Row]) -> str:
    """One line per exception, and what to do next."""
    if not rows:
        return "Nothing is in quarantine, nothing waits to be tried again."
    lines = [
        f"{row['partition']}/{row['offset']}/{row['index']:<5} {row['partition_id']}  "
        f"{row['mapping'] or 'no mapping'} v{row['version'] or 0}  {'beside live  ' if row['beside'] else ''}"
        f"{row['state']}  {_key(row)}{row['reason']}: {row['detail']}{_seen(row)}"
        for row in rows
    ]
    # two versions of a mapping may ask about one record
    records = {_record(row): _group(row) for row in rows}
    by_group = Counter(records.values())
    groups = [f"{_records(number)}  {' '.join(of)}" for of, number in sorted(by_group.items())]
    return "\n".join([*lines, "", *groups, "", "look  gapless quarantine show PLACE"])


def _records(number: int) -> str:
    return f"{number:>7} record{'' if number == 1 else 's'}"


def _group(row: Row) -> tuple[str, ...]:
    beside = ("beside live",) if row["beside"] else ()
    return (row["mapping"] or "no mapping", *beside, row["state"], row["reason"])


def _record(row: Row) -> tuple[Any, ...]:
    """What rows of one record have in common, within a group."""
    place = (row["partition"], row["generation"], row["offset"], row["index"])
    return (row["partition_id"], *_group(row), row["fingerprint"] or place)


def _key(row: Row) -> str:
    """The key, where it may be shown."""
    if not row["key_public"]:
        return ""
    return ", ".join(f"{name} {value}" for name, value in row["key"].items()) + "  "


def counts_to_lines(rows: Sequence[Row]) -> str:
    """One line per group."""
    if not rows:
        return "Nothing is in quarantine, nothing waits to be tried again."
    return "\n".join(
        f"{_records(row['count'])}  {'  '.join(_group(row))}  "
        f"{row['partition_id']}  since {row['since']:%Y-%m-%d %H:%M:%S}"
        for row in rows
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def _seen(row: Row) -> str:
    return f"  (seen {row['sightings']} times)" if row["sightings"] > 1 else ""


def to_text(row: Row, *, raw: bool) -> str:
    """One exception with its evidence."""
    fields = {
        "place": f"{row['partition']}/{row['offset']}/{row['index']} (generation "
        f"{row['generation']})",
        "partition id": row["partition_id"],
        "mapping": f"{row['mapping']} v{row['version']}" if row["mapping"] else "none",
        "state": row["state"],
        **({"key": _key(row).strip()} if row["key_public"] and not raw else {}),
        "reason": f"{row['reason']}: {row['detail']}",
        "fetched": f"{row['fetched_at']:%Y-%m-%d %H:%M:%S} by {row['plan']} of {row['scope']}",
        "since": f"{row['first_seen_at']:%Y-%m-%d %H:%M:%S}",
        "size": "not stored" if row["size"] is None else f"{row['size']:,} bytes",
    }
    if row["sightings"] > 1:
        last = f"{row['last_seen_at']:%Y-%m-%d %H:%M:%S}"
        fields["seen"] = f"{row['sightings']} times, last {last}; this is the latest sighting"
    if row["tried_version"] not in (None, row["version"]):
        fields["tried with"] = f"version {row['tried_version']}"
    if row["attempts"]:
        fields["attempts"] = str(row["attempts"])
    if row["state"] == "retryable" and row["due_at"] is not None:
        fields["next try"] = f"{row['due_at']:%Y-%m-%d %H:%M:%S}"
    if row["decided_by"] is not None:
        said = f": {row['decided_note']}" if row["decided_note"] else ""
        fields["decided"] = f"{row['decided_at']:%Y-%m-%d %H:%M:%S} by {row['decided_by']}{said}"
    lines = [f"{name:<13} {value}" for name, value in fields.items()]
    lines += [
        f"{'' if at else 'history':<13} {_told(one)}" for at, one in enumerate(row["history"])
    ]
    if row["raw"] is None:
        return "\n".join([*lines, "raw           not kept"])
    if not raw:
        return "\n".join([*lines, "raw           kept, not shown: it may be personal; add --raw"])
    body = bytes(row["raw"]).decode("utf-8", "replace")
    return "\n".join([*lines, f"key           {row['key']}", "raw", body])


def _told(one: Row) -> str:
    """One try or decision."""
    by = f" by {one['by']}" if one["by"] else ""
    note = f": {one['note']}" if one["note"] else ""
    failed = one["event"] in ("failed", "refused", "exhausted")
    why = f" ({one['reason']}: {one['detail']})" if failed else ""
    return f"{one['at']:%Y-%m-%d %H:%M:%S}  {one['event']}{by}{note} -> {one['state']}{why}"

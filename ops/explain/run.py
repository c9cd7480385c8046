"""Reads the row, its partition of the log and what became of each record: the edges of explain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from apply.functions.outside import Surroundings
from ops.audit.sink import generation_stretches
from ops.explain.model import OUTCOMES, Became, Explanation, Sighting
from ops.explain.search import Search
from ops.facts import log
from schemas import codec
from schemas.definitions.mapping import PARENT_PREFIX, ChildSpec, MappingSpec, Personal
from schemas.keys import partition_id
from schemas.log.reader import PartitionReader
from schemas.records import Observation
from schemas.routing import route
from schemas.settings import Settings

Row = dict[str, Any]
HIDDEN = "(not shown: not declared `personal: false`; --raw shows it)"
Place = tuple[int, int, int]
"""Generation, original offset and index of a record."""
_SYSTEM = (
    "source_revision", "deleted_at", "_source_epoch", "_generation", "_offset", "_index",
    "_mapping_version", "_deleted", "_observed_at", "_began",
)  # fmt: skip
_LEDGER = """
SELECT v.version, get_byte(l.outcomes, %(at)s) AS outcome,
  v.state IN ('shadow', 'kept') OR coalesce(v.version > (SELECT max(n.version)
    FROM gapless.mapping_version n WHERE n.mapping = v.mapping AND n.state = 'live'), false) AS beside,
  e.state, e.reason, e.detail, e.decided_by, e.decided_at, e.decided_note
FROM gapless.page_ledger l
JOIN gapless.mapping_version v ON v.id = l.mapping_version
LEFT JOIN gapless.exception e ON e.mapping_version = l.mapping_version
  AND e.partition = l.partition AND e.generation = l.generation AND e."offset" = l."offset"
  AND e.index = %(index)s
WHERE l.partition = %(partition)s AND l.generation = %(generation)s AND l."offset" = %(offset)s
  AND v.mapping = %(mapping)s AND %(at)s BETWEEN 0 AND octet_length(l.outcomes) - 1
ORDER BY v.version DESC"""


def explain(
    settings: Settings,
    spec: MappingSpec,
    key: Mapping[str, str],
    *,
    raw: bool = False,
    tell: Callable[[int, int], None] = lambda done, end: None,
) -> Explanation:
    """Every observation of the row with this key (text by key column), and what became of it.

    `raw`: show personal columns too. `tell` hears of the offset reached and the end. Raises
    psycopg.Error, KafkaUnreachable, TopicsMissing or LogUnavailable.
    """
    owner = partition_id(spec.source, spec.stream, key.get("tenant_id"))
    found = Explanation(spec.table, "", dict(key), owner, None)
    admin = log.connect(settings)
    many = log.partition_counts(admin, [settings.observations])[settings.observations]
    number = route(owner, many)
    with psycopg.connect(settings.postgres, row_factory=dict_row, connect_timeout=5) as db:
        db.adapters.register_loader("jsonb", TextLoader)  # its numbers stay exact
        db.execute("SET TimeZone TO 'UTC'")
        db.commit()
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        live = _live(db, spec.name) or spec.version
        found.mapping = f"{spec.name} v{live}"
        row = _row(db, spec, key)
        children = {child.table: _children(db, child, key) for child in spec.children.values()}
        generations = db.execute(
            "SELECT generation, first_offset FROM gapless.log_generation WHERE partition = %s"
            " ORDER BY generation",
            (number,),
        ).fetchall()
        stretches = generation_stretches(
            [(g["generation"], g["first_offset"]) for g in generations]
        )
        with closing(Surroundings(settings.definitions)) as outside:
            search = Search(spec, key, outside)
            every, erased = _read(settings, search, owner, number, stretches, key, tell)
        for seen, first_index in every:
            _outcome(db, spec.name, seen, first_index)
            seen.wrote_row = row is not None and _is(row, seen)
            found.sightings.append(seen)
    if row is not None:
        found.row = _shown(spec, row, raw)
        found.children = children
    found.notes = [
        f"The record at {number}/{seen.offset}/{seen.index} was erased since: a later copy of its page "
        "lacks it, and its bytes go when the log is compacted."
        for seen in found.sightings
        if (seen.generation, seen.origin, seen.index) in erased
    ] + _notes(row, found.sightings, erased)
    if live != spec.version:
        found.notes.append(
            f"Version {live} of {spec.name} is live; these definitions are version {spec.version}, and what "
            "is read of the log here is read by them."
        )
    return found


def _live(db: psycopg.Connection[Row], mapping: str) -> int | None:
    """The version whose rows stand in the table."""
    asked = "SELECT max(version) AS version FROM gapless.mapping_version WHERE mapping = %s AND state = 'live'"
    row = db.execute(asked, (mapping,)).fetchone()
    return None if row is None or row["version"] is None else int(row["version"])


def _read(
    settings: Settings,
    search: Search,
    owner: str,
    number: int,
    stretches: list[tuple[int, int, int]],
    key: Mapping[str, str],
    tell: Callable[[int, int], None],
) -> tuple[list[tuple[Sighting, int]], set[Place]]:
    """Sightings with the first index of their part; and records that copies of pages lack, as erased."""
    found: list[tuple[Sighting, int]] = []
    erased: set[Place] = set()
    prefix = f"{owner}/"
    with PartitionReader(settings, settings.observations, number, "explain") as reader:
        low, end = reader.low(), reader.stable_end()
        for record in reader.read(low, end):
            tell(record.offset, end)
            if record.value is None or not record.key.startswith(prefix):
                continue
            try:
                value = codec.decode(record.value)
            except codec.UnreadableValue:
                continue  # no page of this partition id: it has no key of one
            if not isinstance(value, Observation) or value.partition_id != owner:
                continue
            generation = next(g for g, first, until in stretches if first <= record.offset < until)
            tenant = key.get("tenant_id")
            seen = search.sightings(value, number, generation, record.offset, tenant)
            found += [(one, value.first_index) for one in seen]
            origin = record.offset if value.original_offset is None else value.original_offset
            erased |= {(generation, origin, m.index) for m in value.missing if m.why == "erased"}
    return found, erased


def _row(db: psycopg.Connection[Row], spec: MappingSpec, key: Mapping[str, str]) -> Row | None:
    """The row, its columns as Postgres prints them."""
    match = sql.SQL(" AND ").join(
        sql.SQL("{}::text = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in key
    )
    query = sql.SQL("SELECT * FROM {} WHERE {}").format(sql.Identifier("public", spec.table), match)
    return db.execute(query, dict(key)).fetchone()


def _children(db: psycopg.Connection[Row], child: ChildSpec, key: Mapping[str, str]) -> int:
    """How many rows of a child table belong to the row with this key."""
    match = sql.SQL(" AND ").join(
        sql.SQL("{}::text = {}").format(sql.Identifier(PARENT_PREFIX + name), sql.Placeholder(name))
        for name in key
    )
    table = sql.Identifier("public", child.table)
    query = sql.SQL("SELECT count(*) AS number FROM {} WHERE {}").format(table, match)
    row = db.execute(query, dict(key)).fetchone()
    return 0 if row is None else int(row["number"])


def _outcome(db: psycopg.Connection[Row], mapping: str, seen: Sighting, first_index: int) -> None:
    values = {
        "partition": seen.partition, "generation": seen.generation, "offset": seen.offset,
        "index": seen.index, "at": seen.index - first_index, "mapping": mapping,
    }  # fmt: skip
    for row in db.execute(_LEDGER, values):
        outcome = OUTCOMES[row["outcome"] - 1]
        seen.became.append(Became(row["version"], outcome, _why(row), row["beside"]))


def _why(row: Row) -> str | None:
    """The exception of a record and who decided about it, in words."""
    if row["state"] is None:
        return None
    text = f"{row['state']}: {row['reason']}, {row['detail']}"
    if row["decided_by"] is not None:
        text += f"; {row['decided_by']} at {row['decided_at']:%Y-%m-%dT%H:%M:%SZ}"
        text += f": {row['decided_note']}" if row["decided_note"] else ""
    return text


def _place(row: Row) -> Place:
    return row["_generation"], row["_offset"], row["_index"]


def _is(row: Row, seen: Sighting) -> bool:
    return _place(row) == (seen.generation, seen.origin, seen.index)


def _shown(spec: MappingSpec, row: Row, raw: bool) -> dict[str, str | None]:
    """Columns that may be shown; the key was given by whoever asks."""
    found: dict[str, str | None] = {}
    for name, value in row.items():
        column = spec.columns.get(name)
        free = column is None or column.personal is Personal.NO or name in spec.key
        if column is None and name not in _SYSTEM:
            continue
        if value is not None or column is not None:
            found[name] = _text(value) if free or raw else HIDDEN
    return found


def _text(value: object) -> str | None:
    """As people read it; lists as JSON, as which a column of JSON comes."""
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return None if value is None else str(value)


def _notes(row: Row | None, sightings: list[Sighting], erased: set[Place]) -> list[str]:
    if row is None:
        return []
    if any(seen.wrote_row for seen in sightings):
        return []
    offset = row["_offset"]
    if _place(row) in erased:
        return [f"The row is of offset {offset}, where its record was erased: erase the row, too."]
    if row["_deleted"] and row.get("source_revision") is None:
        where = f"its order is {offset}, where the snapshot began."
        return [f"The row was deleted because snapshots lacked it: {where}"]
    why = "its page expired, or gapless audit has something to say."
    return [f"The row names offset {offset}, which no longer has it: {why}"]

"""Which of two states of one entity stays: the guard, as a pure function and as the SQL of the sink.

Invariant: the SQL of `upsert_sql` decides as `wins` does. Rows of another partition id are never
touched: their offsets cannot be compared, so the sink asks with `others_sql` and reports a fault.

The order of the guard is (source_epoch, source_revision, log_generation, offset, index,
mapping_version). Two rules about listings stand before it. A listed state wins over one observed
before its snapshot began, whatever the revision: the collection may have been made again. And a row
remembers in `_began` where the newest listing that it has seen began: what was observed before that
never returns.
"""

from __future__ import annotations

from typing import Any

from apply.mapping.types import (
    BEGAN,
    CONTENT_HASH,
    DELETED,
    GENERATION,
    INDEX,
    MAPPING_VERSION,
    OFFSET,
    PARTITION_ID,
    REVISION,
    SOURCE_EPOCH,
    CompiledMapping,
    Row,
)
from apply.sql_text import columns_sql, equal_sql, quote, target_sql
from schemas.definitions.mapping import RevisionKind


def wins(new: Row, old: Row, kind: RevisionKind) -> bool:
    """Whether `new` replaces `old`, a row of the same key: the twin of `upsert_sql`."""
    if new[PARTITION_ID] != old[PARTITION_ID]:
        return False
    if kind is RevisionKind.EXACT and _unchanged(new, old):
        return False
    return beats(new, old, kind)


def beats(new: Row, old: Row, kind: RevisionKind) -> bool:
    """Whether `new` comes after `old`, also where it says the same. Both have one owner."""
    if below_listing(new, old):
        return False
    if below_listing(old, new):
        return True
    if new[SOURCE_EPOCH] != old[SOURCE_EPOCH]:
        return bool(new[SOURCE_EPOCH] > old[SOURCE_EPOCH])
    if kind is not RevisionKind.NONE:
        ours, theirs = new[REVISION], old[REVISION]
        # A row that a sweep cleared has none: then only what was observed later counts.
        if ours is not None and theirs is not None and ours != theirs:
            return bool(ours > theirs)
    later: bool = observed_order(new) > observed_order(old)
    return later


def observed_order(row: Row) -> tuple[Any, ...]:
    """(log_generation, offset, index, mapping_version): unique among the rows of one owner."""
    return (row[GENERATION], row[OFFSET], row[INDEX], row[MAPPING_VERSION])


def below_listing(one: Row, other: Row) -> bool:
    """Whether `one` was observed before the listing began that `other` comes from or has survived."""
    return bool(
        other[BEGAN] is not None
        and one[SOURCE_EPOCH] <= other[SOURCE_EPOCH]
        and (one[GENERATION], one[OFFSET]) < (other[GENERATION], other[BEGAN])
    )


def carried_began(winner: Row, loser: Row) -> int | None:
    """The `_began` of the winner when it replaces, or has beaten, the loser; the newest listing.

    Only within one generation, and only one that the winner itself is not below: a row has to
    survive its own replay.
    """
    began, other = winner[BEGAN], loser[BEGAN]
    if other is None or winner[GENERATION] != loser[GENERATION] or other >= winner[OFFSET]:
        return None if began is None else int(began)
    return int(other) if began is None else max(int(began), int(other))


def _unchanged(new: Row, old: Row) -> bool:
    """With `exact`, the same revision again: it says nothing new, so nothing is written."""
    return bool(
        new[SOURCE_EPOCH] == old[SOURCE_EPOCH]
        and new[REVISION] == old[REVISION]
        and new[MAPPING_VERSION] == old[MAPPING_VERSION]
        and new[DELETED] == old[DELETED]
        and new[CONTENT_HASH] == old[CONTENT_HASH]
    )


def upsert_sql(compiled: CompiledMapping, temp: str, *, returning: bool = True) -> str:
    """Insert or update the rows of `temp`, which has at most one row per key.

    Returns (partition_id_no, offset, index, inserted) of every row that was written, or only says in
    its row count how many were; a fifth of the time is saved. The others are superseded, or belong
    to another partition id (`others_sql`). Rows are taken in key order, so
    two writers never wait for each other in a circle.
    """
    names = [column.name for column in compiled.columns]
    key = columns_sql(compiled.key_columns)
    changes = [
        f"{quote(name)} = EXCLUDED.{quote(name)}"
        for name in names[len(compiled.key_columns) :]
        if name != "_began"
    ]
    changes.append(f'"_began" = {_CARRIED_BEGAN}')
    listed = ", ".join(quote(name) for name in names)
    return (
        f"INSERT INTO {target_sql(compiled.spec)} AS t ({listed})\n"
        f"SELECT {listed} FROM {quote(temp)} ORDER BY {key}\n"
        f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(changes)}\n"
        f"WHERE {guard_sql(compiled.spec.revision.kind)}"
    ) + (_WRITTEN if returning else "")


_WRITTEN = '\nRETURNING t."_partition_id", t."_offset", t."_index", (t.xmax = 0) AS inserted'

_CARRIED_BEGAN = (
    'CASE WHEN t."_generation" = EXCLUDED."_generation" AND t."_began" < EXCLUDED."_offset" '
    'THEN GREATEST(EXCLUDED."_began", t."_began") ELSE EXCLUDED."_began" END'
)

_ORDER = (
    '(EXCLUDED."_generation", EXCLUDED."_offset", EXCLUDED."_index", EXCLUDED."_mapping_version")'
    ' > (t."_generation", t."_offset", t."_index", t."_mapping_version")'
)


def _below_sql(one: str, other: str) -> str:
    return (
        f'({other}."_began" IS NOT NULL AND {one}."_source_epoch" <= {other}."_source_epoch" AND '
        f'({one}."_generation", {one}."_offset") < ({other}."_generation", {other}."_began"))'
    )


def guard_sql(kind: RevisionKind) -> str:
    """Whether a row `excluded` replaces a row `t` of its key; also for a SELECT over such aliases."""
    same_epoch = _ORDER
    if kind is not RevisionKind.NONE:
        # A comparison with NULL is neither true nor false, so cleared rows are named.
        same_epoch = (
            "EXCLUDED.source_revision > t.source_revision OR "
            "(t.source_revision IS NULL OR EXCLUDED.source_revision IS NULL "
            f"OR EXCLUDED.source_revision = t.source_revision) AND {_ORDER}"
        )
    guard = (
        't."_partition_id" = EXCLUDED."_partition_id"\n'
        f"  AND NOT {_below_sql('EXCLUDED', 't')}\n"
        f"  AND ({_below_sql('t', 'EXCLUDED')}\n"
        '    OR EXCLUDED."_source_epoch" > t."_source_epoch"\n'
        f'    OR EXCLUDED."_source_epoch" = t."_source_epoch" AND ({same_epoch}))'
    )
    if kind is RevisionKind.EXACT:
        guard += f"\n  AND NOT ({_UNCHANGED})"
    return guard


_UNCHANGED = (
    't."_source_epoch" = EXCLUDED."_source_epoch" '
    "AND t.source_revision IS NOT DISTINCT FROM EXCLUDED.source_revision "
    'AND t."_mapping_version" = EXCLUDED."_mapping_version" '
    'AND t."_deleted" = EXCLUDED."_deleted" AND t."_content_hash" = EXCLUDED."_content_hash"'
)


def undecided_sql(compiled: CompiledMapping, temp: str) -> str:
    """Which rows of `temp` the upsert has to decide; the table's row of every other one beats it.

    Returns (partition_id_no, offset, index). Locks nothing; needs the key columns and those that the
    guard compares. Rows that meet another partition id's row, or stand in the table themselves, are
    left to the upsert.
    """
    guard = guard_sql(compiled.spec.revision.kind).replace("EXCLUDED.", "n.")
    new, old = _place_sql("n"), _place_sql("t")
    return (
        'SELECT n."_partition_id", n."_offset", n."_index"\n'
        f"FROM {quote(temp)} n LEFT JOIN {target_sql(compiled.spec)} t"
        f" ON {equal_sql(compiled, 'n', 't')}\n"
        'WHERE t."_partition_id" IS NULL OR t."_partition_id" <> n."_partition_id"'
        f" OR ({new}) = ({old}) OR ({guard})"
    )


def others_sql(compiled: CompiledMapping, temp: str) -> str:
    """Rows of `temp` whose table row is another one: what the upsert did not write. To ask after it.

    Returns (partition_id_no, offset, index, partition_id_no of the row that stands there; None: no
    row does, or one that would have had to give way). Needed only if the upsert wrote fewer rows
    than `temp` has.
    """
    guard = guard_sql(compiled.spec.revision.kind).replace("EXCLUDED.", "n.")
    new, old = _place_sql("n"), _place_sql("t")
    return (
        'SELECT n."_partition_id", n."_offset", n."_index",'
        f' CASE WHEN {guard} THEN NULL ELSE t."_partition_id" END\n'
        f"FROM {quote(temp)} n LEFT JOIN {target_sql(compiled.spec)} t"
        f" ON {equal_sql(compiled, 'n', 't')}\n"
        f"WHERE ({new}) IS DISTINCT FROM ({old})"
    )


def _place_sql(alias: str) -> str:
    """What names one row: the record it came from, and the mapping version."""
    place = ("_partition_id", "_generation", "_offset", "_index", "_mapping_version")
    return ", ".join(f"{alias}.{quote(name)}" for name in place)


def before_sql(compiled: CompiledMapping, temp: str) -> str:
    """Lock the rows that `temp` may change and show them as they are, for mappings with events.

    Returns (partition_id_no, offset, index of the new row; deleted, then `events.changed_fields` or
    else all columns but the key, of the old row). To run before the upsert, in its transaction.
    """
    fields = "".join(f", t.{quote(name)}" for name in compared_fields(compiled))
    key = columns_sql(compiled.key_columns, "t")
    return (
        f'SELECT n."_partition_id", n."_offset", n."_index", t."_deleted"{fields}\n'
        f"FROM {quote(temp)} n JOIN {target_sql(compiled.spec)} t ON {equal_sql(compiled, 'n', 't')}\n"
        f"ORDER BY {key} FOR UPDATE OF t"
    )


def compared_fields(compiled: CompiledMapping) -> tuple[str, ...]:
    """The columns whose change is an event: the declared ones, else all that are mapped."""
    events = compiled.spec.events
    if events is not None and events.changed_fields:
        return events.changed_fields
    return tuple(name for name in compiled.spec.columns if name not in compiled.spec.key)


# An equation would let the planner look rows up by the index of their owners: all of a tenant's.
_SAME_OWNER = 't."_partition_id" + 0 = n."_partition_id"'


def lowered_sql(compiled: CompiledMapping, temp: str) -> str | None:
    """Listed rows of `temp` that will win over a higher revision: the collection was made again.

    Returns (partition_id_no, offset, index), to be alerted. To ask before the upsert, when a winner
    has a `_began`; None where there are no revisions.
    """
    if compiled.spec.revision.kind is RevisionKind.NONE:
        return None
    return (
        'SELECT n."_partition_id", n."_offset", n."_index"\n'
        f"FROM {quote(temp)} n JOIN {target_sql(compiled.spec)} t ON {equal_sql(compiled, 'n', 't')}\n"
        f'WHERE {_SAME_OWNER} AND n."_source_epoch" = t."_source_epoch"\n'
        f"  AND n.source_revision < t.source_revision AND {_below_sql('t', 'n')}"
    )


def broken_sql(compiled: CompiledMapping, temp: str) -> str | None:
    """Rows of `temp` that say something else under the same exact revision: a broken declaration.

    Returns (partition_id_no, offset, index), to be counted and shown. To ask before the upsert;
    None where revisions are not declared exact.
    """
    if compiled.spec.revision.kind is not RevisionKind.EXACT:
        return None
    return (
        'SELECT n."_partition_id", n."_offset", n."_index"\n'
        f"FROM {quote(temp)} n JOIN {target_sql(compiled.spec)} t ON {equal_sql(compiled, 'n', 't')}\n"
        f'WHERE {_SAME_OWNER} AND n."_source_epoch" = t."_source_epoch"\n'
        "  AND n.source_revision = t.source_revision\n"
        '  AND (n."_content_hash", n."_deleted") IS DISTINCT FROM (t."_content_hash", t."_deleted")'
    )

"""Holds a table that a replay has filled against the live one: counts and samples, by SQL alone.

Reads only; nothing of a table's size is held in memory. A value is shown only where its column is
declared `personal: false`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from apply.guard import guard_sql
from apply.mapping.types import CompiledMapping
from apply.queries import load
from apply.replay_report import HIDDEN, Diff, Sample
from apply.sink import Connection
from apply.sql_text import child_sql, quote, target_sql
from schemas.definitions.mapping import ChildSpec, MappingSpec, Personal

_SQL = load("replay")
SAMPLES = 3
_SAMPLED_COLUMNS = 20
_TYPES = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""


@dataclass(frozen=True, slots=True)
class Sides:
    """The new rows `excluded` and the live rows `t` of one mapping, as they can be compared.

    `guarded`: only what the guard lets through counts (in place); else every new row does.
    """

    compiled: CompiledMapping
    new: str
    live: str
    common: tuple[str, ...]
    cast: frozenset[str]
    added: tuple[str, ...]
    guarded: bool

    def value(self, alias: str, name: str) -> str:
        """A column, as text where its type differs."""
        return f"{alias}.{quote(name)}" + ("::text" if name in self.cast else "")

    @property
    def same_key(self) -> str:
        return " AND ".join(
            f"{self.value('excluded', name)} = {self.value('t', name)}"
            for name in self.compiled.spec.key
        )

    @property
    def counts(self) -> str:
        """Whether a new row would replace the live one."""
        return f"({guard_sql(self.compiled.spec.revision.kind)})" if self.guarded else "true"

    def differences(self) -> Iterator[tuple[str, str]]:
        """Column → the condition that it would change; a deletion is none of these."""
        for name in self.compiled.spec.columns:
            if name in self.compiled.spec.key:
                continue
            if name in self.added:
                yield name, f"excluded.{quote(name)} IS NOT NULL"
            elif name in self.common:
                new, old = self.value("excluded", name), self.value("t", name)
                yield name, f"{new} IS DISTINCT FROM {old}"


READ = 'LEFT JOIN replay_ends e ON e.partition_id = t."_partition_id"'
"""The end `e.end_at` up to which a live row `t` is compared; see `read_up_to`."""


def read_up_to(connection: Connection, ends: Mapping[int, int]) -> None:
    """Only rows of live below these ends, by partition of the log, are compared: the others came since."""
    connection.execute(_SQL["stage_ends"])
    partitions, offsets = list(ends), list(ends.values())
    connection.execute(_SQL["fill_ends"], {"partitions": partitions, "ends": offsets})


def column_types(connection: Connection, table: str) -> dict[str, str]:
    """Types by column; empty if there is no such table."""
    return dict(connection.execute(_TYPES, [table]).fetchall())


def sides(
    connection: Connection, compiled: CompiledMapping, live: MappingSpec, *, guarded: bool
) -> Sides | str:
    """How the rows of `compiled`'s table can be held against those of `live`; or why they cannot."""
    new_table, live_table = target_sql(compiled.spec), target_sql(live)
    new, old = column_types(connection, new_table), column_types(connection, live_table)
    if not old:
        return f"there is no table {live_table} yet"
    lacking = [name for name in compiled.spec.key if name not in old]
    if lacking or _key_of(connection, live_table) != set(compiled.spec.key):
        return "the key is another one, so no row has a predecessor"
    names = [name for name in compiled.spec.columns if name in new]
    common = tuple(name for name in names if name in old)
    return Sides(
        compiled=compiled, new=new_table, live=live_table, common=common,
        cast=frozenset(name for name in common if new[name] != old[name]),
        added=tuple(name for name in names if name not in old), guarded=guarded,
    )  # fmt: skip


def _key_of(connection: Connection, table: str) -> set[str]:
    rows = connection.execute(
        "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
        " AND a.attnum = ANY(i.indkey::int2[]) WHERE i.indrelid = to_regclass(%s) AND i.indisprimary",
        [table],
    )
    return {name for (name,) in rows}


def compare(connection: Connection, of: Sides, diff: Diff) -> None:
    """Rows added, changed (by column, with samples), unchanged and deleted by their record."""
    differing = list(of.differences())
    any_of = " OR ".join(f"({one})" for _, one in differing) or "false"
    there, alive, dies = (
        't."_partition_id" IS NOT NULL',
        't."_deleted" = false',
        'excluded."_deleted"',
    )
    deleted = f"{alive} AND {dies} AND {of.counts}"
    returns = f't."_deleted" AND NOT {dies} AND {of.counts}'
    changed = f"{alive} AND NOT {dies} AND {of.counts} AND ({any_of})"
    each = "".join(
        f", count(*) FILTER (WHERE {alive} AND NOT {dies} AND {of.counts} AND ({one}))"
        for _, one in differing
    )
    row = connection.execute(
        (
            f"SELECT count(*) FILTER (WHERE NOT ({there}) AND NOT {dies} OR {returns}),"
            f" count(*) FILTER (WHERE {changed}), count(*) FILTER (WHERE {deleted}),"
            f" count(*) FILTER (WHERE {alive}){each}"
            f" FROM {of.new} excluded LEFT JOIN {of.live} t ON {of.same_key} {READ}"
            ' WHERE t."_partition_id" IS NULL OR t."_offset" < e.end_at'
        ).encode()
    ).fetchone()
    assert row is not None
    diff.added += row[0]
    diff.changed += row[1]
    diff.unchanged += row[3] - row[1] - row[2]
    if row[2]:
        diff.removed["deleted"] = row[2]
        diff.samples += _records(connection, of, "deleted", deleted)
    for (name, condition), count in zip(differing, row[4:], strict=True):
        if count:
            diff.changed_columns[name] = count
            if len(diff.changed_columns) <= _SAMPLED_COLUMNS:
                wanted = f"{alive} AND NOT {dies} AND {of.counts} AND ({condition})"
                diff.samples += _values(connection, of, name, wanted)


def _records(connection: Connection, of: Sides, what: str, condition: str) -> list[Sample]:
    rows = connection.execute(
        (
            f'SELECT i.partition, excluded."_offset", excluded."_index" FROM {of.new} excluded'
            f" JOIN {of.live} t ON {of.same_key} {READ}"
            ' LEFT JOIN gapless.partition_id i ON i.id = excluded."_partition_id"'
            f' WHERE {condition} AND t."_offset" < e.end_at LIMIT {SAMPLES}'
        ).encode()
    )
    return [Sample(what, place(*row)) for row in rows]


def _values(connection: Connection, of: Sides, name: str, condition: str) -> list[Sample]:
    before = "NULL" if name in of.added else f"t.{quote(name)}::text"
    rows = connection.execute(
        (
            f'SELECT i.partition, excluded."_offset", excluded."_index", {before},'
            f" excluded.{quote(name)}::text"
            f" FROM {of.new} excluded JOIN {of.live} t ON {of.same_key} {READ}"
            ' LEFT JOIN gapless.partition_id i ON i.id = excluded."_partition_id"'
            f' WHERE {condition} AND t."_offset" < e.end_at LIMIT {SAMPLES}'
        ).encode()
    )
    shown = of.compiled.spec.columns[name].personal is Personal.NO
    return [
        Sample("changed", place(*where), name, _shown(old, shown=shown), _shown(new, shown=shown))
        for *where, old, new in rows
    ]


def _shown(value: str | None, *, shown: bool) -> str | None:
    return value if value is None or shown else HIDDEN


def place(partition: int | None, offset: int, index: int) -> str:
    """Where a record stands, as `gapless replay --from` and `gapless quarantine show` take it."""
    return f"{'?' if partition is None else partition}:{offset} index {index}"


def written_since(connection: Connection, of: Sides, diff: Diff, only: str | None = None) -> None:
    """Rows of live that were written behind the ends of what was read, and so are not compared.

    `only`: one partition id's rows.
    """
    row = connection.execute(
        (
            f"SELECT count(*) FROM {of.live} t {READ}"
            ' JOIN gapless.partition_id i ON i.id = t."_partition_id"'
            ' WHERE t."_offset" >= e.end_at AND (%(only)s::text IS NULL OR i.text = %(only)s)'
        ).encode(),
        {"only": only},
    ).fetchone()
    diff.not_compared = row[0] if row else 0


def missing(
    connection: Connection, of: Sides, diff: Diff, *, pages: str | None, only: str | None = None
) -> None:
    """Living rows of live that no new row stands for, by reason.

    `pages`: a table (partition_id, generation, "offset", first_index, outcomes) of what was read;
    without it the ledger of the new version is asked. `only`: one partition id's rows.
    """
    said = _OUTCOMES if pages is None else _OUTCOMES_OF.format(pages=pages)
    without = f"NOT EXISTS (SELECT FROM {of.new} excluded WHERE {of.same_key})"
    _without(connection, of.compiled, of.live, said, without, only, diff)


def left_behind(
    connection: Connection, compiled: CompiledMapping, diff: Diff, only: str | None
) -> None:
    """Living rows that a replay in place has not made anew, by reason: they stay as they were."""
    without = 't."_mapping_version" <> %(version)s'
    _without(connection, compiled, target_sql(compiled.spec), _OUTCOMES, without, only, diff)


def _without(
    connection: Connection,
    compiled: CompiledMapping,
    table: str,
    said: str,
    condition: str,
    only: str | None,
    diff: Diff,
) -> None:
    gone = (
        f'SELECT t."_partition_id", t."_offset", t."_index", ({said} LIMIT 1) AS outcome'
        f' FROM {table} t {READ} WHERE NOT t."_deleted" AND t."_offset" < e.end_at AND {condition}'
        ' AND (%(only)s::text IS NULL OR t."_partition_id" ='
        " (SELECT id FROM gapless.partition_id WHERE text = %(only)s))"
    )
    asked = {"only": only, "version": compiled.version_id}
    count = f"SELECT outcome, count(*) FROM ({gone}) g GROUP BY outcome ORDER BY outcome"
    for outcome, number in connection.execute(count.encode(), asked).fetchall():
        reason = _REASONS.get(outcome, WITHOUT_OBSERVATION)
        diff.removed[reason] = diff.removed.get(reason, 0) + number
        place_of = (
            f'SELECT i.partition, g."_offset", g."_index" FROM ({gone}) g'
            ' LEFT JOIN gapless.partition_id i ON i.id = g."_partition_id"'
            f" WHERE outcome IS NOT DISTINCT FROM %(outcome)s LIMIT {SAMPLES}"
        )
        rows = connection.execute(place_of.encode(), {**asked, "outcome": outcome})
        diff.samples += [Sample(reason, place(*row)) for row in rows]


WITHOUT_OBSERVATION = "without_observation"
_OUTCOMES_OF = """
SELECT greatest(get_byte(p.outcomes, t."_index" - p.first_index), 1) FROM {pages} p
WHERE p.partition_id = t."_partition_id" AND p.generation = t."_generation"
  AND p."offset" = t."_offset"
  AND t."_index" - p.first_index BETWEEN 0 AND octet_length(p.outcomes) - 1"""
# The part's first index follows from the parts before it; nearly all pages are of one part.
_OUTCOMES = """
SELECT get_byte(l.outcomes, t."_index" - f.first)::int FROM gapless.page_ledger l
CROSS JOIN LATERAL (SELECT CASE WHEN l.part = 1 THEN 0 ELSE coalesce(sum(b.records), 0)::int END AS first
  FROM gapless.page_ledger b WHERE b.partition_id = l.partition_id AND b.pass = l.pass
    AND b.page = l.page AND b.part < l.part AND b.mapping_version = l.mapping_version
    AND b.generation = l.generation) f
WHERE l.mapping_version = %(version)s AND l.generation = t."_generation" AND l."offset" = t."_offset"
  AND l.partition = (SELECT partition FROM gapless.partition_id WHERE id = t."_partition_id")
  AND t."_index" - f.first BETWEEN 0 AND octet_length(l.outcomes) - 1"""
_REASONS = {
    1: "other_key",
    2: "superseded",
    3: "ignored",
    4: "quarantined",
    5: "quarantined",
    6: "erased",
}


def needs_shadow(connection: Connection, new: MappingSpec, live: MappingSpec) -> list[str]:
    """Why the live tables cannot hold the new version's rows; empty if they can, or if there are none.

    `new`: its table stands in this database, empty or not.
    """
    have, want = (column_types(connection, target_sql(one)) for one in (live, new))
    if not have:
        return []
    found = []
    key = _key_of(connection, target_sql(live))
    if key != set(new.key):
        found.append(f"the key is {', '.join(sorted(key))}, would be {', '.join(sorted(new.key))}")
    for name, kind in want.items():
        if name in have and have[name] != kind:
            found.append(f"column {name} is {have[name]}, would be {kind}")
    if ("source_revision" in have) != ("source_revision" in want):
        found.append("one of the two has a revision, the other has none")
    for child in new.children.values():
        found += _child_needs_shadow(
            connection, child_sql(new, child), child_sql(live, child), child
        )
    return found


def _child_needs_shadow(
    connection: Connection, new: str, live: str, child: ChildSpec
) -> Iterator[str]:
    have, want = column_types(connection, live), column_types(connection, new)
    if not have:
        return
    keys = [", ".join(sorted(_key_of(connection, table))) for table in (live, new)]
    if keys[0] != keys[1]:
        yield f"the key of {child.table} is {keys[0]}, would be {keys[1]}"
    for name, kind in want.items():
        if have.get(name, kind) != kind:
            yield f"column {name} of {child.table} is {have[name]}, would be {kind}"


def by_hash(connection: Connection) -> None:
    """Whole tables are joined here, unlike in batches."""
    connection.execute("SET enable_hashjoin = on")
    connection.execute("SET enable_mergejoin = on")

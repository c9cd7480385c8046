"""The sink as plain Python: one table, driven by the fold, the guard and the rules of deletion.

Rows are made here by hand; the mapping is a text key, a value and a revision.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apply.fold import fold, split_barred
from apply.guard import carried_began, wins
from apply.mapping.compile import compile_mapping
from apply.mapping.types import (
    BEGAN,
    DELETED,
    DELETED_AT,
    GENERATION,
    OFFSET,
    PARTITION_ID,
    REVISION,
    SOURCE_EPOCH,
    SYSTEM_COLUMNS,
    CompiledMapping,
    Row,
)
from schemas.definitions.column_types import parse_type
from schemas.definitions.mapping import (
    Alternative,
    ByPlan,
    ColumnSpec,
    MappingSpec,
    RevisionKind,
    RevisionSpec,
)
from schemas.definitions.paths import parse_entity_path, parse_mapping_path

_NAMES = [column.name for column in SYSTEM_COLUMNS]


def mapping(kind: RevisionKind, table: str = "things", version: int = 1) -> CompiledMapping:
    """A mapping of `k` and `v`, with a revision `r` unless the kind is none."""
    path, bigint = parse_mapping_path, parse_type("bigint")
    revision = RevisionSpec(kind)
    if kind is not RevisionKind.NONE:
        revision = RevisionSpec(kind, ByPlan(path("r")), bigint)
    columns = {
        name: ColumnSpec(name, of, ByPlan((Alternative(path(name)),)))
        for name, of in (("k", parse_type("text")), ("v", bigint))
    }
    spec = MappingSpec(
        name=table, version=version, source="s", stream="t", table=table, key=("k",),
        revision=revision, columns=columns, entity=ByPlan(parse_entity_path("$")),
    )  # fmt: skip
    return compile_mapping(spec, version)


def row(
    kind: RevisionKind,
    key: str,
    value: int | None,
    *,
    revision: int | None = None,
    epoch: int = 0,
    generation: int = 0,
    owner: int = 1,
    offset: int,
    index: int = 0,
    version: int = 1,
    deleted: bool = False,
    content: int | None = None,
    began: int | None = None,
) -> Row:
    """A row as mapping makes it. `content` None: a hash of the value."""
    dated = () if kind is RevisionKind.NONE else (revision,)
    hashed = content if content is not None else hash((value, deleted)) % 1000
    deleted_at = 7 if deleted else None
    return (
        key, value, *dated, deleted_at, epoch, generation, owner, offset, index, version, deleted,
        hashed, 5, began,
    )  # fmt: skip


def changed(row: Row, **values: object) -> Row:
    """The row with other system columns, by their names."""
    found = list(row)
    for name, value in values.items():
        found[_NAMES.index(name) - len(_NAMES)] = value
    return tuple(found)


@dataclass(slots=True)
class Written:
    """What became of the rows of an upsert or of a batch."""

    inserted: list[Row] = field(default_factory=list)
    updated: list[Row] = field(default_factory=list)
    superseded: list[Row] = field(default_factory=list)
    foreign: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """Rows by key."""

    compiled: CompiledMapping
    rows: dict[str, Row] = field(default_factory=dict)

    def upsert(self, winners: list[Row]) -> Written:
        """At most one row per key."""
        written = Written()
        for new in winners:
            old = self.rows.get(new[0])
            if old is None:
                written.inserted.append(new)
                self.rows[new[0]] = new
            elif old[PARTITION_ID] != new[PARTITION_ID]:
                written.foreign.append(new)
            elif wins(new, old, self.compiled.spec.revision.kind):
                written.updated.append(new)
                self.rows[new[0]] = (*new[:BEGAN], carried_began(new, old))
            else:
                written.superseded.append(new)
        return written

    def apply(self, rows: list[Row], barriers: dict[int, tuple[int, int]] | None = None) -> Written:
        """A batch: barrier, fold, upsert, and again for contested keys."""
        waiting, barred = split_barred(rows, barriers or {})
        done = Written(superseded=barred)
        while waiting:
            folded = fold(waiting, self.compiled)
            written = self.upsert(folded.winners)
            done.inserted += written.inserted
            done.updated += written.updated
            done.superseded += written.superseded + folded.losers
            done.foreign += written.foreign
            waiting = folded.contested
        return done

    def sweep(
        self, owner: int, generation: int, barrier: int, present: set[str], epoch: int
    ) -> list[str]:
        """Clear rows last observed below the barrier that no listing has shown.

        Returns the keys that lived.
        """
        ended = []
        for key, old in list(self.rows.items()):
            below = (old[GENERATION], old[OFFSET]) < (generation, barrier)
            if old[PARTITION_ID] != owner or key in present or not below:
                continue
            dated = self.compiled.spec.revision.kind is not RevisionKind.NONE
            if old[DELETED] and not (dated and old[REVISION] is not None):
                continue
            if not old[DELETED]:
                ended.append(key)
            cleared = list(old)
            if dated:
                cleared[REVISION] = None
            self.rows[key] = changed(
                tuple(cleared), _deleted=True, _generation=generation, _offset=barrier, _index=0,
                _began=barrier, _source_epoch=max(old[SOURCE_EPOCH], epoch),
                deleted_at=9 if old[DELETED_AT] is None else old[DELETED_AT],
            )  # fmt: skip
        return ended

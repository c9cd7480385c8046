"""What mapping gives to the sink: rows as tuples in the table's column order, outcomes and faults.

Invariant: per record of a page there is either a row (outcome byte 0) or a final outcome byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from apply.outcomes import RecordFault
from schemas.definitions.mapping import ChildSpec, MappingSpec
from schemas.records import Observation

Row = tuple[Any, ...]
"""Values in the order of `CompiledMapping.columns`, ready for psycopg's binary COPY."""
Children = tuple[list[Row], ...]
"""One record's rows of each child table, in the order of `CompiledChild.columns`."""
Key = tuple[Any, ...]
"""Values of the key columns, in the order of `MappingSpec.key`."""


PG_EPOCH_US = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970: where Postgres counts timestamptz from."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target table.

    `pg_type` is the type as DDL writes it. `copy_type` is the type whose binary form its values in
    rows have, for `Copy.set_types`: Postgres reads only the bytes, and these are cheaper to make.
    A timestamptz is an int8 (microseconds since 2000), a date an int4 (days since 2000), a uuid
    16 bytes, jsonb bytes (version 1 and the text), a numeric(p,s) and a text[] are
    bytes (see `numerics`, `text_arrays`) unless part of a key or of a child's row; see `readable` for
    plain values.
    """

    name: str
    pg_type: str
    copy_type: str


SYSTEM_COLUMNS: tuple[Column, ...] = (
    Column("deleted_at", "timestamptz", "int8"),
    Column("_source_epoch", "smallint", "int2"),
    Column("_generation", "smallint", "int2"),
    Column("_partition_id", "integer", "int4"),
    Column("_offset", "bigint", "int8"),
    Column("_index", "integer", "int4"),
    Column("_mapping_version", "integer", "int4"),
    Column("_deleted", "boolean", "bool"),
    Column("_content_hash", "bigint", "int8"),
    Column("_observed_at", "timestamptz", "int8"),
    Column("_began", "bigint", "int8"),
)
"""The last columns of every target table, in this order."""

CHILD_SYSTEM_COLUMNS: tuple[Column, ...] = (
    Column("_generation", "smallint", "int2"),
    Column("_partition_id", "integer", "int4"),
    Column("_offset", "bigint", "int8"),
    Column("_index", "integer", "int4"),
    Column("_mapping_version", "integer", "int4"),
)
"""The last columns of every child table: those of the parent's row that it was written with."""

# Positions of system columns in a row, from its end.
DELETED_AT, SOURCE_EPOCH, GENERATION, PARTITION_ID, OFFSET, INDEX = range(-11, -5)
MAPPING_VERSION, DELETED, CONTENT_HASH, OBSERVED_AT, BEGAN = range(-5, 0)
LINEAGE = slice(GENERATION, DELETED)
"""The columns of a row that its children carry too: CHILD_SYSTEM_COLUMNS."""
REVISION = -12
"""Position of `source_revision` from the end; only where the mapping has a revision."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an observation stands and who owns it.

    `offset` is its own offset in the log; rows take the original one if the observation has it.
    `began`: offset of the begin mark of the snapshot this page belongs to; None for changes.
    """

    partition_id_no: int
    generation: int
    offset: int
    tenant: str | None
    began: int | None


@dataclass(slots=True)
class Mapped:
    """What became of one observation.

    `outcomes` has one byte per record of this part: 0 where `rows` has a row whose `_index` is
    `first_index` + position, else final. `other_keys`: keys of records that became no row though
    their key is readable (quarantined, and ignored in a snapshot). `unreadable`: listed records
    whose key cannot be read; one of them withholds the sweep of that snapshot. `children`: by the
    `_index` of a row, its rows of each child table in the order of `MappingSpec.children`; a row
    without any is left out.
    """

    first_index: int
    outcomes: bytearray
    rows: list[Row] = field(default_factory=list)
    faults: list[RecordFault] = field(default_factory=list)
    other_keys: list[Key] = field(default_factory=list)
    unreadable: int = 0
    children: dict[int, Children] = field(default_factory=dict)

    def listed_keys(self, key_count: int, *, changes: bool) -> list[Key]:
        """Keys that this page shows to exist, for the presence set of an open snapshot.

        `changes`: the page is one of changes, where a tombstone shows no existence.
        """
        shown = [row[:key_count] for row in self.rows if not (changes and row[DELETED])]
        return shown + self.other_keys


@dataclass(frozen=True, slots=True)
class CompiledChild:
    """One child table, ready to run.

    `columns`: the parent's key, the child's own key, the other columns, `position` unless it is
    the key, then CHILD_SYSTEM_COLUMNS. `parents` and `keys`: how many the first two are together
    with what stands before them.
    """

    spec: ChildSpec
    columns: tuple[Column, ...]
    parents: int
    keys: int

    @property
    def type_names(self) -> list[str]:
        """What `Copy.set_types` wants, in column order."""
        return [column.copy_type for column in self.columns]

    @property
    def parent_columns(self) -> tuple[Column, ...]:
        """The columns with the parent's key, in order."""
        return self.columns[: self.parents]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the primary key, in order."""
        return self.columns[: self.keys]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledMapping:
    """A mapping version ready to run.

    `columns`: keys (in the order of `spec.key`), the other columns, `source_revision` unless the
    kind is none, then SYSTEM_COLUMNS. Keys come first, so `key_positions` is 0, 1, … and the key of a
    row is `row[:len(key_positions)]`.
    """

    spec: MappingSpec
    version_id: int
    columns: tuple[Column, ...]
    key_positions: tuple[int, ...]
    mapper: Callable[[Observation, Place], Mapped]
    children: tuple[CompiledChild, ...] = ()

    def map_page(self, observation: Observation, place: Place) -> Mapped:
        """Map all records of one observation. Never raises for what a record holds."""
        return self.mapper(observation, place)

    @property
    def type_names(self) -> list[str]:
        """What `Copy.set_types` wants, in column order."""
        return [column.copy_type for column in self.columns]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in order."""
        return self.columns[: len(self.key_positions)]

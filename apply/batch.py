"""What the reading thread hands to the writer: pages and marks of several partitions, in log order.

Invariant: a part says exactly which stretch of its partition it covers, `[start, end)`, as it stood
when the batch was cut; nothing of a later poll is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from apply.mapping.types import CompiledMapping, Mapped
from apply.outcomes import PENDING, Outcome, RecordFault
from schemas.records import Mark, Observation

if TYPE_CHECKING:
    from apply.prepare import Prepared

_PENDING, _APPLIED = bytes([PENDING]), bytes([Outcome.APPLIED])
UNMAPPED = 0
"""The mapping version of pages that no mapping reads: ledger rows only."""


@dataclass(slots=True)
class Work:
    """One observation under one mapping version; `compiled` None: nothing maps its stream.

    `mapped` stays as it is; `outcomes` and `faults` are what this attempt of the sink makes of it.
    `forms`: its rows in the form of binary COPY, where they were formed already; `questions`: or what
    the prefilter asks about each; `child_forms`: the form of their children, for each child table, by
    the index of the row.
    """

    mapping_version: int
    compiled: CompiledMapping | None
    mapped: Mapped
    forms: Sequence[bytearray | None] = ()
    questions: Sequence[bytearray | None] = ()
    child_forms: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    outcomes: bytearray = field(default_factory=bytearray)
    faults: list[RecordFault] = field(default_factory=list)

    def begin(self) -> None:
        """A new attempt: forget what a rolled-back one said."""
        self.outcomes = bytearray(self.mapped.outcomes)
        self.faults = list(self.mapped.faults)

    def settle(self) -> None:
        """Every row that nothing else was said about was written."""
        self.outcomes = self.outcomes.replace(_PENDING, _APPLIED)


@dataclass(slots=True)
class PageWork:
    """One observation, mapped. `present_in`: the open snapshots whose presence it adds to."""

    offset: int
    generation: int
    partition: int
    partition_id_no: int
    observation: Observation
    works: list[Work]
    present_in: tuple[str, ...] = ()

    @property
    def original_offset(self) -> int:
        """The offset that counts for order: of the first copy, where an erasure rewrote the page."""
        original = self.observation.original_offset
        return self.offset if original is None else original


@dataclass(frozen=True, slots=True)
class MarkWork:
    """One mark with its place."""

    offset: int
    generation: int
    partition: int
    partition_id_no: int
    mark: Mark

    @property
    def ends_listing(self) -> bool:
        """Whether rows may be swept because of it."""
        return self.mark.kind == "snapshot_complete"


def before_sweeps(works: Sequence[PageWork | MarkWork | None]) -> int:
    """How many of these, in log order, one batch may hold: no page behind the end of a listing of its
    own partition id. Rows are written before sweeps, and what a sweep clears lets any revision in."""
    ended: set[int] = set()
    for at, work in enumerate(works):
        if isinstance(work, MarkWork) and work.ends_listing:
            ended.add(work.partition_id_no)
        elif isinstance(work, PageWork) and work.partition_id_no in ended:
            return at
    return len(works)


@dataclass(slots=True)
class Part:
    """The share of one partition. `session` names one reading of it, from one claim on.

    `first_ms`: append time of its first record; `last_offset`, `last_key`, `leader_epoch` belong
    to the last record, None if the part only passes what readers do not see (markers, holes).
    """

    partition: int
    session: int
    generation: int
    start: int
    end: int
    first_ms: int | None = None
    last_offset: int | None = None
    last_key: str | None = None
    leader_epoch: int | None = None
    pages: list[PageWork] = field(default_factory=list)
    marks: list[MarkWork] = field(default_factory=list)

    def until(self, offset: int) -> Part:
        """Nothing behind the record at this offset. The position keeps the record it remembers."""
        return replace(
            self,
            end=offset + 1,
            last_offset=None,
            last_key=None,
            pages=[page for page in self.pages if page.offset <= offset],
            marks=[mark for mark in self.marks if mark.offset <= offset],
        )


@dataclass(slots=True)
class Batch:
    """What one transaction of the sink takes. `records` and `size` (bytes) bound the memory.

    `prepared`: what was done before the transaction, by mapping version; only while the batch is as
    it was cut.
    """

    parts: list[Part] = field(default_factory=list)
    records: int = 0
    size: int = 0
    prepared: Mapping[int, Prepared] = field(default_factory=dict)

    def pages(self) -> Iterator[PageWork]:
        """All pages, each partition's in log order."""
        for part in self.parts:
            yield from part.pages

    def marks(self) -> Iterator[MarkWork]:
        """All marks, each partition's in log order."""
        for part in self.parts:
            yield from part.marks

    def without(self, lost: frozenset[int]) -> Batch:
        """The same batch without the partitions that are no longer ours; itself if it has none."""
        kept = [part for part in self.parts if part.partition not in lost]
        return self if len(kept) == len(self.parts) else self._of(kept)

    def until(self, offsets: Mapping[int, int]) -> Batch:
        """The same batch, but of these partitions nothing behind the record at this offset."""
        return self._of(
            [
                part.until(offsets[part.partition]) if part.partition in offsets else part
                for part in self.parts
            ]
        )

    def _of(self, parts: list[Part]) -> Batch:
        records = sum(len(p.observation.records) for part in parts for p in part.pages)
        return Batch(parts, records, self.size)

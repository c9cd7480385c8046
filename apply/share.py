"""One mapping's share of a batch: its rows, and where each row's outcome belongs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apply.batch import Batch, PageWork, Work
from apply.mapping.readable import readable_key
from apply.mapping.types import (
    INDEX,
    LINEAGE,
    OFFSET,
    PARTITION_ID,
    Children,
    CompiledMapping,
    Row,
)
from apply.outcomes import PENDING, Outcome, Reason, RecordFault, Refusal
from apply.prepare import Prepared, by_identity

Coordinates = tuple[int, int, int]
"""Number of the partition id, original offset, index: one record."""


def coordinates(row: Row) -> Coordinates:
    """Which record a row came from."""
    return (row[PARTITION_ID], row[OFFSET], row[INDEX])


@dataclass(frozen=True, slots=True)
class Family:
    """One record's rows of each child table, and their form in binary COPY if it was made already."""

    rows: Children
    forms: tuple[bytes, ...] | None


class Share:
    """The pages of a batch that one mapping reads."""

    def __init__(self, compiled: CompiledMapping, prepared: Prepared | None = None) -> None:
        """`prepared`: of exactly the pages that `add` takes in."""
        self.compiled = compiled
        self.prepared = prepared
        self.works: list[tuple[PageWork, Work]] = []
        self._by_place: dict[tuple[int, int], list[Work]] = {}

    def add(self, page: PageWork, work: Work) -> None:
        """Take one page in, in log order."""
        self.works.append((page, work))
        place = (page.partition_id_no, page.original_offset)
        self._by_place.setdefault(place, []).append(work)

    def rows(self) -> list[Row]:
        """All rows, in log order."""
        return [row for _, work in self.works for row in work.mapped.rows]

    def forms(self) -> dict[int, bytearray]:
        """The form of each row that was formed already, by the identity of the row."""
        return by_identity((work.mapped.rows, work.forms) for _, work in self.works)

    def questions(self) -> dict[int, bytearray]:
        """What the prefilter asks about each row, where it was formed already; as `forms`."""
        return by_identity((work.mapped.rows, work.questions) for _, work in self.works)

    def families(self) -> dict[Row, Family]:
        """The children of all rows that have any, by the lineage of the row."""
        if not self.compiled.children:
            return {}
        return {
            row[LINEAGE]: Family(children, work.child_forms.get(row[INDEX]))
            for _, work in self.works
            for row in work.mapped.rows
            if (children := work.mapped.children.get(row[INDEX])) is not None
        }

    def mark(self, rows: Iterable[Row], outcome: Outcome) -> None:
        """Say what became of rows."""
        for row in rows:
            found = self._pending(row)
            if found is not None:
                work, at = found
                work.outcomes[at] = outcome

    def refuse(self, row: Row, refusal: Refusal) -> None:
        """The sink refused this record alone: its outcome, with evidence."""
        found = self._pending(row)
        if found is not None:
            work, at = found
            work.outcomes[at] = refusal.outcome
            key = readable_key(self.compiled, row)
            work.faults.append(RecordFault(row[INDEX], refusal.reason, refusal.detail, key))

    def _pending(self, row: Row) -> tuple[Work, int] | None:
        """The oldest copy of the record that waits for an outcome.

        There are several only where an erasure's copy is in one batch with the page it replaces.
        """
        for work in self._by_place[row[PARTITION_ID], row[OFFSET]]:
            at = row[INDEX] - work.mapped.first_index
            if 0 <= at < len(work.outcomes) and work.outcomes[at] == PENDING:
                return work, at
        return None


def shares(batch: Batch) -> list[Share]:
    """The shares of all mappings that have pages in the batch; begins a new attempt for each page."""
    found: dict[int, Share] = {}
    for page in batch.pages():
        for work in page.works:
            work.begin()
            if work.compiled is None:
                continue
            share = found.get(work.mapping_version)
            if share is None:
                prepared = batch.prepared.get(work.mapping_version)
                share = found[work.mapping_version] = Share(work.compiled, prepared)
            share.add(page, work)
    return list(found.values())


FOREIGN_OWNER = Refusal(
    Reason.FOREIGN_OWNER, "the row of this key belongs to another partition id", Outcome.QUARANTINED
)

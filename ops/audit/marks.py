"""Are the pages that marks and walks name in the log, with the counts named?

Pure but for the index it asks. A mark whose key was tombstoned later has expired with its pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ops.audit.facts import MarkRow
from ops.audit.findings import Findings
from ops.audit.index import LogIndex
from schemas.records import Mark, PassRange

_UNSTORED = ("tick",)


def judge_marks(partition: int, index: LogIndex, findings: Findings) -> int:
    """Checks every mark of the partition; returns how many there are."""
    number = 0
    for offset, mark, cleared in index.marks():
        number += 1
        if cleared is not None:
            continue
        for fault in missing_pages(index, mark.partition_id, mark.plan, mark.scope, mark.passes):
            findings.add(
                "mark_without_pages",
                f"{mark.kind} of {mark.scope}: {fault}",
                partition=partition,
                offset=offset,
                partition_id=mark.partition_id,
            )
        for fault in _not_before(index, offset, mark):
            findings.add(
                "mark_without_pages",
                f"{mark.kind} of {mark.scope}: {fault}",
                partition=partition,
                offset=offset,
                partition_id=mark.partition_id,
            )
    return number


def missing_pages(
    index: LogIndex,
    partition_id: str,
    plan: str,
    scope: str,
    passes: Sequence[PassRange],
    as_of: int | None = None,
) -> Iterator[str]:
    """What is not in the log as these ranges say, in words.

    `as_of`: an offset; what was cleared behind it was there when this was said.
    """
    for named in passes:
        held = index.held(partition_id, plan, scope, named, as_of)
        if held is None:
            continue
        pages = named.last - named.first + 1
        if (held.pages, held.parts, held.records) != (pages, named.parts, named.records):
            yield (
                f"pass {named.pass_}, pages {named.first} to {named.last}: named {pages} pages, "
                f"{named.parts} log records, {named.records} records; the log has "
                f"{held.pages}, {held.parts}, {held.records}"
            )


def _not_before(index: LogIndex, offset: int, mark: Mark) -> Iterator[str]:
    """A mark stands behind its pages, or a crash between them would leave it alone."""
    for named in mark.passes:
        held = index.held(mark.partition_id, mark.plan, mark.scope, named)
        if held is not None and held.last_origin > offset:
            yield f"pass {named.pass_} has a page at {held.last_origin}, behind the mark"


def judge_mark_rows(
    partition: int,
    index: LogIndex,
    rows: Iterable[MarkRow],
    *,
    low: int,
    next_offset: int,
    pending_before_us: int,
    findings: Findings,
) -> None:
    """Marks of the log below the applied offset against the rows of Postgres, both by offset.

    `pending_before_us`: a mark held back since before this time is a suspected gap.
    """
    known = iter(rows)
    row = next(known, None)
    for offset, mark, cleared in index.marks():
        while row is not None and row.offset < offset:
            _row_without_mark(partition, index, row, low, findings)
            row = next(known, None)
        if row is not None and row.offset == offset:
            _compare(partition, mark, row, pending_before_us, findings)
            row = next(known, None)
        elif offset < next_offset and mark.kind not in _UNSTORED and cleared is None:
            findings.add(
                "mark_not_applied",
                f"{mark.kind} of {mark.scope}",
                partition=partition,
                offset=offset,
                partition_id=mark.partition_id,
            )
    while row is not None:
        _row_without_mark(partition, index, row, low, findings)
        row = next(known, None)


def _row_without_mark(
    partition: int, index: LogIndex, row: MarkRow, low: int, findings: Findings
) -> None:
    """Fine for what retention deleted, a snapshot that was cleared, or a mark that was replaced."""
    if row.kind == "caught_up":
        index.add_replaced(row.partition_id, row.plan, row.kind, row.start, row.end)
        return
    if row.offset < low or index.tombstone(row.key, row.offset):
        return
    if index.later_mark(row.key, row.offset):
        return
    newest = index.newest_complete_snapshot(row.partition_id)
    if row.plan == "snapshot" and newest is not None and newest != row.scope:
        return
    findings.add(
        "mark_without_record",
        f"{row.kind} of {row.scope}",
        partition=partition,
        offset=row.offset,
        partition_id=row.partition_id,
    )


def _compare(
    partition: int, mark: Mark, row: MarkRow, pending_before_us: int, findings: Findings
) -> None:
    same = (row.partition_id, row.kind, row.plan, row.scope) == (
        mark.partition_id,
        mark.kind,
        mark.plan,
        mark.scope,
    )
    if not same:
        findings.add(
            "mark_without_record",
            f"Postgres has {row.kind} of {row.scope}, the log {mark.kind} of {mark.scope}",
            partition=partition,
            offset=row.offset,
            partition_id=row.partition_id,
        )
    if row.state == "pending" and row.at_us < pending_before_us:
        findings.add(
            "mark_pending",
            f"{mark.kind} of {mark.scope} waits for pages that it names",
            partition=partition,
            offset=row.offset,
            partition_id=row.partition_id,
        )

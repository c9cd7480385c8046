"""One partition of the log against Postgres: streams both, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ops.audit.checkpoints import ClaimJudge
from ops.audit.facts import (
    ExceptionRow,
    LedgerRow,
    Logged,
    MarkRow,
    Page,
    Position,
    Unreadable,
    Version,
)
from ops.audit.findings import Findings
from ops.audit.index import LogIndex
from ops.audit.marks import judge_mark_rows, judge_marks
from ops.audit.pages import PageJudge, Totals, align
from ops.audit.positions import LIVE, judge_last_record
from ops.facts.log import CheckpointRecord
from schemas.keys import tick_id
from schemas.log.reader import Bounds
from schemas.records import Control, Mark
from schemas.routing import route


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of one partition, each in the order of offsets.

    `tail`: what was appended to the log while it was read; it is not judged, but may be why
    something older was cleaned away meanwhile.
    """

    log: Iterable[Logged]
    tail: Callable[[], Iterable[Logged]]
    ledger: Iterable[LedgerRow]
    exceptions: Iterable[ExceptionRow]
    marks: Iterable[MarkRow]


@dataclass(frozen=True, slots=True)
class Context:
    """What is known before a partition is read. `partitions`: how many the topic has.

    `complete_snapshots`: partition id → the last complete snapshot that Postgres knows.
    """

    partitions: int
    positions: Sequence[Position]
    versions: Sequence[Version]
    checkpoints: Sequence[CheckpointRecord]
    controls: Sequence[Control]
    starts: Mapping[tuple[str, str], str]
    pending_before_us: int
    complete_snapshots: Mapping[str, str] = field(default_factory=dict)


def judge_partition(
    number: int,
    bounds: Bounds,
    sides: Sides,
    context: Context,
    findings: Findings,
    totals: Totals,
) -> int:
    """Judges everything that concerns one partition; returns its number of marks."""
    positions = [p for p in context.positions if p.partition == number]
    live = next((p for p in positions if p.pipeline == LIVE), None)
    following = live.next_offset if live else 0
    wanted = {p.last_offset for p in positions} | {
        r.checkpoint.named.offset for r in context.checkpoints if r.checkpoint.named
    }
    with LogIndex() as index:
        walk = _Walk(number, context.partitions, index, wanted, findings, totals)
        replayed = _replayed(positions, context.versions)
        pages = PageJudge(number, following, context.versions, replayed, findings, totals)
        for at in align(walk.pages(sides.log), sides.ledger, sides.exceptions):
            if at.page is not None:
                pages.judge(at)
                continue
            for row in at.ledger:
                if row.offset < bounds.low:
                    totals.expired += 1
                else:
                    index.add_orphan(row)
            if at.exceptions and not at.ledger and at.offset >= bounds.low:
                findings.add(
                    "exception_differs",
                    "an exception where there is neither page nor outcome",
                    partition=number,
                    offset=at.offset,
                    index=at.exceptions[0].index,
                )
        walk.follow(sides.tail())
        for owner, scope in context.complete_snapshots.items():
            index.knows_complete_snapshot(owner, scope)
        _judge_orphans(number, index, context.versions, findings, totals)
        judge_mark_rows(
            number,
            index,
            sides.marks,
            low=bounds.low,
            next_offset=following,
            pending_before_us=context.pending_before_us,
            findings=findings,
        )
        marks = judge_marks(number, index, findings)
        starts = {} if bounds.low else context.starts  # what retention deleted proved it once
        claims = ClaimJudge(
            number, bounds.low, index, walk.keys, context.controls, starts, findings
        )
        for record in context.checkpoints:
            claims.judge(record)
        for position in positions:
            judge_last_record(position, bounds.low, walk.keys, index, findings)
    return marks


class _Walk:
    """Follows the log once: fills the index, checks keys and routing, hands on the pages."""

    def __init__(
        self,
        number: int,
        partitions: int,
        index: LogIndex,
        wanted: set[int | None],
        findings: Findings,
        totals: Totals,
    ) -> None:
        self._number, self._partitions = number, partitions
        self._index, self._wanted = index, wanted
        self._findings, self._totals = findings, totals
        self._routes: dict[str, int] = {}
        self.keys: dict[int, str] = {}

    def pages(self, log: Iterable[Logged]) -> Iterator[Logged]:
        for record in log:
            if record.offset in self._wanted and record.value is not None:
                self.keys[record.offset] = record.key
            self._key(record)
            value = record.value
            if value is None:
                self._index.add_tombstone(record.offset, record.key)
            elif isinstance(value, Mark):
                self._routing(record, value.partition_id)
                if value.kind != "tick":
                    self._index.add_mark(record.offset, value)
            elif isinstance(value, Page):
                self._page(record, value)
                yield record
            else:
                self._unreadable(record, value)

    def follow(self, tail: Iterable[Logged]) -> None:
        """What stands behind the end that is judged, only as evidence."""
        for record in tail:
            value = record.value
            if value is None:
                self._index.add_tombstone(record.offset, record.key)
            elif isinstance(value, Mark):
                self._index.add_later_mark(value)
            elif isinstance(value, Page) and value.original_offset is not None:
                self._index.add_page(record.offset, value)

    def _page(self, record: Logged, page: Page) -> None:
        if page.foreign:
            self._totals.foreign += 1
            return
        self._routing(record, page.partition_id)
        first = self._index.add_page(record.offset, page)
        if first is not None and page.original_offset != first:
            self._findings.add(
                "key_twice",
                f"{record.key} was first written at {first}",
                partition=self._number,
                offset=record.offset,
                partition_id=page.partition_id,
            )

    def _key(self, record: Logged) -> None:
        expected = record.expected_key
        if expected is not None and expected != record.key:
            self._findings.add(
                "wrong_key",
                f"{record.key}, its content asks for {expected}",
                partition=self._number,
                offset=record.offset,
            )

    def _routing(self, record: Logged, partition_id: str) -> None:
        if partition_id == tick_id(self._number):
            return
        expected = self._routes.get(partition_id)
        if expected is None:
            expected = self._routes[partition_id] = route(partition_id, self._partitions)
        if expected != self._number:
            self._findings.add(
                "wrong_partition",
                f"expected in partition {expected}",
                partition=self._number,
                offset=record.offset,
                partition_id=partition_id,
            )

    def _unreadable(self, record: Logged, value: Unreadable) -> None:
        self._findings.add("unreadable", value.reason, partition=self._number, offset=record.offset)


def _replayed(positions: Sequence[Position], versions: Sequence[Version]) -> dict[int, int]:
    """Mapping version → next offset of its replay, from the pipelines named `replay:M:V`."""
    named = {f"replay:{v.mapping}:{v.version}": v.id for v in versions}
    return {named[p.pipeline]: p.next_offset for p in positions if p.pipeline in named}


def _judge_orphans(
    number: int,
    index: LogIndex,
    versions: Sequence[Version],
    findings: Findings,
    totals: Totals,
) -> None:
    """Outcomes whose page does not stand there: erased in place, expired, or never written."""
    names = {v.id: f"{v.mapping} v{v.version}" for v in versions}
    for orphan, rewritten in index.orphans():
        newest = index.newest_complete_snapshot(orphan.partition_id)
        older = orphan.plan == "snapshot" and newest is not None and newest != orphan.scope
        if rewritten or older or index.tombstone(orphan.key, orphan.offset):
            totals.expired += 1
            continue
        findings.add(
            "outcome_without_page",
            orphan.key,
            partition=number,
            offset=orphan.offset,
            partition_id=orphan.partition_id,
            mapping=names.get(orphan.mapping_version),
        )

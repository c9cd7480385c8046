"""A small, consistent world for the audit: one partition of the log and what Postgres says of it.

Tests break one thing in it and expect exactly the finding that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ops.audit.facts import ExceptionRow, LedgerRow, Logged, MarkRow, Page, Position, Version
from ops.audit.findings import Findings
from ops.audit.pages import Totals
from ops.audit.partition import Context, Sides, judge_partition
from ops.facts.log import CheckpointRecord
from schemas.keys import mark_key
from schemas.log.reader import Bounds
from schemas.records import Control, Mark, Named, PassRange, PlanState, SourceCheckpoint

OWNER = "shop/orders"
DAYS = [f"2024-01-0{day}T00:00:00.000000Z" for day in range(1, 6)]
COUNTS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5}


def page(scope: str, pass_: str, number: int, records: int, **other: object) -> Page:
    found = Page(
        partition_id=OWNER, plan="interval", scope=scope, pass_=pass_, page=number, part=1,
        parts=1, original_offset=None, first_index=0, records=records,
    )  # fmt: skip
    return replace(found, **other)  # type: ignore[arg-type]


def ledger(offset: int, of: Page, outcomes: bytes, version: int = 1) -> LedgerRow:
    counts = [0] * 6
    for byte in outcomes:
        counts[COUNTS[byte]] += 1
    return LedgerRow(
        offset=offset, mapping_version=version, partition_id=of.partition_id, plan=of.plan,
        scope=of.scope, pass_=of.pass_, page=of.page, part=of.part, parts=of.parts,
        original_offset=offset if of.original_offset is None else of.original_offset,
        records=len(outcomes), counts=tuple(counts), outcomes=outcomes,
    )  # fmt: skip


def interval_mark(
    start: str, end: str, *passes: PassRange, kind: str = "interval_complete"
) -> Mark:
    return Mark(
        kind=kind,  # type: ignore[arg-type]
        partition_id=OWNER, plan="interval", scope=f"{start}~{end}", start=start, end=end,
        passes=list(passes), at=1,
    )  # fmt: skip


def named_pass(pass_: str, first: int, last: int, records: int) -> PassRange:
    return PassRange(pass_=pass_, first=first, last=last, parts=last - first + 1, records=records)


def mark_row(offset: int, mark: Mark, state: str = "done") -> MarkRow:
    return MarkRow(
        offset,
        mark.partition_id,
        mark.kind,
        mark.plan,
        mark.scope,
        state,
        0,
        mark.start,
        mark.end,
        mark_key(mark),
    )


def put(log: list[Logged], offset: int, value: Page | Mark) -> Logged:
    key = value.key if isinstance(value, Page) else mark_key(value)
    record = Logged(offset, key, value)
    log.append(record)
    return record


@dataclass
class World:
    """Two complete days: pages 10 and 11 with mark 12, page 20 with mark 21. All is applied."""

    log: list[Logged] = field(default_factory=list)
    tail: list[Logged] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    exceptions: list[ExceptionRow] = field(default_factory=list)
    marks: list[MarkRow] = field(default_factory=list)
    checkpoint: SourceCheckpoint | None = None
    controls: list[Control] = field(default_factory=list)
    versions: list[Version] = field(
        default_factory=lambda: [Version(1, "orders", 1, "shop", "orders", "orders", True)]
    )
    positions: list[Position] = field(default_factory=list)
    starts: dict[tuple[str, str], str] = field(default_factory=dict)
    partitions: int = 1
    complete_snapshots: dict[str, str] = field(default_factory=dict)
    low: int = 0
    stable_end: int = 40

    def judge(self) -> tuple[Findings, Totals]:
        findings, totals = Findings(), Totals()
        checkpoints: Sequence[CheckpointRecord] = (
            [CheckpointRecord(0, 5, self.checkpoint)] if self.checkpoint else []
        )
        judge_partition(
            0,
            Bounds(self.low, self.stable_end, self.stable_end),
            Sides(
                sorted(self.log, key=lambda r: r.offset),
                lambda: self.tail,
                sorted(self.ledger, key=lambda r: (r.offset, r.mapping_version)),
                self.exceptions,
                sorted(self.marks, key=lambda r: r.offset),
            ),
            Context(
                partitions=self.partitions, positions=self.positions, versions=self.versions,
                checkpoints=checkpoints, controls=self.controls, starts=self.starts,
                pending_before_us=10, complete_snapshots=self.complete_snapshots,
            ),
            findings,
            totals,
        )  # fmt: skip
        return findings, totals

    def kinds(self) -> dict[str, int]:
        return dict(self.judge()[0].counts)

    def replace_mark(self, offset: int, mark: Mark) -> None:
        """Another mark at this offset, in the log and in Postgres."""
        self.log = [r for r in self.log if r.offset != offset]
        self.marks = [m for m in self.marks if m.offset != offset]
        put(self.log, offset, mark)
        self.marks.append(mark_row(offset, mark))


def world() -> World:
    """A clean world."""
    found = World()
    one, two = f"{DAYS[0]}~{DAYS[1]}", f"{DAYS[1]}~{DAYS[2]}"
    first, second, third = page(one, "a", 1, 3), page(one, "a", 2, 2), page(two, "b", 1, 4)
    put(found.log, 10, first)
    put(found.log, 11, second)
    put(found.log, 12, interval_mark(DAYS[0], DAYS[1], named_pass("a", 1, 2, 5)))
    put(found.log, 20, third)
    last = put(found.log, 21, interval_mark(DAYS[1], DAYS[2], named_pass("b", 1, 1, 4)))
    found.ledger = [
        ledger(10, first, b"\x01\x01\x02"),
        ledger(11, second, b"\x04\x05"),
        ledger(20, third, b"\x01\x03\x01\x04"),
    ]
    found.exceptions = [
        ExceptionRow(11, 1, 0, "quarantined"),
        ExceptionRow(11, 1, 1, "retryable"),
        ExceptionRow(20, 1, 1, "resolved"),
        ExceptionRow(20, 1, 3, "dismissed"),
    ]
    found.marks = [mark_row(r.offset, r.value) for r in found.log if isinstance(r.value, Mark)]
    found.checkpoint = SourceCheckpoint(
        partition_id=OWNER, worker="w", sequence=7, written_at=1, named=Named(21, last.key),
        plans={"interval": PlanState(definition_hash="h", complete_before=DAYS[2])},
    )  # fmt: skip
    found.positions = [Position("live", 0, 0, 22, 21, last.key)]
    return found

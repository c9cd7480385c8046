"""An audit from start to end, on a system that may be running.

Order is the proof: Kafka's mirror first, then the ends of the checkpoints, then Postgres at one
instant, then the ends of the pages. Whatever is written meanwhile can only make the later reading
larger, so nothing looks ahead that is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka.admin import AdminClient

from ops.audit.checkpoints import SequenceJudge
from ops.audit.coverage import judge_coverage
from ops.audit.facts import Position, logged
from ops.audit.findings import Findings
from ops.audit.lineage import judge_table
from ops.audit.partition import Context, Sides, judge_partition
from ops.audit.positions import LIVE, judge_positions
from ops.audit.report import PartitionRead, Report
from ops.audit.sink import SinkSnapshot
from ops.facts import log
from schemas.log.reader import Bounds, PartitionReader
from schemas.settings import Settings

_MARKERS_S = 30.0
"""How long the marker of a committed transaction may take to reach every partition."""


def audit(
    settings: Settings,
    *,
    starts: Mapping[tuple[str, str], str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Re-read the whole log and compare. `starts`: (source, stream) →
    declared start of its past."""
    began = time.monotonic()
    report = Report(Findings())
    admin = log.connect(settings)
    topics = (settings.observations, settings.checkpoints, settings.control)
    counts = log.partition_counts(admin, topics)
    many = counts[settings.observations]
    mirrored = {at: one.offset for at, one in log.mirrored(settings, many).items()}

    tell("source checkpoints")
    sequence = SequenceJudge(many, report.findings)
    for record in log.checkpoints(settings, log.ends(admin, settings.checkpoints, many)):
        sequence.see(record)
    report.checkpoints, report.partition_ids = sequence.number, len(sequence.last)
    decisions = log.controls(settings, log.ends(admin, settings.control, 1))
    controls = [control for _, control in decisions]

    with SinkSnapshot(settings.postgres) as sink:
        positions, versions = sink.positions(), sink.versions()
        snapshots = sink.complete_snapshots()
        named = [r for r in sequence.last.values() if r.checkpoint.named]
        ends = _ends(settings, admin, many, named)
        judge_positions(positions, ends, mirrored, report.findings)
        for number in range(many):
            tell(f"partition {number} of {many}")
            context = Context(
                partitions=many,
                positions=positions,
                versions=versions,
                checkpoints=[r for r in sequence.last.values() if r.partition == number],
                controls=controls,
                starts=starts or {},
                pending_before_us=int((time.time() - settings.mark_deadline_s) * 1e6),
                complete_snapshots=snapshots,
            )
            _partition(settings, number, ends[number], sink, context, report)
        tell("rows and coverage")
        for table, version in {v.table: v for v in versions if v.live}.items():
            report.rows[table] = judge_table(sink, version, versions, report.findings)
        report.coverage = judge_coverage(
            sink.searched_by_marks(), sink.searched_by_coverage(), report.findings
        )
        report.open_gaps = sink.open_gaps()
    report.seconds = time.monotonic() - began
    return report


def _partition(
    settings: Settings,
    number: int,
    bounds: Bounds,
    sink: SinkSnapshot,
    context: Context,
    report: Report,
) -> None:
    live = _live(context.positions, number)
    generations = sink.generations(number)
    with PartitionReader(settings, settings.observations, number, "audit") as reader:
        sides = Sides(
            log=(logged(record) for record in reader.read(bounds.low, bounds.stable_end)),
            tail=lambda: (
                logged(record) for record in reader.read(bounds.stable_end, reader.stable_end())
            ),
            ledger=sink.ledger(number, generations),
            exceptions=sink.exceptions(number, generations),
            marks=sink.marks(number, generations),
        )
        marks = judge_partition(number, bounds, sides, context, report.findings, report.totals)
    report.marks += marks
    report.partitions.append(
        PartitionRead(
            number, bounds.low, bounds.stable_end, bounds.end, live.next_offset if live else None
        )
    )


def _live(positions: Sequence[Position], number: int) -> Position | None:
    return next((p for p in positions if p.pipeline == LIVE and p.partition == number), None)


def _ends(
    settings: Settings, admin: AdminClient, many: int, named: list[log.CheckpointRecord]
) -> dict[int, Bounds]:
    """Ends of the pages, asked until the markers of all committed checkpoints have arrived.

    A transaction's markers reach its partitions one after the other: for a moment a checkpoint can
    be read and its page cannot. What is still missing after that is missing.
    """
    deadline = time.monotonic() + _MARKERS_S
    while True:
        ends = log.ends(admin, settings.observations, many)
        late = [
            r
            for r in named
            if r.checkpoint.named
            and ends[r.partition].stable_end <= r.checkpoint.named.offset
            and ends[r.partition].end > r.checkpoint.named.offset
        ]
        if not late or time.monotonic() > deadline:
            return ends
        time.sleep(0.1)

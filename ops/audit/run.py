"""An audit from start to end, on a system that may be running.

Order is the proof: Kafka's mirror first, then the ends of the checkpoints, then for each partition
Postgres at one instant and then the end of its pages. Whatever is written meanwhile can only make
the later reading larger, so nothing looks ahead that is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient

from ops.audit.checkpoints import SequenceJudge
from ops.audit.children import child_tables, judge_children
from ops.audit.coverage import judge_coverage
from ops.audit.facts import Logged, Position, logged
from ops.audit.findings import Findings
from ops.audit.kept import Kept, PartitionResult
from ops.audit.lineage import judge_table
from ops.audit.partition import Context, Sides, judge_partition
from ops.audit.positions import LIVE, judge_positions
from ops.audit.progress import Progress
from ops.audit.report import PartitionRead, Report
from ops.audit.sink import SinkSnapshot
from ops.facts import log
from schemas.log.reader import Bounds, PartitionReader
from schemas.records import Control
from schemas.settings import Settings

_MARKERS_S = 30.0
"""How long the marker of a committed transaction may take to reach every partition."""
_TELL_RECORDS = 500


def audit(
    settings: Settings,
    *,
    starts: Mapping[tuple[str, str], str] | None = None,
    keep: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Re-read the whole log and compare. `starts`: (source, stream) → declared start of its past.

    `keep`: a file for what is proven of each partition; a run that was ended goes on from there.
    """
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
    known = _Known(
        settings,
        admin,
        many,
        list(sequence.last.values()),
        [control for _, control in decisions],
        starts or {},
    )
    with SinkSnapshot(settings.postgres) as sink:
        positions, deployment = sink.positions(), sink.deployment()
        ends = known.ends()
        judge_positions(positions, ends, mirrored, report.findings)
    kept = Kept(keep, f"{settings.prefix} {deployment}")
    report.earlier = {number: one.at for number, one in kept.results.items()}
    left = {n: (ends[n].low, ends[n].stable_end) for n in ends if n not in kept.results}
    progress = Progress(left, time.monotonic())
    for number in left:
        kept.add(_partition(known, number, progress, tell))
        progress.finished(number)
    for _, result in sorted(kept.results.items()):
        report.take(result.read, result.marks, result.totals, result.findings)

    tell("rows and coverage")
    with SinkSnapshot(settings.postgres) as sink:
        versions = sink.versions()
        for table, version in {v.table: v for v in versions if v.live}.items():
            report.rows[table] = judge_table(sink, version, versions, report.findings)
        for child in list(child_tables(sink)):
            report.rows[child.table] = judge_children(sink, child, report.findings)
        report.coverage = judge_coverage(
            sink.searched_by_marks(), sink.searched_by_coverage(), report.findings
        )
        report.open_gaps = sink.open_gaps()
    kept.done()
    report.seconds = time.monotonic() - began
    return report


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read before Postgres, and is the same for every partition."""

    settings: Settings
    admin: AdminClient
    partitions: int
    checkpoints: Sequence[log.CheckpointRecord]
    controls: Sequence[Control]
    starts: Mapping[tuple[str, str], str]

    def ends(self) -> dict[int, Bounds]:
        """Ends of the pages, asked until the markers of all committed checkpoints have arrived.

        A transaction's markers reach its partitions one after the other: for a moment a checkpoint
        can be read and its page cannot. What is still missing after that is missing.
        """
        deadline = time.monotonic() + _MARKERS_S
        named = [(r.partition, r.checkpoint.named) for r in self.checkpoints]
        while True:
            ends = log.ends(self.admin, self.settings.observations, self.partitions)
            late = [
                name
                for number, name in named
                if name and ends[number].stable_end <= name.offset < ends[number].end
            ]
            if not late or time.monotonic() > deadline:
                return ends
            time.sleep(0.1)


def _partition(
    known: _Known, number: int, progress: Progress, tell: Callable[[str], None]
) -> PartitionResult:
    """One partition of the log against Postgres at one instant, which is older than its end."""
    settings = known.settings
    with SinkSnapshot(settings.postgres) as sink:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        context = Context(
            partitions=known.partitions,
            positions=sink.positions(),
            versions=sink.versions(),
            checkpoints=[r for r in known.checkpoints if r.partition == number],
            controls=known.controls,
            starts=known.starts,
            pending_before_us=int((time.time() - settings.mark_deadline_s) * 1e6),
            complete_snapshots=sink.complete_snapshots(),
        )
        bounds = known.ends()[number]
        live = _live(context.positions, number)
        generations = sink.generations(number)
        read = PartitionRead(
            number, bounds.low, bounds.stable_end, bounds.end, live.next_offset if live else None
        )
        result = PartitionResult(read, at)
        with PartitionReader(settings, settings.observations, number, "audit") as reader:

            def judged() -> Iterator[Logged]:
                for count, record in enumerate(reader.read(bounds.low, bounds.stable_end)):
                    if count % _TELL_RECORDS == 0:
                        tell(progress.text(number, record.offset, time.monotonic()))
                    yield logged(record)

            sides = Sides(
                log=judged(),
                tail=lambda: (
                    logged(record) for record in reader.read(bounds.stable_end, reader.stable_end())
                ),
                ledger=sink.ledger(number, generations),
                exceptions=sink.exceptions(number, generations),
                marks=sink.marks(number, generations),
            )
            result.marks = judge_partition(
                number, bounds, sides, context, result.findings, result.totals
            )
    return result


def _live(positions: Sequence[Position], number: int) -> Position | None:
    return next((p for p in positions if p.pipeline == LIVE and p.partition == number), None)

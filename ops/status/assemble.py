"""From facts to status: pure, and without either side where it could not be asked."""

from __future__ import annotations

from collections import Counter

from ingest.following import progress_of
from ops.facts.ask import Unprepared
from ops.facts.deployment import LogFacts
from ops.facts.sink import Row, SinkFacts
from ops.status.expected import Expected, ExpectedStream
from ops.status.horizons import horizons
from ops.status.model import (
    AppliedStatus,
    PartitionStatus,
    PlanStatus,
    ReplayStatus,
    RunStatus,
    Status,
)
from ops.status.parts import (
    by_owner,
    count,
    coverage_status,
    ingest_lag_s,
    next_snapshot_at,
    open_exceptions,
    plan_status,
    snapshot_status,
    source_status,
    us,
)
from ops.status.paused import paused
from ops.status.runs import runs_of
from ops.status.sink import pause_of, sink_troubles
from ops.status.troubles import troubles
from schemas.keys import split_partition_id
from schemas.records import SourceCheckpoint
from schemas.routing import route
from schemas.settings import Settings

OUTCOMES = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")
_LATE_S = 60.0


def assemble(
    settings: Settings,
    now_us: int,
    log: LogFacts | str,
    sink: SinkFacts | str,
    expected: Expected,
) -> Status:
    """The status at `now_us`. A text in place of facts says why that side could not be asked."""
    log_facts = log if isinstance(log, LogFacts) else None
    sink_facts = sink if isinstance(sink, SinkFacts) else None
    builder = _Builder(settings, now_us, log_facts, sink_facts, expected)
    found = tuple(builder.partition_id(name) for name in builder.names())
    outbox = {row["state"]: row for row in sink_facts.outbox} if sink_facts else {}
    waiting = {state: int(row["count"]) for state, row in outbox.items()}
    return Status(
        read_at=now_us,
        kafka=log if isinstance(log, str) else None,
        postgres=sink if isinstance(sink, str) else None,
        partition_ids=found,
        troubles=(
            *sink_troubles(sink if isinstance(sink, str) else None, found, log_facts),
            *troubles(settings, now_us, found, log_facts, sink_facts, expected),
        ),
        unsent_events=waiting.get("unsent", 0) if sink_facts else None,
        dead_events=waiting.get("dead", 0) if sink_facts else None,
        unsent_since=us(outbox["unsent"]["since"]) if "unsent" in outbox else None,
        unsent_copies=waiting.get("copies", 0) if sink_facts else None,
        unsent_copies_since=us(outbox["copies"]["since"]) if "copies" in outbox else None,
        unrelayed_copies=waiting.get("unrelayed", 0) if sink_facts else None,
        open_transactions=_open_transactions(log_facts),
        exceptions=open_exceptions(sink_facts.exceptions) if sink_facts else None,
        replays=_replays(sink_facts),
        topics_missing=isinstance(log, Unprepared),
        tables_missing=isinstance(sink, Unprepared),
    )


def _replays(sink: SinkFacts | None) -> tuple[ReplayStatus, ...]:
    done, left = Counter[str](), Counter[str]()
    for row in sink.positions if sink else ():
        following, end = row["next_offset_to_apply"], row["end_offset"]
        if end is not None:
            start = row["start_offset"]
            done[row["pipeline"]] += following - (following if start is None else start)
            left[row["pipeline"]] += max(0, end - following)
    return tuple(ReplayStatus(name, done[name], left[name]) for name in sorted(left) if left[name])


def _open_transactions(log: LogFacts | None) -> tuple[tuple[int, int], ...]:
    since_ms = log.open_since_ms if log else {}
    return tuple((number, at_ms * 1000) for number, at_ms in sorted(since_ms.items()))


def _both(late_s: float | None, apply_s: float | None) -> float | None:
    """The lag from source to rows; where only one half is known, what that one alone proves."""
    if late_s is not None and apply_s is not None:
        return max(late_s, apply_s)
    return apply_s or None


class _Builder:
    def __init__(
        self,
        settings: Settings,
        now_us: int,
        log: LogFacts | None,
        sink: SinkFacts | None,
        expected: Expected,
    ) -> None:
        self._settings, self._now, self._expected = settings, now_us, expected
        self._log, self._sink = log, sink
        self._partitions = log.partitions if log else settings.partitions
        live = [row for row in sink.positions if row["pipeline"] == "live"] if sink else []
        self._positions: dict[int, Row] = {row["partition"]: row for row in live}
        self._rows = {
            name: by_owner(getattr(sink, name) if sink else [])
            for name in ("coverage", "exceptions", "pending_marks", "snapshots")
        }

    def names(self) -> list[str]:
        """Every partition id that anybody speaks of; those of Gapless itself are left out."""
        known: set[str] = set(self._expected.partition_ids)
        known |= set(self._log.checkpoints) if self._log else set()
        for rows in self._rows.values():
            known |= set(rows)
        if self._sink is not None:
            known |= set(self._sink.outcomes)
        return sorted(name for name in known if not name.startswith("_gapless/"))

    def partition_id(self, name: str) -> PartitionStatus:
        source, stream, _ = split_partition_id(name)
        declared = self._expected.streams.get((source, stream))
        number = route(name, self._partitions)
        record = self._log.checkpoints.get(name) if self._log else None
        checkpoint = record.checkpoint if record else None
        plans = self._plans(checkpoint)
        left = self._expected.left(name)
        # whoever is polled no longer cannot be late, and no horizon comes nearer
        ingest_lag = None if left else ingest_lag_s(plans)
        applied = self._applied(number)
        late = None
        if ingest_lag is not None:
            allowed = declared.every_s + declared.settle_s if declared else 0.0
            late = max(0.0, ingest_lag - allowed)
        lag = _both(late, applied.lag_s)
        exceptions = self._rows["exceptions"].get(name, [])
        return PartitionStatus(
            partition_id=name,
            partition=number,
            state=self._state(name, checkpoint, applied, lag, declared),
            lag_s=lag,
            ingest_lag_s=ingest_lag,
            source=source_status(checkpoint, plans) if checkpoint else None,
            applied=applied,
            coverage=tuple(coverage_status(row) for row in self._rows["coverage"].get(name, [])),
            snapshots=tuple(snapshot_status(row) for row in self._rows["snapshots"].get(name, [])),
            next_snapshot_at=next_snapshot_at(plans, declared),
            runs=() if left else self._runs(declared, plans),
            stages=declared.runs.stages if declared and declared.runs else (),
            outcomes=self._outcomes(name),
            quarantined=count(exceptions, "quarantined") if self._sink else None,
            retryable=count(exceptions, "retryable") if self._sink else None,
            pending_marks=len(self._rows["pending_marks"].get(name, [])) if self._sink else None,
            horizons=horizons(
                self._log,
                number,
                self._now,
                ingest_lag,
                applied.lag_at_most_s if applied.lag_s is None else applied.lag_s,
                next((plan.cursor_age_s for plan in plans if plan.cursor_age_s is not None), None),
                declared,
            ),
        )

    def _runs(
        self, declared: ExpectedStream | None, plans: tuple[PlanStatus, ...]
    ) -> tuple[RunStatus, ...]:
        """Without the log nobody can tell what was searched."""
        if declared is None or declared.runs is None or self._log is None:
            return ()
        changes = next((plan for plan in plans if plan.plan != "snapshot"), None)
        return runs_of(declared.runs, changes, self._now)

    def _plans(self, checkpoint: SourceCheckpoint | None) -> tuple[PlanStatus, ...]:
        if checkpoint is None:
            return ()
        under_way = progress_of(checkpoint, self._now)
        return tuple(
            plan_status(name, state, self._now, under_way.get(name))
            for name, state in sorted(checkpoint.plans.items())
        )

    def _state(
        self,
        name: str,
        checkpoint: SourceCheckpoint | None,
        applied: AppliedStatus,
        lag_s: float | None,
        declared: ExpectedStream | None,
    ) -> str:
        """One word for the line of a partition id, the worst first."""
        if self._expected.left(name):
            return "removed"
        if self._log is not None and paused(self._log.controls, name):
            return "paused"
        if checkpoint is not None and checkpoint.blocked is not None:
            return "blocked"
        if applied.halted is not None:
            return "halted"
        if self._log is None:
            return "unknown"
        if checkpoint is None:
            return "not started"
        if applied.pause is not None or (applied.lag_at_most_s or 0.0) > _LATE_S:
            return "blocked"
        if self._sink is None:
            return "unknown"
        if applied.next_offset_to_apply is None and applied.records_behind:
            return "behind"  # there are pages, and nobody has begun to apply them
        allowed = max(_LATE_S, declared.every_s if declared else 0.0)
        waits = checkpoint.not_before is not None and checkpoint.not_before > self._now
        late_s = lag_s or 0.0
        if waits:  # perhaps nothing was ever read whole, and there is no lag
            late_s = max(late_s, (self._now - checkpoint.written_at) / 1e6)
        if late_s > allowed:
            return "behind"  # also who is told to wait, for however long: somebody has to know
        return "waiting" if waits else "flowing"

    def _applied(self, number: int) -> AppliedStatus:
        row = self._positions.get(number)
        ends = self._log.ends.get(number) if self._log else None
        following = int(row["next_offset_to_apply"]) if row else None
        waiting = self._log.waiting_since_ms.get(number) if self._log else None
        mirrored = self._log.mirrored.get(number) if self._log else None
        waited_s = 0.0 if waiting is None else max(0.0, self._now / 1e6 - waiting / 1e3)
        behind = lag_s = at_most_s = None
        if ends is not None and following is not None:
            behind = max(0, ends.stable_end - following) if waiting is not None else 0
            lag_s = waited_s
        elif ends is not None and self._sink is None and mirrored is not None:
            at_most_s = waited_s
        elif ends is not None and self._sink is not None:
            behind = ends.stable_end - ends.low  # nobody has applied anything of it yet
            lag_s = 0.0 if behind == 0 else None
        return AppliedStatus(
            partition=number,
            next_offset_to_apply=following,
            end=ends.stable_end if ends else None,
            records_behind=behind,
            lag_s=lag_s,
            checkpointed_at=us(row["checkpointed_at"]) if row else None,
            owner=row["owner"] if row else None,
            halted=row["halted"] if row else None,
            mirrored=mirrored.offset if mirrored else None,
            lag_at_most_s=at_most_s,
            pause=pause_of(mirrored, row, self._sink is not None),
        )

    def _outcomes(self, name: str) -> dict[str, int] | None:
        if self._sink is None:
            return None
        counts = self._sink.outcomes.get(name, [0] * 6)
        return dict(zip(OUTCOMES, counts, strict=True))

"""What status says, as plain values: the same for text, JSON, metrics and the page.

Times are microseconds since the epoch, durations seconds. None means unknown, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ingest.headway import Progress
from schemas.log.pause import Pause


@dataclass(frozen=True, slots=True)
class Stretch:
    """An open or failed interval. `pages`, `records`: durable so far. `reason` of a failure."""

    start: str
    end: str
    pages: int = 0
    records: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """What ingest has proven durable for one plan; `progress`: of a poll in work."""

    plan: str
    lag_s: float | None
    complete_before: str | None = None
    cursor: str | None = None
    cursor_age_s: float | None = None
    polled_at: int | None = None
    snapshot_id: str | None = None
    walk_pages: int = 0
    walk_records: int = 0
    open: tuple[Stretch, ...] = ()
    done: tuple[Stretch, ...] = ()
    failed: tuple[Stretch, ...] = ()
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The source checkpoint of one partition id."""

    sequence: int
    worker: str
    written_at: int
    source_epoch: int
    not_before: int | None
    plans: tuple[PlanStatus, ...]


@dataclass(frozen=True, slots=True)
class AppliedStatus:
    """Where apply stands in the log partition of a partition id. Offsets of the log.

    `mirrored`: everything below it was applied by what Kafka knows; `lag_at_most_s`: by that, where
    Postgres could not be asked. `pause`: why a worker waits for its sink, as it told Kafka.
    """

    partition: int
    next_offset_to_apply: int | None = None
    end: int | None = None
    records_behind: int | None = None
    lag_s: float | None = None
    checkpointed_at: int | None = None
    owner: str | None = None
    halted: dict[str, Any] | None = None
    mirrored: int | None = None
    lag_at_most_s: float | None = None
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class CoverageStatus:
    """Which stretch of one plan was searched, and what of it failed or is lost.

    `records` and `errors` are sightings, of all searches together: a record that is read again counts
    again. `errors`: those that had no row when they were read, less what is known to have healed.
    """

    plan: str
    start_at: int
    end_at: int
    pages: int
    records: int
    failed: int
    gaps: int
    errors: int


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The last snapshot of one mapping."""

    snapshot: str
    mapping: str | None
    state: str
    listed: int
    swept: int
    unreadable: int
    note: str | None
    at: int


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One occurrence of a schedule with its closed interval `[start_at, end_at)`.

    `state`: expected, started, searched, failed, or overdue: not searched at `due_at`.
    """

    run_id: str
    start_at: int
    end_at: int
    due_at: int | None
    state: str


@dataclass(frozen=True, slots=True)
class Horizons:
    """How long something can still be had. `topic_s` None: kept for ever."""

    upstream_s: float | None = None
    topic_known: bool = False
    topic_s: float | None = None
    topic_observed_s: float | None = None
    tombstones_s: float | None = None
    token_s: float | None = None
    share_used: float | None = None
    time_left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that waits for somebody: what, since when, what unblocks it, where to look."""

    kind: str
    partition_id: str | None
    what: str
    since: int | None
    unblocks: str
    look: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition id. `lag_s`: how much later than its schedule its newest facts are rows.
    `runs`: the last ones of a schedule with runs and the next; `stages`: of the observed pipeline.

    `outcomes` are of sightings: a record that is read again counts again. `quarantined` and
    `retryable` are records that are open now. Where Postgres could not be asked `outcomes` is None,
    and coverage and snapshots are empty because they are unknown.
    """

    partition_id: str
    partition: int
    state: str
    lag_s: float | None
    ingest_lag_s: float | None
    source: SourceStatus | None
    applied: AppliedStatus
    coverage: tuple[CoverageStatus, ...] = ()
    snapshots: tuple[SnapshotStatus, ...] = ()
    next_snapshot_at: int | None = None
    runs: tuple[RunStatus, ...] = ()
    stages: tuple[str, ...] = ()
    outcomes: dict[str, int] | None = None
    quarantined: int | None = 0
    retryable: int | None = 0
    pending_marks: int | None = 0
    horizons: Horizons = field(default_factory=Horizons)


@dataclass(frozen=True, slots=True)
class OpenExceptions:
    """Records of one mapping that wait for one reason; `since`: the oldest was first refused then."""

    mapping: str
    state: str
    reason: str
    records: int
    since: int


@dataclass(frozen=True, slots=True)
class ReplayStatus:
    """A replay that has not reached its end, in offsets over all partitions."""

    pipeline: str
    done: int
    left: int


@dataclass(frozen=True, slots=True)
class Status:
    """The whole deployment. `kafka`, `postgres`: None, or why they could not be asked; `topics_missing`,
    `tables_missing`: they answered, and lack these.

    `unsent_since`: when the oldest event that waits was written, microseconds. Copies of quarantined
    records are no such events: `unsent_copies` wait, `unsent_copies_since` the oldest was written;
    `unrelayed_copies` are those of a deployment where no relay has run yet.
    `open_transactions`: (log partition, append time of its oldest undecided record).
    """

    read_at: int
    kafka: str | None
    postgres: str | None
    partition_ids: tuple[PartitionStatus, ...]
    troubles: tuple[Trouble, ...]
    unsent_events: int | None = 0
    dead_events: int | None = 0
    unsent_since: int | None = None
    unsent_copies: int | None = 0
    unsent_copies_since: int | None = None
    unrelayed_copies: int | None = 0
    open_transactions: tuple[tuple[int, int], ...] = ()
    exceptions: tuple[OpenExceptions, ...] | None = ()
    replays: tuple[ReplayStatus, ...] = ()
    topics_missing: bool = False
    tables_missing: bool = False

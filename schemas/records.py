"""The records of the log as typed values: observations, marks, source checkpoints, control.

Times are integers, microseconds since the epoch, UTC. Framing is `codec`'s duty, keys are `keys`'.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

PlanName = Literal["interval", "keyset", "cursor", "snapshot", "python", "singer"]
BY_TIME = ("interval", "keyset")
"""Plans whose state is a frontier in the source's time: `complete_before`, open, done, failed."""
MarkKind = Literal[
    "interval_complete",
    "interval_failed",
    "snapshot_begin",
    "snapshot_complete",
    "gap",
    "caught_up",
    "tick",
]
MissingReason = Literal["erased", "oversized", "unsplittable"]
ControlAction = Literal["pause", "resume", "reset", "accept_failed", "snapshot_now"]


class MissingRecord(Struct, frozen=True):
    """A slot of a page without bytes: why, and what evidence is left. `size` in bytes."""

    index: int
    why: MissingReason
    size: int
    sha256: bytes | None = None


class Observation(Struct, frozen=True, kw_only=True):
    """One page (or one part of a large page) as it was fetched."""

    partition_id: str
    plan: str
    scope: str
    pass_: str = field(name="pass")
    page: int
    part: int = 1
    parts: int = 1
    source_epoch: int = 0
    original_offset: int | None = None
    reason: str
    run: str | None = None
    method: str
    url: str
    definition_hash: str
    status: int
    requested_at: int
    received_at: int
    server_time: int | None = None
    as_of: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    request_token: str | None = None
    next_token: str | None = None
    envelope: bytes = b""
    records: list[bytes] = field(default_factory=list)
    missing: list[MissingRecord] = field(default_factory=list)
    first_index: int = 0


class PassRange(Struct, frozen=True, kw_only=True):
    """Pages `first`..`last` (inclusive) of one pass; `parts` log records, `records` rows as fetched.

    No page of the range has more than `parts_max` parts.
    """

    pass_: str = field(name="pass")
    first: int
    last: int
    parts: int
    records: int
    parts_max: int = 1


class Mark(Struct, frozen=True, kw_only=True):
    """A durable statement about the pages that stand before it in its log partition."""

    kind: MarkKind
    partition_id: str
    plan: str
    scope: str
    start: str | None = None
    end: str | None = None
    passes: list[PassRange] = field(default_factory=list)
    source_epoch: int = 0
    stable: bool = False
    reason: str | None = None
    run: str | None = None
    at: int


class Named(Struct, frozen=True):
    """The last page or mark that a checkpoint covers: its offset and its exact key."""

    offset: int
    key: str


class Blocked(Struct, frozen=True):
    """What holds a partition id up, since when, and what an operator can do about it."""

    reason: str
    since: int
    unblocked_by: str


class Walk(Struct, frozen=True, kw_only=True):
    """Where a walk through the pages of one scope stands; the last of `passes` is the current one.

    `page` is the number of the next page; 1 means that the walk begins, perhaps for another time.
    `token_at` is when the token came.
    """

    scope: str
    page: int = 1
    passes: list[PassRange] = field(default_factory=list)
    token: str | None = None
    token_at: int | None = None
    last_id: str | None = None
    restarts: int = 0
    started_at: int | None = None


class OpenInterval(Struct, frozen=True, kw_only=True):
    """An interval `[start, end)` being fetched; `walk` is None until its first page."""

    start: str
    end: str
    reason: str
    walk: Walk | None = None


class Done(Struct, frozen=True):
    """A completed interval beyond `complete_before`."""

    start: str
    end: str


class Failed(Struct, frozen=True):
    """An interval that could not be fetched; an operator may accept it by name."""

    start: str
    end: str
    reason: str


class KeptSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot whose pages are still in the log; one that was given up is not `complete`."""

    snapshot_id: str
    passes: list[PassRange] = field(default_factory=list)
    complete: bool = True


class PlanState(Struct, frozen=True, kw_only=True):
    """The durable state of one plan of one partition id.

    `empty` is the stretch without records that the cumulative `caught_up` mark speaks of;
    `tombstone_due` are the ids of those of `previous` whose keys are still to be tombstoned.
    """

    definition_hash: str
    complete_before: str | None = None
    cursor: str | None = None
    cursor_pending: str | None = None
    cursor_issued_at: int | None = None
    identity: str | None = None
    snapshot_id: str | None = None
    polled_at: int | None = None
    walk: Walk | None = None
    open: list[OpenInterval] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    empty: Done | None = None
    width_us: int | None = None
    tombstone_due: list[str] = field(default_factory=list)
    previous: list[KeptSnapshot] = field(default_factory=list)
    state: bytes | None = None


class Sample(Struct, frozen=True):
    """How far a poll was at one moment; `covered_us` of the source's time."""

    at: int
    pages: int
    records: int
    covered_us: int


class Headway(Struct, frozen=True, kw_only=True):
    """What the poll in work of one plan has brought since its first page was asked for.

    `start`: where it began in the source's time, only of plans by time. `polled_at`: its plan's when
    it began, another one means that it is over. `samples`: a few earlier moments, oldest first.
    """

    since: int
    start: str | None = None
    polled_at: int | None = None
    pages: int = 0
    records: int = 0
    samples: list[Sample] = field(default_factory=list)


class SourceCheckpoint(Struct, frozen=True, kw_only=True):
    """What ingest has proven durable for one partition id. `persist_s` and `answer_s` in seconds;
    `headway` by plan, of those in the middle of a poll.
    """

    partition_id: str
    worker: str
    sequence: int
    control_offset: int = -1
    source_epoch: int = 0
    written_at: int
    not_before: int | None = None
    named: Named | None = None
    blocked: Blocked | None = None
    persist_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)
    headway: dict[str, Headway] = field(default_factory=dict)
    plans: dict[str, PlanState] = field(default_factory=dict)


class Control(Struct, frozen=True, kw_only=True):
    """A decision of an operator; `about` is a partition id, a source or source/stream."""

    action: ControlAction
    about: str
    plan: str | None = None
    start: str | None = None
    end: str | None = None
    by: str
    note: str
    at: int


Record = Observation | Mark | SourceCheckpoint | Control

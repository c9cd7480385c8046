"""Decides what goes into the next transaction, and what its checkpoints may claim. Pure.

Invariant: a checkpoint covers only emissions of its own or an earlier committed transaction, and
names the last page or mark of its partition id that the broker acknowledged. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ingest.emission import Emission, StreamState
from ingest.headway import moved
from schemas import keys
from schemas.records import Headway, Mark, Named, Observation, SourceCheckpoint

PERSIST_KEPT = 16
"""How many recent durations of a kind a checkpoint keeps: enough for an upper tail, small enough to forget."""

Kind = Literal["pages", "tombstones", "tick", "heal"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one transaction; a single emission may exceed `size_bytes` alone."""

    emissions: int = 1_000
    pages: int = 50
    size_bytes: int = 8_000_000


@dataclass(frozen=True, slots=True)
class Head:
    """What the newest durable checkpoint of one partition id says beside its state."""

    sequence: int = 0
    named: Named | None = None
    persist_s: tuple[float, ...] = ()
    answer_s: tuple[float, ...] = ()
    headway: Mapping[str, Headway] = field(default_factory=dict)
    polled: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """One record of the observation topic; without content it is a tombstone."""

    partition_id: str
    key: str
    content: Observation | Mark | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction: records in fetch order, then one checkpoint per partition id of `states`.

    `clear` are partition ids whose checkpoint becomes a tombstone. `emissions` are what it makes
    durable.
    """

    kind: Kind
    records: tuple[Planned, ...] = ()
    states: Mapping[str, StreamState] = field(default_factory=dict)
    emissions: tuple[Emission, ...] = ()
    clear: tuple[str, ...] = ()


def next_transaction(buffered: Sequence[Emission], limits: Limits) -> Transaction | None:
    """The longest allowed beginning of `buffered`; None when there is nothing.

    Tombstones stand alone: clearing an old snapshot is safe only once the transaction that
    replaced it is committed.
    """
    if not buffered:
        return None
    if buffered[0].tombstones:
        return _tombstones(buffered[0])
    taken: list[Emission] = []
    pages = size_bytes = 0
    for emission in buffered[: limits.emissions]:
        pages += 1 if emission.observations else 0
        size_bytes += emission.size
        full = pages > limits.pages or size_bytes > limits.size_bytes
        if emission.tombstones or (taken and full):
            break
        taken.append(emission)
    return Transaction(
        "pages",
        tuple(record for emission in taken for record in _records(emission)),
        {emission.partition_id: emission.state for emission in taken},
        tuple(taken),
    )


def _tombstones(emission: Emission) -> Transaction:
    owner = emission.partition_id
    records = tuple(Planned(owner, key, None) for key in emission.tombstones)
    return Transaction("tombstones", records, {owner: emission.state}, (emission,))


def _records(emission: Emission) -> list[Planned]:
    owner = emission.partition_id
    pages = [Planned(owner, keys.page_key(page), page) for page in emission.observations]
    return pages + [Planned(owner, keys.mark_key(mark), mark) for mark in emission.marks]


def tick(partition: int, now: int) -> Transaction:
    """A record that only keeps the partition alive. `now` in microseconds."""
    return Transaction("tick", (_tick(partition, now),))


def heal(
    partition: int, now: int, states: Mapping[str, StreamState], ghosts: Sequence[str]
) -> Transaction:
    """A tick and every restored checkpoint: its commit ends a transaction whose marker was lost.

    That commit may also publish checkpoints of the lost transaction, so each restored one is
    written again behind them, and `ghosts` (partition ids that only stand there) are cleared.
    """
    return Transaction("heal", (_tick(partition, now),), dict(states), (), tuple(ghosts))


def _tick(partition: int, now: int) -> Planned:
    owner = keys.tick_id(partition)
    mark = Mark(kind="tick", partition_id=owner, plan="tick", scope="-", at=now)
    return Planned(owner, keys.mark_key(mark), mark)


def checkpoints(
    transaction: Transaction,
    offsets: Sequence[int],
    heads: Mapping[str, Head],
    worker: str,
    now: int,
) -> list[SourceCheckpoint]:
    """The checkpoints of `transaction`, whose records were acknowledged at `offsets`.

    `now` in microseconds. Raises ValueError unless every record has its offset.
    """
    named: dict[str, Named] = {}
    for record, offset in zip(transaction.records, offsets, strict=True):
        if record.content is not None:
            named[record.partition_id] = Named(offset, record.key)
    emitted: dict[str, list[Emission]] = {}
    for emission in transaction.emissions:
        emitted.setdefault(emission.partition_id, []).append(emission)
    found: list[SourceCheckpoint] = []
    for partition_id, state in transaction.states.items():
        head, own = heads.get(partition_id, Head()), emitted.get(partition_id, [])
        answers = [one.answer_s for one in own if one.answer_s > 0]
        found.append(
            SourceCheckpoint(
                partition_id=partition_id,
                worker=worker,
                sequence=head.sequence + 1,
                control_offset=state.control_offset,
                source_epoch=state.source_epoch,
                written_at=now,
                not_before=state.not_before,
                named=named.get(partition_id, head.named),
                blocked=state.blocked,
                persist_s=list(head.persist_s),
                answer_s=[*head.answer_s, *answers][-PERSIST_KEPT:],
                headway=moved(head.headway, head.polled, own, now),
                plans=state.plans,
            )
        )
    return found


def head_of(checkpoint: SourceCheckpoint) -> Head:
    """What the next checkpoint of the same partition id continues from."""
    return Head(
        checkpoint.sequence,
        checkpoint.named,
        tuple(checkpoint.persist_s),
        tuple(checkpoint.answer_s),
        checkpoint.headway,
        {name: plan.polled_at for name, plan in checkpoint.plans.items()},
    )


def state_of(checkpoint: SourceCheckpoint) -> StreamState:
    """The state that a checkpoint holds."""
    return StreamState(
        source_epoch=checkpoint.source_epoch,
        not_before=checkpoint.not_before,
        blocked=checkpoint.blocked,
        plans=dict(checkpoint.plans),
        control_offset=checkpoint.control_offset,
    )


def with_persist(head: Head, duration_s: float) -> Head:
    """`head` with one more time from page to committed checkpoint, in seconds."""
    return replace(head, persist_s=(*head.persist_s, duration_s)[-PERSIST_KEPT:])

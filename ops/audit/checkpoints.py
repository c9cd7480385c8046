"""Do source checkpoints claim only what the log proves?

Pure but for the index it asks. The proof is made of marks alone: contiguous complete intervals,
gaps that stand as marks, and failed intervals that an operator has accepted by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ops.audit.findings import Findings
from ops.audit.index import LogIndex
from ops.audit.marks import missing_pages
from ops.audit.spans import holes
from ops.facts.log import CheckpointRecord, Cleared
from schemas.keys import split_partition_id
from schemas.records import Control, PlanState, Walk
from schemas.routing import route

_PROVING = ("interval_complete", "caught_up", "gap")


class SequenceJudge:
    """Checkpoints in the order of their partition: sequences rise, routing is right.

    Keeps the last one of each partition id, which is its state. Behind a tombstone, which says that
    nothing is known of the partition id, its sequence begins again.
    """

    def __init__(self, partitions: int, findings: Findings) -> None:
        self._partitions, self._findings = partitions, findings
        self.last: dict[str, CheckpointRecord] = {}
        self.number = 0

    def see(self, record: CheckpointRecord | Cleared) -> None:
        if isinstance(record, Cleared):
            self.last.pop(record.partition_id, None)
            return
        self.number += 1
        owner = record.checkpoint.partition_id
        before = self.last.get(owner)
        sequence = record.checkpoint.sequence
        if before is not None and sequence <= before.checkpoint.sequence:
            self._findings.add(
                "checkpoint_order",
                f"sequence {sequence} after {before.checkpoint.sequence}"
                f" (written by {record.checkpoint.worker} and {before.checkpoint.worker})",
                partition=record.partition,
                offset=record.offset,
                partition_id=owner,
            )
        if route(owner, self._partitions) != record.partition:
            self._findings.add(
                "wrong_partition",
                f"a checkpoint, expected in {route(owner, self._partitions)}",
                partition=record.partition,
                offset=record.offset,
                partition_id=owner,
            )
        self.last[owner] = record


class ClaimJudge:
    """Judges the states of the partition ids of one log partition, once it was read to its end.

    `keys`: the keys that were found at the offsets that checkpoints name. `starts`: (source,
    stream) → where its past begins by definition, where that is known and all marks are kept.
    """

    def __init__(
        self,
        partition: int,
        low: int,
        index: LogIndex,
        keys: Mapping[int, str],
        controls: Sequence[Control],
        starts: Mapping[tuple[str, str], str],
        findings: Findings,
    ) -> None:
        self._partition, self._low, self._index = partition, low, index
        self._keys, self._controls, self._starts = keys, controls, starts
        self._findings = findings

    def judge(self, record: CheckpointRecord) -> None:
        """The last checkpoint of one partition id."""
        checkpoint = record.checkpoint
        named = checkpoint.named
        if named is not None and not self._stands(named.offset, named.key):
            self._findings.add(
                "checkpoint_names_nothing",
                f"sequence {checkpoint.sequence} names {named.key} at {named.offset},"
                f" there stands {self._keys.get(named.offset, 'nothing')}",
                partition=self._partition,
                offset=named.offset,
                partition_id=checkpoint.partition_id,
            )
        for name, plan in checkpoint.plans.items():
            said_at = named.offset if named else -1
            for fault in self._claims(checkpoint.partition_id, name, plan, said_at):
                self._findings.add(
                    "checkpoint_ahead",
                    f"plan {name}: {fault}",
                    partition=self._partition,
                    offset=named.offset if named else None,
                    partition_id=checkpoint.partition_id,
                )

    def _stands(self, offset: int, key: str) -> bool:
        """It is there; or retention deleted it, or its key was written again or cleared later."""
        if offset < self._low or self._keys.get(offset) == key:
            return True
        index = self._index
        return (
            offset not in self._keys
            and (index.later_mark(key, offset) or index.tombstone(key, offset))
        ) or index.rewrite_of(key, offset)

    def _claims(self, owner: str, name: str, plan: PlanState, said_at: int) -> Iterator[str]:
        """What was cleared after `said_at` was there when the checkpoint was written."""
        yield from self._covered(owner, name, plan)
        for interval in plan.open:
            if interval.walk is not None:
                yield from self._walked(owner, name, interval.walk, said_at)
        if plan.walk is not None:
            yield from self._walked(owner, name, plan.walk, said_at)
        for kept in plan.previous:
            if kept.snapshot_id in plan.tombstone_due:
                continue
            yield from missing_pages(
                self._index, owner, name, kept.snapshot_id, kept.passes, said_at
            )

    def _walked(self, owner: str, name: str, walk: Walk, said_at: int) -> Iterator[str]:
        for fault in missing_pages(self._index, owner, name, walk.scope, walk.passes, said_at):
            yield f"a walk in {walk.scope}: {fault}"

    def _covered(self, owner: str, name: str, plan: PlanState) -> Iterator[str]:
        """`complete_before` and what is done beyond it, against the marks."""
        if plan.complete_before is not None:
            for begin, end in self._unproven(owner, name, plan.complete_before):
                yield (
                    f"claims complete before {plan.complete_before}, but no mark in the log "
                    f"speaks of {begin} to {end}"
                )
        for done in plan.done:
            for begin, end in holes(self._proof(owner, name), done.start, done.end):
                yield f"claims {done.start} to {done.end} done, no mark speaks of {begin} to {end}"

    def _unproven(self, owner: str, name: str, before: str) -> Iterator[tuple[str, str]]:
        """A stream that has just begun claims what lies before its start, and nothing else."""
        source, stream, _ = split_partition_id(owner)
        start = self._starts.get((source, stream))
        if start is None and next(self._proof(owner, name), None) is None:
            first = self._index.first_scope(owner, name)
            start = min(before, first.split("~", 1)[0]) if first else before
        yield from holes(self._proof(owner, name), start, before)

    def _proof(self, owner: str, name: str) -> Iterator[tuple[str, str]]:
        for start, end, kind in self._index.spans(owner, name):
            failed = kind == "interval_failed" and self._accepted(owner, name, start, end)
            if kind in _PROVING or failed:
                yield start, end

    def _accepted(self, owner: str, name: str, start: str, end: str) -> bool:
        source, stream, _ = split_partition_id(owner)
        about = (owner, source, f"{source}/{stream}")
        return any(
            control.action == "accept_failed"
            and control.about in about
            and control.plan in (None, name)
            and (control.start is None or control.start <= start)
            and (control.end is None or end <= control.end)
            for control in self._controls
        )

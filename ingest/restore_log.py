"""Reads from the log what a new owner continues from; runs after the fence, never before it.

Blocking, on the partition's own thread. Which checkpoint counts is decided by `restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import structlog

from ingest import restore
from ingest.committer import Head, head_of, state_of
from ingest.emission import StreamState
from ingest.faults import Refused
from ingest.restore import Candidate, FallBack, Restored, Verdict
from schemas import codec
from schemas.log.reader import (
    Bounds,
    LogRecord,
    LogUnavailable,
    OffsetGone,
    PartitionReader,
    bounds,
)
from schemas.records import Named, Observation, SourceCheckpoint
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_BEAT_EVERY = 256


class LogState:
    """One restore of one log partition. `beat` is called while it moves, for the watchdog."""

    def __init__(self, settings: Settings, partition: int, beat: Callable[[], None]) -> None:
        self._settings, self._partition, self._beat = settings, partition, beat
        # asked after the fence: whatever the previous owner still got in stands below these
        self._pages = bounds(settings, settings.observations, partition)
        self._claims = bounds(settings, settings.checkpoints, partition)
        self._appended_ms: int | None = None

    def read(self) -> Restored:
        """Raises LogUnavailable, or Refused for a checkpoint that this version cannot read."""
        try:
            return self._read()
        except OffsetGone as error:
            raise LogUnavailable(f"the log moved while it was read: {error}") from error

    def _read(self) -> Restored:
        newest = {c.partition_id: c for c in self._newest()}
        states = {owner: state_of(checkpoint) for owner, checkpoint in newest.items()}
        heads = {owner: head_of(checkpoint) for owner, checkpoint in newest.items()}
        fall_backs = self._validate(newest, states, heads)
        undecided = self._undecided()
        hanging = (
            self._pages.stable_end < self._pages.end or self._claims.stable_end < self._claims.end
        )
        return Restored(
            states,
            restore.risen(heads, undecided),
            floor_observations=self._pages.end - 1,
            floor_checkpoints=self._claims.end - 1,
            # a fall-back is written at once: behind the next named page it would look valid again
            heal=hanging or bool(fall_backs),
            ghosts=tuple(sorted(undecided.keys() - newest.keys())),
            fall_backs=fall_backs,
            appended_at=None if self._appended_ms is None else self._appended_ms * 1000,
            worker=restore.last_worker(newest.values()),
        )

    # -- checkpoints -----------------------------------------------------------------------------

    def _newest(self) -> list[SourceCheckpoint]:
        last: dict[str, bytes] = {}
        for record in self._records(self._settings.checkpoints, self._claims):
            if record.value is None:
                last.pop(record.key, None)
            else:
                last[record.key] = record.value
        return [_checkpoint(value) for value in last.values()]

    def _history(self, owners: set[str]) -> dict[str, list[Candidate]]:
        """Every checkpoint of `owners` that compaction left, oldest first."""
        found: dict[str, list[Candidate]] = {owner: [] for owner in owners}
        for record in self._records(self._settings.checkpoints, self._claims):
            if record.key not in owners:
                continue
            if record.value is None:
                found[record.key].clear()
                continue
            checkpoint = _checkpoint(record.value)
            candidate = Candidate(record.offset, checkpoint.sequence, checkpoint.named)
            found[record.key].append(candidate)
        return found

    def _checkpoint_at(self, offset: int) -> SourceCheckpoint:
        topic = self._settings.checkpoints
        with PartitionReader(self._settings, topic, self._partition, "restore") as reader:
            found = next(reader.read(offset, self._claims.stable_end, batch=1), None)
        if found is None or found.offset != offset or found.value is None:
            raise LogUnavailable(f"checkpoint {offset} was compacted while it was read")
        return _checkpoint(found.value)

    def _undecided(self) -> dict[str, int]:
        """Partition id → highest sequence above the last stable offset of the checkpoints.

        The commit that heals may publish them. A tombstone counts as 0.
        """
        where = self._claims
        if where.stable_end >= where.end:
            return {}
        found: dict[str, int] = {}
        topic = self._settings.checkpoints
        with PartitionReader(
            self._settings, topic, self._partition, "restore", committed=False
        ) as reader:
            for record in reader.read(where.stable_end, where.end):
                sequence = 0 if record.value is None else _checkpoint(record.value).sequence
                found[record.key] = max(sequence, found.get(record.key, 0))
        return found

    # -- what they name --------------------------------------------------------------------------

    def _validate(
        self,
        newest: dict[str, SourceCheckpoint],
        states: dict[str, StreamState],
        heads: dict[str, Head],
    ) -> tuple[FallBack, ...]:
        """Replaces the states of invalid checkpoints, and says which."""
        top = restore.highest(newest.values())
        if top is None or self._verdict(top) in (Verdict.THERE, Verdict.EXPIRED):
            return ()
        suspect = {
            owner
            for owner, checkpoint in newest.items()
            if checkpoint.named is not None
            and self._verdict(checkpoint.named) in (Verdict.ABSENT, Verdict.LOST)
        }
        history = self._history(suspect)
        rewritten = self._rewritten(
            {one.named.key for known in history.values() for one in known if one.named is not None}
        )
        found: list[FallBack] = []
        for owner in sorted(suspect):
            chosen = restore.newest_valid(history[owner], lambda n: self._valid(n, rewritten))
            if chosen is not None and chosen.sequence == newest[owner].sequence:
                continue  # an erasure wrote that page again
            older = None if chosen is None else self._checkpoint_at(chosen.offset)
            states[owner], heads[owner] = restore.fallen_back(newest[owner], older)
            lost = newest[owner].named
            if lost is not None:
                found.append(FallBack(owner, lost, chosen.named if chosen else None))
        return tuple(found)

    def _valid(self, named: Named, rewritten: set[tuple[int, str]]) -> bool:
        verdict = self._verdict(named)
        if verdict is Verdict.ABSENT:
            return (named.offset, named.key) in rewritten
        return verdict is not Verdict.LOST

    def _verdict(self, named: Named) -> Verdict:
        where, found = self._pages, None
        if where.low <= named.offset < where.stable_end:
            self._beat()
            topic = self._settings.observations
            # a fresh consumer answers in 10 ms, one that is assigned again or was idle in 0.1 to 1 s
            with PartitionReader(self._settings, topic, self._partition, "restore") as reader:
                found = next(reader.read(named.offset, where.stable_end, batch=1), None)
        if found is not None:
            self._appended_ms = max(self._appended_ms or 0, found.timestamp_ms)
        return restore.judge(named, where.low, where.stable_end, found)

    def _rewritten(self, keys: set[str]) -> set[tuple[int, str]]:
        """Original offsets and keys of the pages among `keys` that an erasure wrote again."""
        found: set[tuple[int, str]] = set()
        for record in self._records(self._settings.observations, self._pages):
            if record.key in keys and record.value is not None:
                page = codec.decode(record.value)
                if isinstance(page, Observation) and page.original_offset is not None:
                    found.add((page.original_offset, record.key))
        return found

    def _records(self, topic: str, where: Bounds) -> Iterator[LogRecord]:
        with PartitionReader(self._settings, topic, self._partition, "restore") as reader:
            for number, record in enumerate(reader.read(where.low, where.stable_end)):
                if number % _BEAT_EVERY == 0:
                    self._beat()
                yield record


def report(partition: int, fall_backs: Iterable[FallBack]) -> None:
    """Says loudly that the log lost acknowledged records."""
    for one in fall_backs:
        _log.error(
            "the log was cut: fetching again",
            partition=partition,
            partition_id=one.partition_id,
            lost_offset=one.lost.offset,
            falls_back_to=None if one.to is None else one.to.offset,
            hint="acknowledged records are gone; look for an unclean leader election or a deleted "
            "topic, and keep min.insync.replicas at 2 with three brokers",
        )


def _checkpoint(value: bytes) -> SourceCheckpoint:
    try:
        found = codec.decode(value)
    except codec.UnreadableValue as error:
        raise Refused(f"a checkpoint cannot be read: {error}") from error
    if not isinstance(found, SourceCheckpoint):
        raise Refused(
            f"a {type(found).__name__} stands in the topic of checkpoints: "
            "another program writes there; give each deployment its own GAPLESS_PREFIX"
        )
    return found

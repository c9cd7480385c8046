"""Chooses the state that a new owner continues from. Pure: the log is read by `restore_log`.

Invariant: a checkpoint counts only if the page or mark it names still stands in the log, was erased
in place, or lies below the log's start. Everything newer than the chosen one is fetched again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from ingest.committer import Head, head_of, state_of
from ingest.emission import StreamState
from schemas.records import Named, SourceCheckpoint


class Verdict(Enum):
    """What the log says about the record that a checkpoint names."""

    THERE = "there"
    EXPIRED = "expired"
    """Below the log's start: removed by retention, not by a truncation."""
    ABSENT = "absent"
    """Nothing at that offset: compacted because the page was rewritten by an erasure, or cut."""
    LOST = "lost"
    """Beyond the end, or another record stands there: the log was cut."""


class Found(Protocol):
    """A committed record of the log, as far as it is looked at here."""

    @property
    def offset(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that compaction left: where it stands, and what it names."""

    offset: int
    sequence: int
    named: Named | None


@dataclass(frozen=True, slots=True)
class FallBack:
    """A partition id whose newest checkpoint named a record that the log lost."""

    partition_id: str
    lost: Named
    to: Named | None
    """What the older checkpoint names that it fell back to; None: it begins again."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a new owner knows after fence and read.

    `floor_observations`, `floor_checkpoints`: no record of ours may be delivered at or below these.
    `heal`: a first transaction must write all of it again. `ghosts`: partition ids that stand only
    in a transaction without a marker. `appended_at`: last known append, in microseconds.
    `worker`: who wrote the newest checkpoint.
    """

    states: Mapping[str, StreamState]
    heads: Mapping[str, Head]
    floor_observations: int
    floor_checkpoints: int
    heal: bool = False
    ghosts: tuple[str, ...] = ()
    fall_backs: tuple[FallBack, ...] = field(default=())
    appended_at: int | None = None
    worker: str | None = None


def judge(named: Named, low: int, stable_end: int, found: Found | None) -> Verdict:
    """`found` is the first committed record at or above the named offset, if any.

    `low` and `stable_end` are the bounds of the partition, asked after the fence.
    """
    if named.offset < low:
        return Verdict.EXPIRED
    if named.offset >= stable_end:
        return Verdict.LOST
    if found is None or found.offset > named.offset:
        return Verdict.ABSENT
    same = found.key == named.key and found.value is not None
    return Verdict.THERE if same else Verdict.LOST


def last_worker(newest: Iterable[SourceCheckpoint]) -> str | None:
    """Who wrote the newest of these checkpoints; None if there is none."""
    last = max(newest, key=lambda checkpoint: checkpoint.written_at, default=None)
    return None if last is None else last.worker


def highest(newest: Iterable[SourceCheckpoint]) -> Named | None:
    """The highest record that any newest checkpoint names: a cut log lacks it before all others."""
    nameds = [checkpoint.named for checkpoint in newest if checkpoint.named is not None]
    return max(nameds, key=lambda named: named.offset, default=None)


def newest_valid(
    candidates: Sequence[Candidate], valid: Callable[[Named], bool]
) -> Candidate | None:
    """The newest of `candidates` (oldest first) that claims nothing which the log lost."""
    for candidate in reversed(candidates):
        if candidate.named is None or valid(candidate.named):
            return candidate
    return None


def risen(heads: Mapping[str, Head], undecided: Mapping[str, int]) -> dict[str, Head]:
    """`heads`, none below the sequence that an undecided transaction holds for its partition id.

    Once the commit that heals has published it, what is written behind it must still rise.
    """
    return {
        owner: replace(head, sequence=max(head.sequence, undecided.get(owner, 0)))
        for owner, head in heads.items()
    }


def fallen_back(
    newest: SourceCheckpoint, chosen: SourceCheckpoint | None
) -> tuple[StreamState, Head]:
    """State and head after a fall-back from `newest` to `chosen`; None begins again.

    The source's epoch never falls, or rows of the lost pages would win over what is fetched again.
    """
    if chosen is None:
        state, named = StreamState(), None
    else:
        state, named = state_of(chosen), chosen.named
    head = replace(head_of(newest), named=named)
    return replace(state, source_epoch=max(state.source_epoch, newest.source_epoch)), head

"""What reaches the writer: batches, at most two waiting, and events, which never wait.

Bounds the memory of the stage: when the sink pauses, the reading thread blocks here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from apply.batch import Batch
from apply.claim import Position
from apply.listings import Listings
from schemas.log.reader import LogRecord


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave these partitions to us."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group took these partitions from us."""

    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class LogChecked:
    """The log agrees with a position; `next_offset` and `generation` are where reading begins.

    `end`: where the log ended when it was asked.
    """

    partition: int
    claim: int
    next_offset: int
    generation: int
    topic_id: str
    end: int


@dataclass(frozen=True, slots=True)
class LogFault:
    """The log does not hold what the position wants: `[first_lost, first_kept)` may be lost."""

    partition: int
    claim: int
    cause: str
    detail: str
    first_lost: int
    first_kept: int


@dataclass(frozen=True, slots=True)
class ReadFault:
    """The reading consumer found that its offset of a partition is gone."""

    partition: int
    session: int
    detail: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """A record that only a newer version of this program can read."""

    partition: int
    session: int
    offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class Suspects:
    """Log records as they were polled, of a partition whose batch has ended the process."""

    partition: int
    session: int
    listings: Listings
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class ReaderFailed:
    """The reading thread dropped all it had and waits for new openings. `lacks`: what it cannot go on
    without, as a reason to pause; None: nothing is known to be missing."""

    detail: str
    lacks: str | None = None


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """The log could not be asked; the check is due again."""

    position: Position
    detail: str


Event = (
    Assigned | Revoked | LogChecked | LogFault | ReadFault | Stuck | Suspects | ReaderFailed
    | CheckFailed
)  # fmt: skip


class Stopped(Exception):
    """The stage ends; whoever waits lets go."""


class Inbox:
    """Safe between threads. One writer takes, others put."""

    def __init__(self, batches: int = 2) -> None:
        self._limit = batches
        self._batches: deque[Batch] = deque()
        self._events: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._applied: deque[Batch] = deque()

    def applied(self, batch: Batch) -> None:
        """The writer is done with it. To free so many rows takes a while: the reader has the time."""
        self._applied.append(batch)

    def free(self) -> None:
        """Let go of what was applied; called by the reader."""
        self._applied.clear()

    def put_event(self, event: Event) -> None:
        """Never waits."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def put_batch(self, batch: Batch, timeout_s: float) -> bool:
        """False if there was no room in time: look at the commands and try again."""
        with self._changed:
            if not self._changed.wait_for(self._room, timeout_s):
                return False
            if self._closed:
                raise Stopped
            self._batches.append(batch)
            self._changed.notify_all()
            return True

    def _room(self) -> bool:
        return self._closed or len(self._batches) < self._limit

    def take(self, timeout_s: float) -> Batch | Event | None:
        """The next event, else the next batch; None after the time-out or once closed."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._closed:
                if self._events:
                    return self._events.popleft()
                if self._batches:
                    found = self._batches.popleft()
                    self._changed.notify_all()
                    return found
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            return None

    def first_ms(self) -> dict[int, int]:
        """Append time of the oldest record waiting here, per partition: for the lag."""
        found: dict[int, int] = {}
        with self._changed:
            for batch in self._batches:
                for part in batch.parts:
                    if part.first_ms is not None:
                        found.setdefault(part.partition, part.first_ms)
        return found

    def close(self) -> None:
        """Wake everybody up; nothing is taken any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

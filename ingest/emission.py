"""What the fetch side hands to the committer: pages and marks with the state they make durable.

An emission is never split over transactions, and a later one never overtakes an earlier one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from schemas.records import Blocked, Mark, Observation, PlanState


@dataclass(frozen=True, slots=True)
class StreamState:
    """The durable part of one partition id. `not_before` in microseconds since the epoch."""

    source_epoch: int = 0
    not_before: int | None = None
    blocked: Blocked | None = None
    plans: dict[str, PlanState] = field(default_factory=dict)
    control_offset: int = -1


@dataclass(frozen=True, slots=True)
class Emission:
    """One step of a poll: the parts of one page or none, then marks, then the state after both.

    `tombstones` are keys to clear in a transaction of their own; an emission that has some has
    neither pages nor marks. `size` in bytes, for the buffer. `answer_s`: the longest that an answer
    behind it took to be whole.
    """

    partition_id: str
    observations: tuple[Observation, ...]
    marks: tuple[Mark, ...]
    state: StreamState
    size: int
    tombstones: tuple[str, ...] = ()
    answer_s: float = 0.0

    def __post_init__(self) -> None:
        if self.tombstones and (self.observations or self.marks):
            raise ValueError("tombstones stand in a transaction of their own")


Emit = Callable[[Emission], Awaitable[None]]


class Poller(Protocol):
    """The fetch side of one owned partition id.

    `due_at`: microseconds since the epoch. `poll` does what is due and returns; faults of the
    source become `blocked` or `not_before` of an emitted state, never an exception.
    """

    @property
    def partition_id(self) -> str: ...

    @property
    def due_at(self) -> int: ...

    def restore(self, state: StreamState | None) -> None: ...

    async def poll(self, emit: Emit) -> None: ...

"""Which snapshots are known, per partition of the log, as the reading thread sees them.

Follows the marks in log order; what an earlier process knew is given at the start. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.records import Mark, Observation


@dataclass(frozen=True, slots=True)
class KnownSnapshot:
    """A snapshot that Postgres knows: `began` is the offset of its begin mark. `open`: its presence
    may still be asked for."""

    partition_id: str
    snapshot: str
    began: int
    open: bool


REMEMBERED = 4
"""Snapshots per partition id. A page of an older one is applied as what it is: an old observation."""


@dataclass(slots=True)
class Listings:
    """The snapshots of one partition of the log."""

    _began: dict[str, dict[str, int]] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Iterable[KnownSnapshot]) -> Listings:
        """What is known when a partition is taken over."""
        listings = cls()
        for one in sorted(known, key=lambda k: k.began):
            listings._began.setdefault(one.partition_id, {})[one.snapshot] = one.began
            if one.open:
                listings._open[one.partition_id] = one.snapshot
        return listings

    def saw_mark(self, mark: Mark, offset: int) -> None:
        """Follow one mark of the log. A begin that is repeated keeps its first offset."""
        if mark.kind == "snapshot_begin":
            began = self._began.setdefault(mark.partition_id, {})
            began.setdefault(mark.scope, offset)
            if len(began) > REMEMBERED:
                del began[next(iter(began))]
            self._open[mark.partition_id] = mark.scope

    def began(self, observation: Observation) -> int | None:
        """Where the snapshot of a listed page began; None for pages of changes."""
        if observation.plan != "snapshot":
            return None
        return self._began.get(observation.partition_id, {}).get(observation.scope)

    def present_in(self, observation: Observation) -> tuple[str, ...]:
        """The snapshots whose presence this page adds to.

        A listed page adds to its own; a page of changes to the newest one, since what changed
        after it began may stand on a page that was listed before. That goes on after its end: its
        sweep may have to wait, and the writer knows when nothing asks for it any more.
        """
        if observation.plan == "snapshot":
            return () if self.began(observation) is None else (observation.scope,)
        scope = self._open.get(observation.partition_id)
        return () if scope is None else (scope,)

"""What the owner of partitions does beside batches: retries, sweeps, overdue marks, quarantine, gauges.

Runs on the writer's thread, about once a second, while the sink is well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import structlog

from apply import marks, metrics
from apply.changes import Change
from apply.evidence import AT_ONCE, expire
from apply.faults import sink_fault
from apply.mapping.types import CompiledMapping
from apply.overtaken import Overtaken
from apply.quarantine import go_on
from apply.queries import load
from apply.retry import REMAPPED_AT_ONCE, Retries
from apply.sink import Connection
from apply.store import Store

_log = structlog.get_logger(__name__)
_SQL = load("chores")
_SNAPSHOTS = load("snapshots")
_LOOK_S = 10.0
_EXPIRE_S = 600.0


class Chores:
    """Remembers which marks it has complained about."""

    def __init__(self, mappings: Sequence[CompiledMapping], mark_deadline_s: float) -> None:
        self._mappings = mappings
        self._retries = Retries(mappings)
        self._overtaken = [Overtaken(one) for one in mappings]
        self._deadline = timedelta(seconds=mark_deadline_s)
        self._look_at: datetime | None = None
        self._expire_at: datetime | None = None
        self._suspected: set[tuple[int, int]] = set()
        self._in_quarantine = 0

    def do(self, store: Store, now: datetime) -> None:
        """Everything that is due. Raises SinkFault."""
        partitions = sorted(store.positions)
        if not partitions:
            return
        try:
            asked = {"now": now, "partitions": partitions}
            found = store.connection.execute(_SQL["anything_due"], asked).fetchone()
            retries, sweeps, stopped = found or (False, False, False)
            if sweeps:
                self._sweep(store)
            if stopped:
                self._go_on(store)
            looks = self._look_at is None or now >= self._look_at
            if looks:
                self._look_at = now + timedelta(seconds=_LOOK_S)
                self._look(store.connection, partitions, now)
        except psycopg.Error as error:
            raise sink_fault(error) from error
        if looks:
            self._judge_quarantine(store, now)
        if retries:
            self._retries.do(store, now)

    def _judge_quarantine(self, store: Store, now: datetime) -> None:
        """What a new mapping, a newer row, or time decides about records in quarantine."""
        if self._retries.remap(store, now) == REMAPPED_AT_ONCE:
            self._look_at = now  # there is more
        if self._in_quarantine:
            for one in self._overtaken:
                one.look(store, now)
        if self._expire_at is None or now >= self._expire_at:
            more = store.beside(lambda c, held: (expire(c, held, self._mappings, now), []))
            wait_s = _LOOK_S if more == AT_ONCE else _EXPIRE_S
            self._expire_at = now + timedelta(seconds=wait_s)

    def _go_on(self, store: Store) -> None:
        claims = {number: held.claim for number, held in store.positions.items()}
        for partition in go_on(store.connection, claims, self._mappings):
            _log.info("goes on: its faults were decided about", partition=partition)

    def _sweep(self, store: Store) -> None:
        asked = {"partitions": sorted(store.positions), "beside": None}
        released = store.connection.execute(_SNAPSHOTS["released"], asked).fetchall()
        for number, partition_id, partition, snapshot in released:
            released_one = _Released(store, number, partition, snapshot)
            if store.beside(released_one.sweep):
                _log.info("released sweep done", partition_id=partition_id, snapshot=snapshot)

    def _look(self, connection: Connection, partitions: list[int], now: datetime) -> None:
        waiting = marks.waiting(connection, partitions)
        for partition in partitions:
            metrics.PENDING_MARKS.labels(str(partition)).set(waiting.get(partition, 0))
        late = marks.overdue(connection, partitions, now - self._deadline) if waiting else []
        metrics.OVERDUE_MARKS.set(len(late))
        for partition, offset, kind, plan, scope, partition_id, since in late:
            if (partition, offset) not in self._suspected:
                self._suspected.add((partition, offset))
                _log.error(
                    "suspected gap: a mark names pages that never came",
                    partition=partition, offset=offset, kind=kind, plan=plan, scope=scope,
                    partition_id=partition_id, since=since.isoformat(),
                )  # fmt: skip
        counted: dict[str, int] = dict(
            connection.execute(_SQL["exceptions"], {"partitions": partitions}).fetchall()
        )
        for state in ("retryable", "quarantined"):
            metrics.QUARANTINED.labels(state).set(counted.get(state, 0))
        self._in_quarantine = counted.get("quarantined", 0)


@dataclass(frozen=True, slots=True)
class _Released:
    """One sweep that an operator has released."""

    store: Store
    partition_id_no: int
    partition: int
    snapshot: str

    def sweep(self, connection: Connection, held: list[int]) -> tuple[bool, list[Change]]:
        """Do it if the partition is still ours."""
        if self.partition not in held:
            return False, []
        return True, self.store.sweep(connection, self.partition_id_no, self.snapshot)

"""The sink: one transaction per batch, fenced by the position rows, all or nothing.

Order: compare and set, rows, exceptions, ledger, presence, marks, outbox, commit. Whatever goes
wrong is either one record's fault, stored as such, or a SinkFault; no record is ever left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import Jsonb

from apply import ledger
from apply.barrier import Barrier, barrier
from apply.batch import Batch
from apply.changes import Change
from apply.claim import Position, claim, reclaim, release
from apply.copies import Copies
from apply.faults import NotPrepared, SinkFault, refusal, sink_fault
from apply.mapping.types import CompiledMapping
from apply.marks import Marks
from apply.outbox import Outbox
from apply.outcomes import counts
from apply.presence import Shown
from apply.quarantine import Exceeded, Quarantine, halt
from apply.queries import load
from apply.report import Clock, Lost, Report
from apply.rows import Landing, Target
from apply.shadow_marks import ShadowMarks
from apply.share import Share, shares
from apply.sink import Connection, connect
from apply.snapshots import Snapshots
from apply.versions import still_ours
from schemas.failpoints import Hit

_SQL = load("position")
_RETRY = load("retry")
T = TypeVar("T")
_BLAMING_LOCK_MS = 1_000
Beside = Callable[[Connection, list[int]], tuple[T, list[Change]]]


class _Way(Enum):
    """How rows are landed: all at once, bisecting what is refused, or also what times out."""

    PLAIN = auto()
    CAREFUL = auto()
    BLAMING = auto()


_PLAIN, _CAREFUL, _BLAMING = _Way.PLAIN, _Way.CAREFUL, _Way.BLAMING


class Store:
    """One pipeline's sink. Used by one thread."""

    def __init__(
        self,
        dsn: str,
        pipeline: str,
        owner: str,
        mappings: Sequence[CompiledMapping],
        *,
        hit: Hit,
        replay: bool = False,
        copies: Copies | None = None,
        beside: ShadowMarks | None = None,
    ) -> None:
        """`replay`: no marks, no presence, no events, and ledger rows that exist stay. `beside`: of
        a replay into tables beside the live ones, which follows snapshots in its own time.

        `copies`: where quarantined records are copied to; None: nowhere.
        """
        self._dsn, self._pipeline, self._owner, self._hit = dsn, pipeline, owner, hit
        self._replay, self._beside = replay, beside
        self._mappings = list(mappings)
        self._targets = {c.version_id: Target(c) for c in mappings}
        self._connection: Connection | None = None
        self._snapshots = Snapshots(self._mappings)
        self._marks, self._outbox = Marks(self._snapshots), Outbox()
        self._quarantine = Quarantine(self._mappings, copies, replay=replay)
        self.copies = copies
        self.positions: dict[int, Position] = {}

    @property
    def connection(self) -> Connection:
        """The open connection. Raises SinkFault if there is none."""
        if self._connection is None or self._connection.closed:
            raise SinkFault("unreachable", "not connected")
        return self._connection

    @property
    def open_connection(self) -> Connection | None:
        """The connection for somebody who only watches it, from any thread; None: there is none."""
        return self._connection

    def expects_beaten(self, version_id: int) -> bool:
        """Whether most rows of this mapping version will be older than what is stored. From any
        thread."""
        return self._targets[version_id].prefilter.expects

    @property
    def connected(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._connection is not None and not self._connection.closed

    def connect(self) -> frozenset[int]:
        """Open a connection and keep what we hold. Returns partitions that somebody else took.

        Raises SinkFault, NotPrepared as `claim` does.
        """
        self.close()
        try:
            connection = self._connection = connect(self._dsn, self._pipeline)
            if not self._replay:
                still_ours(connection, self._mappings)
            for target in self._targets.values():
                target.prepare(connection)
            if self._replay:
                ledger.prepare(connection)
            else:
                self._outbox.prepare(connection)
            return self._keep_claims(connection)
        except (SinkFault, NotPrepared):
            self.close()
            raise
        except psycopg.Error as error:
            self.close()
            raise sink_fault(error) from error

    def _keep_claims(self, connection: Connection) -> frozenset[int]:
        lost = set()
        for held in list(self.positions.values()):
            kept = reclaim(connection, self._pipeline, held, self._owner)
            if kept is None:
                lost.add(held.partition)
                del self.positions[held.partition]
            else:
                self.positions[held.partition] = kept
        if self.positions and not self._replay:
            still_ours(connection, self._mappings)  # again: a replay may have begun meanwhile
        return frozenset(lost)

    def close(self) -> None:
        """Drop the connection; what it had open is rolled back by the server."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def claim(self, partition: int) -> Position:
        """Take a partition over. Raises SinkFault, or NotPrepared: another version has taken over."""
        versions = [c.version_id for c in self._mappings]
        try:
            found = claim(self.connection, self._pipeline, partition, self._owner, versions)
            if not self._replay:
                still_ours(self.connection, self._mappings)
                self._snapshots.adopt(self.connection, partition)
                self._outbox.took_over(self.connection)
        except psycopg.Error as error:
            raise sink_fault(error) from error
        self._hit("apply.after_claim")
        self.positions[partition] = found
        return found

    def forget(self, partitions: Iterable[int]) -> None:
        """Somebody else owns these."""
        for partition in partitions:
            self.positions.pop(partition, None)

    def release(self, partitions: Iterable[int]) -> None:
        """Give these back: nothing is left to terminate. Raises SinkFault."""
        held = [self.positions.pop(p) for p in list(partitions) if p in self.positions]
        try:
            release(self.connection, self._pipeline, held)
        except psycopg.Error as error:
            raise sink_fault(error) from error

    def write(self, batch: Batch, now: datetime, *, blame_timeouts: bool = False) -> Report:
        """One batch, durable when this returns.

        `blame_timeouts`: the same batch has timed out before, so look for one record that does.
        Raises Lost (nothing was written), or SinkFault (perhaps written: connect again and look).
        """
        try:
            try:
                report = self._allowed(batch, now, _BLAMING if blame_timeouts else _PLAIN)
            except psycopg.Error as error:
                if refusal(error) is None or blame_timeouts:
                    raise
                report = self._allowed(batch, now, _CAREFUL)
            self._hit("apply.answer_lost")
            self._advance(report)
            self._snapshots.committed()
            if self._beside is not None:
                self._beside.committed()
            self._hit("apply.after_commit")
        except (Lost, SinkFault):
            raise
        except Exception as error:
            raise sink_fault(error) from error
        return report

    def beside(self, work: Beside[T]) -> T:
        """Work of the owner that moves no position: retries, released sweeps.

        `work` gets the connection and the partitions whose claim is ours for as long as the
        transaction lasts; it returns its result and what it changed. Raises SinkFault.
        """
        held = list(self.positions.values())
        asked = {
            "pipeline": self._pipeline,
            "partitions": [one.partition for one in held],
            "claims": [one.claim for one in held],
        }
        try:
            with self.connection.transaction():
                ours = [row[0] for row in self.connection.execute(_RETRY["hold"], asked)]
                result, changes = work(self.connection, ours)
                self._outbox.write(self.connection, changes)
                self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            raise sink_fault(error) from error
        return result

    def land(
        self, connection: Connection, batch: Batch, *, blame_timeouts: bool = False
    ) -> list[Change]:
        """Rows of single records, each isolated and held against the barrier. For `beside`.

        `blame_timeouts`: a time-out is the fault of the one record in hand.
        """
        way = _BLAMING if blame_timeouts else _CAREFUL
        return self._rows(connection, batch, Report(batch), way, everything=True)

    def note_trial(self, partition: int, trial: Mapping[str, Any]) -> None:
        """Say what is tried next, durably. Raises Lost or SinkFault."""
        asked = {
            "pipeline": self._pipeline,
            "partition": partition,
            "claim": self.positions[partition].claim,
            "trial": Jsonb(trial),
        }
        try:
            noted = self.connection.execute(_SQL["note_trial"], asked).fetchone()
        except psycopg.Error as error:
            raise sink_fault(error) from error
        if noted is None:
            raise Lost(frozenset([partition]))

    def rehearse(self, batch: Batch) -> None:
        """Land the rows as `land` would, and take it back. Raises SinkFault."""
        try:
            with self.connection.transaction(force_rollback=True):
                self.land(self.connection, batch)
        except psycopg.Error as error:
            raise sink_fault(error) from error

    def sweep(self, connection: Connection, partition_id_no: int, snapshot: str) -> list[Change]:
        """A sweep that an operator has released. For `beside`."""
        return self._snapshots.sweep_released(connection, partition_id_no, snapshot)

    def _advance(self, report: Report) -> None:
        for part in report.batch.parts:
            held = self.positions[part.partition]
            self.positions[part.partition] = replace(
                held,
                next_offset=part.end,
                last_offset=held.last_offset if part.last_offset is None else part.last_offset,
                last_key=held.last_key if part.last_key is None else part.last_key,
                leader_epoch=held.leader_epoch if part.leader_epoch is None else part.leader_epoch,
                halted=report.halted.get(part.partition),
            )

    def _allowed(self, batch: Batch, now: datetime, way: _Way) -> Report:
        """One transaction; with less of the batch where a mapping takes no more faults."""
        while True:
            try:
                return self._transaction(batch, now, way)
            except Exceeded as found:
                batch = batch.until(found.offsets)

    def _transaction(self, batch: Batch, now: datetime, way: _Way) -> Report:
        report, connection, clock = Report(batch), self.connection, Clock()
        self._snapshots.started()
        with connection.transaction():
            self._compare_and_set(connection, batch)
            self._hit("apply.after_compare_and_set")
            clock.lap(report, "claim")
            changes = self._rows(connection, batch, report, way)
            clock.lap(report, "upsert")
            for page in batch.pages():
                for work in page.works:
                    work.settle()
                    report.outcomes = [
                        a + b for a, b in zip(report.outcomes, counts(work.outcomes), strict=True)
                    ]
            pages = list(batch.pages())
            written = ledger.write_exceptions(connection, pages, now, replay=self._replay)
            report.exceptions = len(written)
            self._hit("apply.after_exceptions")
            ledger.write_ledger(connection, pages, replay=self._replay)
            if written:
                stops = self._quarantine.take(connection, batch, written, now)
                report.halted = {number: one.halted(now) for number, one in stops.items()}
                claims = {number: self.positions[number].claim for number in report.halted}
                halt(connection, self._pipeline, claims, report.halted)
            self._hit("apply.after_ledger")
            clock.lap(report, "ledger")
            if not self._replay:
                changes += self._marks_and_presence(connection, batch)
                report.events = self._outbox.write(connection, changes)
            elif self._beside is not None:
                self._beside.write(connection, batch)
            self._hit("apply.after_outbox")
            # deferred constraints must fail here, where a record can be isolated, not at commit
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            clock.lap(report, "marks")
            self._hit("apply.before_commit")
        clock.lap(report, "commit")
        return report

    def _compare_and_set(self, connection: Connection, batch: Batch) -> None:
        parts = batch.parts
        claims = {
            p.partition: self.positions[p.partition].claim
            for p in parts
            if p.partition in self.positions
        }
        moved = connection.execute(
            _SQL["compare_and_set"],
            {
                "pipeline": self._pipeline,
                "partitions": [part.partition for part in parts],
                "claims": [claims.get(part.partition, -1) for part in parts],
                "generations": [part.generation for part in parts],
                "starts": [part.start for part in parts],
                "ends": [part.end for part in parts],
                "last_offsets": [part.last_offset for part in parts],
                "last_keys": [part.last_key for part in parts],
                "leader_epochs": [part.leader_epoch for part in parts],
            },
        )
        lost = frozenset(part.partition for part in parts) - {row[0] for row in moved}
        if lost:
            raise Lost(lost)

    def _rows(
        self,
        connection: Connection,
        batch: Batch,
        report: Report,
        way: _Way,
        *,
        everything: bool = False,
    ) -> list[Change]:
        """`everything`: any row may stand below the barrier, not just rewritten ones."""
        changes: list[Change] = []
        every = shares(batch)
        if way is _BLAMING:
            connection.execute(f"SET LOCAL lock_timeout = {_BLAMING_LOCK_MS}")
        for number, share in enumerate(every):
            target = self._targets[share.compiled.version_id]
            landing = Landing(connection, target, share, silent=self._replay)
            # beside live all comes in log order, and its own sweeps are its only ones
            again = self._replay and self._beside is None
            found = self._barrier(connection, share, everything or again)
            landed = landing.land(
                share.rows(), found, careful=way is not _PLAIN, blame_timeouts=way is _BLAMING
            )
            changes += landed.changes
            report.lowered += landed.lowered
            report.broken += landed.broken
            if number == 0:
                self._hit("apply.after_first_upsert")
        if every:
            self._hit("apply.after_last_upsert")
        return changes

    def _barrier(self, connection: Connection, share: Share, everything: bool) -> Barrier | None:
        numbers = [
            page.partition_id_no
            for page, _ in share.works
            if everything or page.original_offset < page.offset
        ]
        if not numbers:
            return None
        found = barrier(connection, numbers, share.compiled.version_id)
        return found if found.swept or found.listing else None

    def _marks_and_presence(self, connection: Connection, batch: Batch) -> list[Change]:
        self._snapshots.enter(connection, batch.marks())
        shown = Shown()
        shown.add(batch.pages(), self._snapshots.is_over)
        shown.write(connection)
        return self._marks.write(connection, batch)

"""The writer's loop: one thread, one connection, every durable effect of the stage.

Takes partitions over, applies batches, does what is due, and pauses while the sink is in trouble.
A batch in hand survives every fault of the sink; whether it was committed is read, never guessed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from apply import metrics
from apply.batch import Batch
from apply.careful import Careful
from apply.faults import NO_FUNCTION, TIMED_OUT, NotPrepared, SinkFault, sink_fault
from apply.inbox import Event, Inbox, ReaderFailed
from apply.ownership import Ownership
from apply.report import Lost
from apply.store import Store
from schemas.failpoints import Hit

_log = structlog.get_logger(__name__)
_TAKE_S = 0.2
_DUE_S = 1.0
_BACKOFF_S = (0.2, 10.0)
_INTERNAL_MAX = 5
"""The same unexpected fault so often in a row is no fault of the sink: the process ends."""
_TIMEOUTS_MAX = 3
"""So often in a row the same batch times out before one record is looked for that does it."""
_WAITS = {NO_FUNCTION: "waiting for a function of a mapping"}
Mirror = Callable[[dict[int, int], str | None], None]
"""Takes next offsets that are durable, and why nothing more is applied; None: it is."""
Chores = Callable[[Store, datetime], None]


class Writer:
    """Runs on a thread of its own; `failed` holds what ended it, if it did not end by `stop`."""

    def __init__(
        self,
        store: Store,
        ownership: Ownership,
        inbox: Inbox,
        mirror: Mirror,
        chores: Chores,
        careful: Careful,
        *,
        hit: Hit,
    ) -> None:
        """`mirror`: where durable offsets are told to Kafka, with what holds them up. `chores`: what
        is due beside batches, about once a second."""
        self._store, self._ownership, self._inbox = store, ownership, inbox
        self._mirror, self._chores, self._hit = mirror, chores, hit
        self._careful = careful
        self._batch: Batch | None = None
        self._due_at = 0.0
        self._failures = 0
        self._internal = 0
        self._timeouts = 0
        self._reason: str | None = None
        self._lacks: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="apply-write", daemon=True)
        self.failed: BaseException | None = None
        self.turned_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def in_hand(self) -> dict[int, int]:
        """Append time of the oldest record in hand, per partition. Safe between threads."""
        batch = self._batch
        if batch is None:
            return {}
        return {p.partition: p.first_ms for p in batch.parts if p.first_ms is not None}

    @property
    def waits_for(self) -> str | None:
        """The reason of the sink's trouble that this waits out; None: there is none."""
        return self._reason

    @property
    def lacks(self) -> str | None:
        """Why nothing is read, though the sink is well; None: it is, or there is nothing."""
        return self._lacks

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout_s: float) -> bool:
        """Finish what is in hand if the sink takes it, give the partitions back. Whether it ended."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._recover(None)
            while not self._stop.is_set():
                self.turned_at = time.monotonic()
                try:
                    self._turn()
                except Exception as error:
                    self._recover(error)
            self._leave()
        except NotPrepared as error:
            self.failed = error  # a table of ours is another version's: whoever runs us says so
        except BaseException as error:
            self.failed = error
            _log.exception("writing ended")
        finally:
            self._store.close()
            self._inbox.close()

    def _turn(self) -> None:
        if self._batch is None:
            found = self._inbox.take(0.0 if self._careful.waits else _TAKE_S)
            if isinstance(found, Batch):
                self._batch = found
            elif found is not None:
                self._event(found)
        if self._batch is None:
            self._batch = self._suspected()
        if self._batch is not None:
            self._apply(self._batch)
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + _DUE_S
            self._ownership.due(now)
            self._chores(self._store, datetime.now(UTC))
            self._healthy()
            if not self._store.positions:
                self._read_on()

    def _suspected(self) -> Batch | None:
        """What is applied carefully, between other batches."""
        if not self._careful.waits:
            return None
        for partition in self._careful.done():
            self._ownership.reopen(partition)
            self._ownership.due(time.monotonic())
        try:
            return self._careful.next()
        except Lost as lost:
            self._ownership.step_down(lost.partitions)
            return None

    def _event(self, event: Event) -> None:
        try:
            self._ownership.heard(event)
            if isinstance(event, ReaderFailed) and event.lacks is not None:
                self._not_read(event.lacks, event.detail)
        except Exception:
            self._inbox.put_event(event)  # the sink failed; what was said stays true
            raise
        self._ownership.due(time.monotonic())

    def _apply(self, batch: Batch) -> None:
        kept = self._still_due(batch)
        ends = {part.partition: part.end for part in batch.parts}
        if kept.parts:
            try:
                blame = self._timeouts >= _TIMEOUTS_MAX
                report = self._store.write(kept, datetime.now(UTC), blame_timeouts=blame)
            except Lost as lost:
                self._ownership.step_down(lost.partitions)
                return  # the batch stays in hand, without them
            metrics.committed(report.batch, report)
            self._report(report.lowered, report.broken)
            self._ownership.stopped(report.halted)
            ends |= {part.partition: part.end for part in report.batch.parts}
        self._inbox.applied(batch)
        self._batch = None
        self._healthy()
        self._read_on()
        self._mirror({at: end for at, end in ends.items() if self._reached(at, end)}, None)
        self._hit("apply.after_kafka_offset")

    def _next_offsets(self) -> dict[int, int]:
        return {p: held.next_offset for p, held in self._store.positions.items()}

    def _reached(self, partition: int, end: int) -> bool:
        held = self._store.positions.get(partition)
        return held is not None and held.next_offset >= end

    def _still_due(self, batch: Batch) -> Batch:
        """What of a batch is still to be applied: a partition may be lost, or committed already."""
        gone = set()
        for part in batch.parts:
            held = self._store.positions.get(part.partition)
            if held is None or not self._ownership.reads(part.partition, part.session):
                gone.add(part.partition)
            elif held.next_offset != part.start or held.generation != part.generation:
                gone.add(part.partition)
                if held.halted is not None:
                    self._ownership.stopped([part.partition])
                elif held.next_offset != part.end:
                    self._ownership.reopen(part.partition)
        return batch.without(frozenset(gone)) if gone else batch

    def _report(self, lowered: int, broken: int) -> None:
        if lowered:
            _log.warning(
                "listed records won over higher revisions: was the collection made again?",
                records=lowered,
            )
        if broken:
            _log.warning("records differ under one revision that is declared exact", records=broken)

    def _healthy(self) -> None:
        self._failures = self._internal = self._timeouts = 0
        if self._reason is not None:
            _log.info("going on", after=self._reason)
            self._reason = None
            metrics.paused(self._lacks)
            self._mirror(self._next_offsets(), self._lacks)

    def _not_read(self, lacks: str, detail: str) -> None:
        """The reader cannot go on without something; said once, until a batch comes again."""
        if lacks == self._lacks:
            return
        _log.error("waiting, nothing can be read", reason=lacks, detail=detail)
        self._lacks = lacks
        metrics.paused(lacks)
        self._mirror(self._next_offsets(), lacks)

    def _read_on(self) -> None:
        if self._lacks is None:
            return
        _log.info("reading again", after=self._lacks)
        self._lacks = None
        metrics.paused(self._reason)
        self._mirror(self._next_offsets(), self._reason)

    def _recover(self, error: Exception | None) -> None:
        """Wait and connect until the sink answers; what we hold is read again."""
        while not self._stop.is_set():
            if isinstance(error, NotPrepared):
                raise error
            if error is not None:
                self._pause(sink_fault(error))
            try:
                self._ownership.step_down(self._store.connect())
                return
            except Exception as again:
                error = again

    def _pause(self, fault: SinkFault) -> None:
        self._failures += 1
        self._internal = self._internal + 1 if fault.reason == "internal" else 0
        self._timeouts = self._timeouts + 1 if fault.reason in TIMED_OUT else 0
        if self._internal >= _INTERNAL_MAX:
            raise RuntimeError(f"the same again and again: {fault}") from fault
        if fault.reason != self._reason:
            _log.warning(
                _WAITS.get(fault.reason, "waiting for Postgres"), reason=fault.reason, detail=fault.detail, exc_info=fault
                if fault.reason == "internal" else None,
            )  # fmt: skip
            self._reason = fault.reason
            metrics.paused(fault.reason)
            self._mirror(self._next_offsets(), fault.reason)
        low, high = _BACKOFF_S
        self._stop.wait(min(high, low * 2 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1))

    def _leave(self) -> None:
        """A graceful end: nobody has to terminate a backend of ours."""
        try:
            self._ownership.leave()
        except Exception as error:
            _log.warning("partitions not given back", fault=str(sink_fault(error)))

"""Takes stretches of the log through a store of its own: what replays in place and beside share.

Resumes from its own position rows, waits out every fault of the sink, stops when another process
has claimed its rows.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from apply.batch import Batch
from apply.decode import Decoder
from apply.faults import SinkFault
from apply.identities import Identities
from apply.listings import REMEMBERED, KnownSnapshot
from apply.mapping.types import CompiledMapping
from apply.pacing import Pacing
from apply.pass_over import Stretch, reading
from apply.queries import load
from apply.replay_report import ReplayRefused, ReplayReport
from apply.report import Lost
from apply.shadow_marks import ShadowMarks
from apply.sink import Connection
from apply.store import Store
from apply.versions import by_stream
from schemas.failpoints import Hit
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_SNAPSHOTS = load("snapshots")
_BACKOFF_S = (0.2, 10.0)
_INTERNAL_MAX = 5
T = TypeVar("T")


def stretch(
    connection: Connection,
    partition: int,
    generation: int,
    start: int,
    end: int,
    beside: int | None = None,
) -> Stretch:
    """A stretch with the snapshots that count there: live's, or those that `beside` has met."""
    asked = {
        "partition": partition, "generation": generation, "most": REMEMBERED, "beside": beside,
    }  # fmt: skip
    known = tuple(KnownSnapshot(*row) for row in connection.execute(_SNAPSHOTS["known"], asked))
    return Stretch(partition, generation, start, end, known)


class ReplayPass:
    """One replay's store and decoder, on the caller's thread; `close` when done."""

    def __init__(
        self,
        settings: Settings,
        compiled: CompiledMapping,
        report: ReplayReport,
        pacing: Pacing,
        *,
        pipeline: str,
        hit: Hit,
        only: str | None = None,
        beside: bool = False,
    ) -> None:
        """`only`: the one partition id that counts. `beside`: the table stands beside the live one."""
        self._settings, self._report, self._pacing, self._hit = settings, report, pacing, hit
        self.marks = ShadowMarks(compiled) if beside else None
        self.store = Store(
            settings.postgres, pipeline, settings.worker, [compiled], hit=hit, replay=True,
            beside=self.marks,
        )  # fmt: skip
        identities = Identities(settings.postgres, threading.Event())
        self._decoder = Decoder(
            by_stream([compiled]), identities.number, unmapped=False, only=only,
            beaten=self.store.expects_beaten,
        )  # fmt: skip

    def close(self) -> None:
        self.store.close()

    def claim(self, partitions: Iterable[int]) -> None:
        """Take the replay's own position rows over. Raises ReplayRefused if somebody else has them."""
        wanted = [one for one in partitions if one not in self.store.positions]

        def take() -> None:
            for partition in wanted:
                self.store.claim(partition)

        self.until_well(take)

    def go(self, stretches: list[Stretch], phase: str, *, rest: bool = True) -> None:
        """Apply these to their ends. `rest`: as live needs it; not while live waits for us."""
        total = self._report.offsets + sum(one.end - one.start for one in stretches)
        with reading(self._settings, self._decoder, stretches, hit=self._hit) as batches:
            for batch in batches():
                self._write(batch)
                self._count(batch)
                self._hit("replay.after_commit")
                self._pacing.batch_done(self._report, total, phase, rest=rest)

    def _write(self, batch: Batch) -> None:
        def write() -> None:
            left = batch.without(self._reached(batch))
            if left.parts:
                found = self.store.write(left, datetime.now(UTC))
                pairs = zip(self._report.outcomes, found.outcomes, strict=True)
                self._report.outcomes = [a + b for a, b in pairs]

        try:
            self.until_well(write)
        except Lost as lost:
            raise ReplayRefused("another process replays this mapping") from lost

    def _count(self, batch: Batch) -> None:
        self._report.offsets += sum(part.end - part.start for part in batch.parts)
        self._report.pages += sum(len(part.pages) for part in batch.parts)

    def until_well(self, work: Callable[[], T]) -> T:
        """Do it, and again after every fault of the sink, which is waited for."""
        failures = 0
        while True:
            try:
                if failures or not self.store.connected:
                    if self.store.connect():
                        raise ReplayRefused("another process replays this mapping")
                return work()
            except SinkFault as fault:
                failures += 1
                if fault.reason == "internal" and failures >= _INTERNAL_MAX:
                    raise
                if failures == 1:
                    _log.warning("waiting for Postgres", reason=fault.reason, detail=fault.detail)
                low, high = _BACKOFF_S
                time.sleep(min(high, low * 2 ** min(failures, 10)) * random.uniform(0.5, 1))

    def _reached(self, batch: Batch) -> frozenset[int]:
        """Partitions whose share of the batch is durable already: the answer to a commit was lost."""
        return frozenset(
            part.partition
            for part in batch.parts
            if (held := self.store.positions.get(part.partition)) is not None
            and held.next_offset >= part.end > part.start
        )

"""One ownership of one log partition, for the event loop: fence, read, write, close.

Every blocking call runs on the partition's own thread under the watchdog. An instance that raised
is abandoned; the next ownership takes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from confluent_kafka import KafkaException

from ingest import restore_log
from ingest.committer import Head, Transaction
from ingest.faults import Refused
from ingest.log_thread import LogThread
from ingest.producer import Floors, LogProducer, Written
from ingest.restore import Restored
from ingest.watchdog import Watch, Watchdog
from schemas.failpoints import Hit
from schemas.settings import Settings

_T = TypeVar("_T")
_SLACK_S = 60.0


class PartitionLog(Protocol):
    """What an owner needs of its log partition."""

    async def take_over(self) -> Restored: ...

    async def write(self, transaction: Transaction, heads: Mapping[str, Head]) -> Written: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


class KafkaPartitionLog:
    """The log partition on Kafka; all its calls are made on `thread`."""

    def __init__(
        self,
        settings: Settings,
        partition: int,
        thread: LogThread,
        watchdog: Watchdog,
        now: Callable[[], int],
        hit: Hit,
    ) -> None:
        self._settings, self._partition = settings, partition
        self._thread, self._watchdog = thread, watchdog
        self._now, self._hit = now, hit
        self._producer: LogProducer | None = None
        self._floors = Floors(-1, -1)

    async def take_over(self) -> Restored:
        """Fences every earlier owner, then reads. Raises Fenced, Refused or LogUnavailable."""
        return await self._call("taking over", self._take_over)

    def _take_over(self, watch: Watch) -> Restored:
        try:
            producer = LogProducer(self._settings, self._partition, self._hit)
        except KafkaException as error:
            raise Refused(f"the properties for Kafka cannot be used: {error}") from error
        self._producer = producer
        self._hit("ingest.before_fence")
        producer.fence()
        watch.beat()
        self._hit("ingest.after_fence")
        restored = restore_log.LogState(self._settings, self._partition, watch.beat).read()
        self._hit("ingest.after_restore")
        self._floors = Floors(restored.floor_observations, restored.floor_checkpoints)
        return restored

    async def write(self, transaction: Transaction, heads: Mapping[str, Head]) -> Written:
        """Commits one transaction. Raises Fenced, Refused or LogUnavailable with it unclear."""
        return await self._call("writing", lambda _: self._write(transaction, heads))

    def _write(self, transaction: Transaction, heads: Mapping[str, Head]) -> Written:
        if self._producer is None:
            raise RuntimeError("written to before it was taken over")
        written = self._producer.write(transaction, heads, self._floors, self._now)
        self._floors = written.floors
        return written

    async def close(self) -> None:
        """After the last transaction is committed."""
        await self._call("closing", self._close)

    def _close(self, _: Watch) -> None:
        if self._producer is not None:
            self._producer.close()

    def abandon(self) -> None:
        """Never used again, and nobody waits for it.

        Comes after a call that is still running: closing a client under it would crash the process.
        """
        self._thread.post(self._abandon)

    def _abandon(self) -> None:
        if self._producer is not None:
            self._producer.abandon()

    async def _call(self, doing: str, work: Callable[[Watch], _T]) -> _T:
        bound_s = 4 * self._settings.message_timeout_ms / 1000 + _SLACK_S
        what = f"{doing} log partition {self._partition}"

        def guarded() -> _T:
            with self._watchdog.guard(what, bound_s) as watch:
                return work(watch)

        return await self._thread.call(guarded)

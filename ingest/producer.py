"""The edge to one transactional producer: the only writer of one log partition.

Order inside a transaction: pages and marks, flush, the checkpoints that cover them, flush, commit.
Invariant: after any error or unclear result this producer is never used again, nothing is aborted
by hand and the outcome is not guessed: the log says it to the next one. Blocking, for one thread.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ingest import committer
from ingest.committer import Head, Transaction
from ingest.faults import LogCut, fault_of, is_credential_fault
from schemas import codec
from schemas.failpoints import Hit
from schemas.log import config
from schemas.log.reader import LogUnavailable
from schemas.records import SourceCheckpoint
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
# that its abort fails is what abandoning a fenced producer looks like
warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


@dataclass(frozen=True, slots=True)
class Floors:
    """The highest offsets known of both topics; everything delivered must lie above them."""

    observations: int
    checkpoints: int


@dataclass(frozen=True, slots=True)
class Written:
    """A committed transaction: its checkpoints, the new floors and the bytes of its records."""

    checkpoints: tuple[SourceCheckpoint, ...]
    floors: Floors
    sizes: tuple[int, ...]


class LogProducer:
    """One incarnation of the producer of `partition`."""

    def __init__(self, settings: Settings, partition: int, hit: Hit) -> None:
        self._settings, self._partition, self._hit = settings, partition, hit
        self._id = settings.transactional_id(partition)
        self._wait_s = settings.message_timeout_ms / 1000 + 1
        self._reported: list[KafkaError] = []
        self._spent = False
        self._producer: Producer | None = Producer(
            {**config.transactional(settings, partition), "error_cb": self._reported.append}
        )

    @property
    def longest_call_s(self) -> float:
        """No blocking call of this edge takes longer, in seconds; the watchdog adds its own."""
        return self._wait_s

    def fence(self) -> None:
        """From here on the broker refuses whatever a previous owner still sends.

        Raises Refused, or LogUnavailable when the transaction coordinator does not answer.
        """
        with self._last_use_if_it_fails("taking over"):
            self._client.init_transactions(self._wait_s)

    def write(
        self,
        transaction: Transaction,
        heads: Mapping[str, Head],
        floors: Floors,
        now: Callable[[], int],
    ) -> Written:
        """Commits `transaction`, or raises Fenced, Refused or LogUnavailable with it unclear.

        `now` in microseconds. After an exception only `abandon` may be called.
        """
        with self._last_use_if_it_fails("writing"):
            return self._write(transaction, heads, floors, now)

    def _write(
        self,
        transaction: Transaction,
        heads: Mapping[str, Head],
        floors: Floors,
        now: Callable[[], int],
    ) -> Written:
        hit, client = self._hit, self._client
        if transaction.kind == "tombstones":
            hit("ingest.before_tombstones")
        hit("ingest.before_begin")
        client.begin_transaction()
        hit("ingest.after_begin")
        values = [
            None if r.content is None else codec.encode(r.content) for r in transaction.records
        ]
        pages = _Deliveries(self._settings.observations, floors.observations)
        for number, (record, value) in enumerate(zip(transaction.records, values, strict=True)):
            if number:
                hit("ingest.between_pages")
            self._produce(pages, record.key, value)
        hit("ingest.after_pages")
        self._flush(pages)
        hit("ingest.after_flush")
        claims = _Deliveries(self._settings.checkpoints, floors.checkpoints)
        covered = committer.checkpoints(
            transaction, pages.offsets(), heads, self._settings.worker, now()
        )
        for checkpoint in covered:
            self._produce(claims, checkpoint.partition_id, codec.encode(checkpoint))
        for partition_id in transaction.clear:
            self._produce(claims, partition_id, None)
        hit("ingest.after_checkpoints")
        self._flush(claims)
        hit("ingest.before_commit")
        client.commit_transaction(self._wait_s)
        hit("ingest.answer_lost")
        hit("ingest.after_commit")
        sizes = tuple(len(value) if value is not None else 0 for value in values)
        return Written(tuple(covered), Floors(pages.floor, claims.floor), sizes)

    def close(self) -> None:
        """Closes a producer whose last transaction is committed; else it is abandoned."""
        if self._spent:
            self.abandon()
            return
        client, self._producer, self._spent = self._producer, None, True
        if client is not None:
            client.close()

    def abandon(self) -> None:
        """Closes it on a thread of its own: closing aborts, and can block for more than 40 s."""
        client, self._producer, self._spent = self._producer, None, True
        if client is not None:
            threading.Thread(
                target=_close, args=(client,), name=f"abandoned-{self._partition}", daemon=True
            ).start()

    @property
    def _client(self) -> Producer:
        if self._producer is None or self._spent:
            raise RuntimeError("a producer is never used again after an error")
        return self._producer

    @contextmanager
    def _last_use_if_it_fails(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            self._spent = True
            raise self._translated(error.args[0], doing) from error
        except BaseException as error:
            self._spent = True
            # a fatal error (fenced) that is found while delivery reports are served comes wrapped
            if isinstance(error, SystemError):
                cause = error.__cause__
                # or not even that: the client lost it between two callbacks, but is told it again
                found = cause.args[0] if isinstance(cause, KafkaException) else self._why_purged()
                if found is None:
                    raise LogUnavailable(
                        f"{doing}: the client ended a call without a reason"
                    ) from error
                raise self._translated(found, doing) from error
            raise

    def _produce(self, to: _Deliveries, key: str, value: bytes | None) -> None:
        give_up_at = time.monotonic() + self._wait_s
        report = to.expect()
        while True:
            try:
                self._client.produce(
                    to.topic,
                    value=value,
                    key=key.encode(),
                    partition=self._partition,
                    on_delivery=report,
                )
            except BufferError:  # librdkafka's queue is full: let it drain
                if time.monotonic() > give_up_at:
                    raise LogUnavailable("the producer's queue does not drain") from None
                self._client.poll(0.1)
                continue
            self._client.poll(0)
            return

    def _flush(self, deliveries: _Deliveries) -> None:
        """Returns only when every record was acknowledged, each above the one before."""
        left = self._client.flush(self._wait_s)
        deliveries.check(left, self._partition)

    def _translated(self, error: KafkaError, doing: str) -> Exception:
        """The fault to raise for `error`; what was reported beside it may say more."""
        doing = f"{doing} log partition {self._partition} as {self._id}"
        for said in reversed(self._reported):
            if is_credential_fault(said):
                return fault_of(said, doing, self._id)
        if error.code() in _PURGED:
            error = self._why_purged() or error
        return fault_of(error, doing, self._id)

    def _why_purged(self) -> KafkaError | None:
        """What made librdkafka throw the queue away.

        Only calls that need another state name it; this one is local and cannot succeed, since the
        transaction is still begun.
        """
        try:
            if self._producer is not None:
                self._producer.begin_transaction()
        except KafkaException as refusal:
            found: KafkaError = refusal.args[0]
            return found if found.code() != KafkaError._STATE else None
        return None


def _close(client: Producer) -> None:
    """Whatever it says: its outcome is read from the log."""
    try:
        client.close()
    except Exception as error:
        _log.debug("abandoned producer closed", error=str(error))


class _Deliveries:
    """Delivery reports of one topic inside one transaction."""

    def __init__(self, topic: str, floor: int) -> None:
        self.topic, self.floor = topic, floor
        self._offsets: list[int | None] = []
        self._error: KafkaError | None = None

    def expect(self) -> Callable[[KafkaError | None, Message], None]:
        """The callback of the next record."""
        self._offsets.append(None)
        return partial(self._report, len(self._offsets) - 1)

    def _report(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = self._error or error
        else:
            self._offsets[number] = message.offset()

    def check(self, left: int, partition: int) -> None:
        """Raises unless all were acknowledged at rising offsets above the floor."""
        if self._error is not None:
            raise KafkaException(self._error)
        missing = self._offsets.count(None)
        if left or missing:
            raise LogUnavailable(f"{max(left, missing)} records of {self.topic} not acknowledged")
        for offset in self.offsets():
            if offset <= self.floor:
                raise LogCut(
                    f"{self.topic}-{partition} acknowledged offset {offset} after {self.floor}: "
                    "the log was cut while it was written to"
                )
            self.floor = offset

    def offsets(self) -> Sequence[int]:
        """Offsets in the order of production; only after a successful `check`."""
        return [offset for offset in self._offsets if offset is not None]

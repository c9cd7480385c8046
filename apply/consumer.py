"""The reading thread: polls the log from given offsets, decodes, maps and cuts batches.

Positions come from Postgres only; the end of a part is what was polled when the batch was cut, so
the writer commits neither more nor less than it applied. Decides nothing about ownership.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from apply.batch import Batch, MarkWork, PageWork, Part
from apply.decode import Decoder
from apply.faults import NO_FUNCTION
from apply.functions.process import FunctionUnavailable
from apply.inbox import Inbox, ReaderFailed, ReadFault, Stopped, Stuck, Suspects
from apply.listings import Listings
from apply.prepare import prepare
from schemas.codec import UnknownSchema
from schemas.failpoints import Hit
from schemas.log import config
from schemas.log.reader import LogRecord, as_record, fitting
from schemas.log.seldom import Seldom
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_NOTED = Seldom()
_POLL_RECORDS = 100
_POLL_S = 0.05
_LINGER_S = 0.1
_WATERMARKS_S = 1.0  # how often the watermarks are looked at
_REST_S = 0.5
_BATCH_BYTES = 8_000_000
_SUSPECT_BYTES = 1_000_000
_GONE = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
)
_TOPIC_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


@dataclass(slots=True)
class Opening:
    """One reading of a partition: from where, and what is known there. `until`: end of a replay.

    `suspects`: some log records are handed over as they are, and then nothing more is read.
    """

    partition: int
    session: int
    generation: int
    next_offset: int
    leader_epoch: int | None
    listings: Listings
    until: int | None = None
    suspects: bool = False


@dataclass(frozen=True, slots=True)
class _Close:
    partitions: frozenset[int]


class Reader:
    """A consumer assigned by hand, on a thread of its own."""

    def __init__(
        self,
        settings: Settings,
        decoder: Decoder,
        inbox: Inbox,
        *,
        hit: Hit,
        role: str = "apply",
    ) -> None:
        self._topic = settings.observations
        self._records = settings.batch_records
        self._decoder, self._inbox, self._hit = decoder, inbox, hit
        self._topic_gone = threading.Event()
        self._properties = {**config.reader(settings, role), "error_cb": self._told}
        self._consumer = Consumer(self._properties)
        self._commands: queue.SimpleQueue[Opening | _Close] = queue.SimpleQueue()
        self._reading: dict[int, Opening] = {}
        self._batch = Batch()
        self._parts: dict[int, Part] = {}
        self._ended: set[int] = set()  # partition ids with the end of a listing in the batch
        self._suspects: dict[int, list[LogRecord]] = {}
        self._wanted = 1
        self._begun = 0.0
        self._watermarks: dict[int, tuple[int, int]] = {}
        self._watermarks_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{role}-read", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self, opening: Opening) -> None:
        """Begin to read, or begin again: an earlier session of the partition ends."""
        self._commands.put(opening)

    def close(self, partitions: Iterable[int]) -> None:
        """Read these no longer."""
        self._commands.put(_Close(frozenset(partitions)))

    def stop(self, timeout_s: float = 10.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def watermarks(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Low and high watermark as last fetched, without asking anybody; from any thread.

        The consumer itself lets one thread in at a time, and whoever polls it in a loop gets in
        again before whoever waits: a scrape that asked it would wait for many seconds.
        """
        known = self._watermarks
        return {number: known[number] for number in partitions if number in known}

    def _look(self) -> None:
        """Note the watermarks, on the thread that reads; they come with what is fetched."""
        now = time.monotonic()
        if now < self._watermarks_at:
            return
        self._watermarks_at = now + _WATERMARKS_S
        found = {}
        for number in self._reading:
            where = TopicPartition(self._topic, number)
            low, high = self._consumer.get_watermark_offsets(where, cached=True)
            if high >= 0:
                found[number] = (low, high)
        self._watermarks = found

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._turn()
                except Stopped:
                    return
                except FunctionUnavailable as error:
                    self._begin_again()
                    self._inbox.put_event(ReaderFailed(str(error), lacks=NO_FUNCTION))
                except Exception as error:
                    _log.exception("reading failed")
                    self._begin_again()
                    self._inbox.put_event(ReaderFailed(f"{type(error).__name__}: {error}"))
        finally:
            self._consumer.close()

    def _turn(self) -> None:
        if self._topic_gone.is_set():
            # Another topic of that name may come, where these positions mean nothing.
            self._topic_gone.clear()
            self._begin_again()
            self._inbox.put_event(ReaderFailed("Kafka no longer knows the topic"))
        self._obey()
        self._inbox.free()
        if not self._reading:
            if self._batch.parts:
                self._cut(drained=True)
            self._consumer.poll(0)  # nothing is assigned: only what the client says comes out
            self._stop.wait(_POLL_S)
            return
        wanted = self._wanted
        messages = self._consumer.consume(wanted, _POLL_S)
        sizes = [len(message.value() or b"") for message in messages]
        self._wanted = min(_POLL_RECORDS, fitting(sizes))
        self._look()
        if messages:
            self._hit("apply.after_poll")
        for message in messages:
            self._take(message)
        for partition in list(self._suspects):
            self._hand_over(self._reading[partition])
        drained = len(messages) < wanted
        if drained and self._batch.parts:
            if not messages or time.monotonic() - self._begun >= _LINGER_S:
                self._cut(drained=True)
        elif not messages:
            self._pass_markers()

    def _obey(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            if isinstance(command, _Close):
                self._drop(command.partitions)
                continue
            self._drop(frozenset([command.partition]))
            where = TopicPartition(self._topic, command.partition, command.next_offset)
            if command.leader_epoch is not None:
                where = TopicPartition(
                    self._topic, command.partition, command.next_offset,
                    leader_epoch=command.leader_epoch,
                )  # fmt: skip
            self._consumer.incremental_assign([where])
            self._reading[command.partition] = command

    def _drop(self, partitions: frozenset[int]) -> None:
        gone = [p for p in partitions if self._reading.pop(p, None) is not None]
        for partition in gone:
            self._suspects.pop(partition, None)
        if gone:
            self._consumer.incremental_unassign([TopicPartition(self._topic, p) for p in gone])
        if any(self._parts.pop(p, None) is not None for p in gone):
            self._batch = self._batch.without(partitions)

    def _begin_again(self) -> None:
        """A new consumer that reads nothing yet; not at once, or a lasting fault would spin."""
        self._stop.wait(_REST_S)
        self._batch, self._parts, self._reading, self._suspects = Batch(), {}, {}, {}
        self._consumer.close()
        self._consumer = Consumer(self._properties)

    def _take(self, message: Message) -> None:
        number = message.partition()
        opening = None if number is None else self._reading.get(number)
        error = message.error()
        if error is not None:
            self._fault(error, opening)
            return
        offset = message.offset()
        if opening is None or offset is None or offset < opening.next_offset:
            return
        if opening.until is not None and offset >= opening.until:
            self._finish(opening)
            return
        record = as_record(message)
        if opening.suspects:
            self._suspect(opening, record)
            return
        try:
            work = self._decoder.decode(record, opening.generation, opening.listings)
        except UnknownSchema as error:
            self._leave(opening)  # what was read before it stays in the batch
            self._inbox.put_event(Stuck(opening.partition, opening.session, offset, str(error)))
            return
        if isinstance(work, PageWork) and work.partition_id_no in self._ended:
            self._cut(drained=False)  # as `before_sweeps` says
        part = self._part(opening)
        part.end = opening.next_offset = offset + 1
        part.last_offset, part.last_key = offset, record.key
        part.leader_epoch = record.leader_epoch
        part.first_ms = part.first_ms or record.timestamp_ms
        self._batch.size += len(record.value or b"")
        if isinstance(work, PageWork):
            part.pages.append(work)
            self._batch.records += len(work.observation.records)
        elif isinstance(work, MarkWork):
            part.marks.append(work)
            if work.ends_listing:
                self._ended.add(work.partition_id_no)
        if self._batch.records >= self._records or self._batch.size >= _BATCH_BYTES:
            self._cut(drained=False)

    def _suspect(self, opening: Opening, record: LogRecord) -> None:
        """It is only kept: to look into it may end the process."""
        opening.next_offset = record.offset + 1
        kept = self._suspects.setdefault(opening.partition, [])
        kept.append(record)
        size = sum(len(one.value or b"") for one in kept)
        if len(kept) >= _POLL_RECORDS or size >= _SUSPECT_BYTES:
            self._hand_over(opening)

    def _hand_over(self, opening: Opening) -> None:
        records = tuple(self._suspects.pop(opening.partition))
        self._leave(opening)
        self._inbox.put_event(
            Suspects(opening.partition, opening.session, opening.listings, records)
        )

    def _part(self, opening: Opening) -> Part:
        part = self._parts.get(opening.partition)
        if part is None:
            at = opening.next_offset
            part = Part(opening.partition, opening.session, opening.generation, at, at)
            self._parts[opening.partition] = part
            if not self._batch.parts:
                self._begun = time.monotonic()
            self._batch.parts.append(part)
        return part

    def _finish(self, opening: Opening) -> None:
        """A replay has passed its end: say so with an empty stretch, and read no further."""
        assert opening.until is not None
        self._part(opening).end = opening.next_offset = opening.until
        self._leave(opening)

    def _leave(self, opening: Opening) -> None:
        self._consumer.incremental_unassign([TopicPartition(self._topic, opening.partition)])
        del self._reading[opening.partition]

    def _cut(self, *, drained: bool) -> None:
        """Hand the batch over as it stands now; waits while the writer has enough."""
        if drained:
            self._pass_markers_of(self._parts.values())
        batch, self._batch, self._parts = self._batch, Batch(), {}
        self._ended.clear()
        prepare(batch)
        while not self._inbox.put_batch(batch, 0.2):
            if self._stop.is_set():
                raise Stopped

    def _pass_markers_of(self, parts: Iterable[Part]) -> None:
        """Everything polled is in the batch, so what lies behind it up to the position is markers."""
        for part in parts:
            opening = self._reading.get(part.partition)
            if opening is not None:
                part.end = opening.next_offset = self._position(opening)

    def _position(self, opening: Opening) -> int:
        where = TopicPartition(self._topic, opening.partition)
        at = max(opening.next_offset, self._consumer.position([where])[0].offset)
        return at if opening.until is None else min(at, opening.until)

    def _pass_markers(self) -> None:
        """While nothing comes, move over transaction markers and holes, so that the lag gets zero."""
        for opening in list(self._reading.values()):
            at = self._position(opening)
            if at > opening.next_offset:
                self._part(opening).end = opening.next_offset = at
            if opening.until is not None and at >= opening.until:
                self._finish(opening)
        if self._batch.parts:
            self._cut(drained=False)

    def _told(self, error: KafkaError) -> None:
        if error.code() in _TOPIC_GONE:
            self._topic_gone.set()
        _noted(error)

    def _fault(self, error: KafkaError, opening: Opening | None) -> None:
        if opening is not None and error.code() in _GONE:
            self._drop(frozenset([opening.partition]))
            self._inbox.put_event(ReadFault(opening.partition, opening.session, error.str()))
        elif error.code() in _TOPIC_GONE:
            self._topic_gone.set()
        elif error.fatal():
            raise KafkaException(error)
        else:
            _log.warning("reading", error=error.str())


def _noted(error: KafkaError) -> None:
    # librdkafka reconnects by itself; the lag shows what this means
    held_back = _NOTED.told(error.name(), time.monotonic())
    if held_back is not None:
        _log.warning("kafka", error=error.str(), held_back=held_back)

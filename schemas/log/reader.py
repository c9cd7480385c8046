"""Reading a partition of the log by hand: from an offset to the end that stood when asked.

Owns an unsubscribed consumer; knows nothing of groups, and never falls back to another offset.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from schemas.log import config
from schemas.settings import Settings

_ASK_AGAIN_S = 0.1
_FIRST_RECORDS = 20
_HELD_BYTES = 4_000_000
_LEADERSHIP_MOVES = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )
)


class LogUnavailable(Exception):
    """The log could not be read in time; says what was waited for. Trying again is right."""


class OffsetGone(Exception):
    """The wanted offset is not in the log: deleted by retention, or the log was cut."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One committed record. `timestamp_ms` is the broker's append time."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp_ms: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """`low`: first offset kept; `stable_end`: last stable offset; `end`: the high watermark."""

    low: int
    stable_end: int
    end: int


def bounds(settings: Settings, topic: str, partition: int, timeout_s: float = 10.0) -> Bounds:
    """Low watermark, last stable offset and end of a partition, asked from the broker now."""
    low, stable = _watermarks(settings, topic, partition, "read_committed", timeout_s)
    _, end = _watermarks(settings, topic, partition, "read_uncommitted", timeout_s)
    return Bounds(low, stable, end)


def _watermarks(
    settings: Settings, topic: str, partition: int, isolation: str, timeout_s: float
) -> tuple[int, int]:
    properties = {**config.reader(settings, "bounds"), "isolation.level": isolation}
    consumer = Consumer(properties)
    try:
        return _ask_ends(consumer, topic, partition, timeout_s)
    finally:
        consumer.close()


def _ask_ends(consumer: Consumer, topic: str, partition: int, timeout_s: float) -> tuple[int, int]:
    """Low and high watermark. While leadership moves (a fresh topic, a lost broker) it asks again.

    Raises LogUnavailable when there is no answer in time.
    """
    deadline, left = time.monotonic() + timeout_s, timeout_s
    while True:
        fault = f"no answer in {timeout_s} s"
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), left)
            if found is not None:
                return found
        except KafkaException as error:
            cause = error.args[0]
            fault = str(error)
            if not (isinstance(cause, KafkaError) and cause.code() in _LEADERSHIP_MOVES):
                raise LogUnavailable(f"ends of {topic}-{partition}: {fault}") from error
        left = deadline - time.monotonic() - _ASK_AGAIN_S
        if left <= 0:
            raise LogUnavailable(f"ends of {topic}-{partition}: {fault}")
        time.sleep(_ASK_AGAIN_S)


class PartitionReader:
    """A consumer on one partition, used by one thread, closed by `close` or as a context."""

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partition: int,
        role: str = "reader",
        *,
        committed: bool = True,
    ) -> None:
        """`committed` False also shows records of open and aborted transactions: evidence only."""
        isolation = "read_committed" if committed else "read_uncommitted"
        self._consumer = Consumer({**config.reader(settings, role), "isolation.level": isolation})
        self._topic, self._partition = topic, partition

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def stable_end(self, timeout_s: float = 10.0) -> int:
        """The last stable offset, asked now: everything below it is decided."""
        return self._ends(timeout_s)[1]

    def low(self, timeout_s: float = 10.0) -> int:
        """The first offset that is kept."""
        return self._ends(timeout_s)[0]

    def _ends(self, timeout_s: float) -> tuple[int, int]:
        return _ask_ends(self._consumer, self._topic, self._partition, timeout_s)

    def read(
        self, start: int, end: int, *, idle_timeout_s: float = 30.0, batch: int = 500
    ) -> Iterator[LogRecord]:
        """Committed records of `[start, end)`; ends once the position has reached `end`.

        A trailing commit marker is passed only by polling on, so the position decides, not the
        last record. Raises OffsetGone, or LogUnavailable when nothing moves for `idle_timeout_s`.
        Pages may be large: of `batch` at once it holds only what fits into some megabytes.
        """
        if start >= end:
            return
        where = TopicPartition(self._topic, self._partition, start)
        self._consumer.assign([where])
        deadline, wanted = time.monotonic() + idle_timeout_s, min(batch, _FIRST_RECORDS)
        while True:
            moved, messages = False, self._consumer.consume(wanted, 0.1)
            wanted = min(batch, fitting([len(message.value() or b"") for message in messages]))
            for message in messages:
                found = _checked(message)
                if found is None:
                    continue
                moved = True
                if found.offset >= end:
                    return
                yield found
            position = self._consumer.position([where])[0].offset
            if position >= end:
                return
            now = time.monotonic()
            if moved:
                deadline = now + idle_timeout_s
            elif now > deadline:
                raise LogUnavailable(
                    f"{self._topic}-{self._partition} stands at {position}, wanted {end}"
                )


def fitting(sizes: Sequence[int]) -> int:
    """How many records to ask for next, if they are as large as these (bytes); at least one."""
    if not any(sizes):
        return _FIRST_RECORDS
    return max(1, _HELD_BYTES * len(sizes) // sum(sizes))


def _checked(message: Message) -> LogRecord | None:
    error = message.error()
    if error is None:
        return as_record(message)
    if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        raise OffsetGone(error.str())
    if error.fatal() or (not error.retriable() and error.code() > 0):
        raise LogUnavailable(error.str())
    return None  # transport noise: librdkafka reconnects by itself, the idle limit bounds it


def as_record(message: Message) -> LogRecord:
    """A delivered message as a record; its key must be text."""
    key, offset, partition = message.key(), message.offset(), message.partition()
    if offset is None or partition is None:
        raise LogUnavailable("a message without coordinates")
    text = key.decode("utf-8", "replace") if key is not None else ""
    return LogRecord(
        partition, offset, text, message.value(), message.timestamp()[1], message.leader_epoch()
    )

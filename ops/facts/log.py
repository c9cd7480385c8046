"""Facts of the log: topics and their settings, ends, checkpoints, decisions, mirrored offsets.

Reads committed records only, and never commits an offset.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from schemas import codec
from schemas.log import config
from schemas.log.pause import Pause, of_note
from schemas.log.reader import Bounds, LogRecord, PartitionReader
from schemas.records import Control, SourceCheckpoint
from schemas.settings import Settings

_TIMEOUT_S = 10.0
_CONNECT_S = 5.0
_AGAIN_S = 0.2
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""What a broker says of a group until it has read whose groups it keeps."""
T = TypeVar("T")


class KafkaUnreachable(Exception):
    """No broker answered, or it refused this client; says which."""


class TopicsMissing(Exception):
    """Topics of this deployment do not exist; names them."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A source checkpoint and where it lies in the topic of checkpoints."""

    partition: int
    offset: int
    checkpoint: SourceCheckpoint


@dataclass(frozen=True, slots=True)
class Cleared:
    """A tombstone in the topic of checkpoints: nothing is known of this partition id any more."""

    partition: int
    offset: int
    partition_id: str


def connect(settings: Settings, timeout_s: float = _CONNECT_S) -> AdminClient:
    """A client of a broker that has answered. Raises KafkaUnreachable."""
    heard: list[str] = []
    properties: dict[str, Any] = {**config.admin(settings, "ops"), "log_level": 0}
    properties["error_cb"] = lambda error: heard.append(error.str())
    admin = AdminClient(properties)
    try:
        admin.list_topics(timeout=timeout_s)
    except KafkaException as error:
        admin.poll(0)
        raise KafkaUnreachable(_reason(heard, error)) from None
    return admin


def partition_counts(admin: AdminClient, topics: Iterable[str]) -> dict[str, int]:
    """Number of partitions of each topic. Raises TopicsMissing."""
    wanted = list(topics)
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    missing = [topic for topic in wanted if topic not in known or known[topic].error]
    if missing:
        raise TopicsMissing(f"topics are missing: {', '.join(missing)}")
    return {topic: len(known[topic].partitions) for topic in wanted}


def topic_settings(admin: AdminClient, topic: str) -> dict[str, str]:
    """The topic's effective settings, as the broker has them."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)
    found = _result(futures[resource])
    return {name: str(entry.value) for name, entry in found.items()}


def ends(admin: AdminClient, topic: str, partitions: int) -> dict[int, Bounds]:
    """First offset kept, last stable offset and end of every partition, asked now."""
    where = [TopicPartition(topic, number) for number in range(partitions)]

    def ask(spec: OffsetSpec, level: IsolationLevel) -> dict[int, int]:
        futures = admin.list_offsets(
            dict.fromkeys(where, spec), isolation_level=level, request_timeout=_TIMEOUT_S
        )
        return {place.partition: _result(future).offset for place, future in futures.items()}

    first: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    last: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    low = ask(first, IsolationLevel.READ_UNCOMMITTED)
    stable = ask(last, IsolationLevel.READ_COMMITTED)
    end = ask(last, IsolationLevel.READ_UNCOMMITTED)
    return {number: Bounds(low[number], stable[number], end[number]) for number in low}


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What apply last told Kafka of a partition: everything below `offset` was durable by then."""

    offset: int
    pause: Pause | None = None


def mirrored(settings: Settings, partitions: int) -> dict[int, Mirrored]:
    """What apply has committed to Kafka, by partition; empty before it has committed anything.

    Asked by a consumer that never joins: the admin client's call of that name ends the process
    where the broker is not (yet, or any more) the coordinator of the group (librdkafka #5040).
    """
    properties: dict[str, Any] = {
        **config.admin(settings, "mirror"),
        "group.id": settings.apply_group,
        "enable.auto.commit": False,
    }
    consumer = Consumer(properties)
    try:
        where = [TopicPartition(settings.observations, number) for number in range(partitions)]
        return {
            place.partition: Mirrored(place.offset, of_note(place.metadata))
            for place in _committed(consumer, where)
            if place.error is None and place.offset >= 0
        }
    finally:
        consumer.close()


def _committed(consumer: Consumer, where: list[TopicPartition]) -> list[TopicPartition]:
    """The group's offsets. A broker that has just started says for a moment that it cannot tell."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return consumer.committed(where, timeout=_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_S)


def records(
    settings: Settings, topic: str, bounds: dict[int, Bounds], role: str = "ops"
) -> Iterator[LogRecord]:
    """Every committed record between the given ends, partition after partition."""
    for number, found in sorted(bounds.items()):
        if found.low < found.stable_end:
            with PartitionReader(settings, topic, number, role) as reader:
                yield from reader.read(found.low, found.stable_end)


def checkpoints(
    settings: Settings, bounds: dict[int, Bounds]
) -> Iterator[CheckpointRecord | Cleared]:
    """Source checkpoints and their tombstones as they stand in the log, partition by partition."""
    for record in records(settings, settings.checkpoints, bounds):
        if record.value is None:
            yield Cleared(record.partition, record.offset, record.key)
            continue
        value = codec.decode(record.value)
        if isinstance(value, SourceCheckpoint):
            yield CheckpointRecord(record.partition, record.offset, value)


def controls(settings: Settings, bounds: dict[int, Bounds]) -> Iterator[tuple[int, Control]]:
    """Operators' decisions with their offsets, oldest first."""
    for record in records(settings, settings.control, bounds):
        if record.value is None:
            continue
        value = codec.decode(record.value)
        if isinstance(value, Control):
            yield record.offset, value


def next_records(
    settings: Settings, topic: str, starts: Mapping[int, int], bounds: Mapping[int, Bounds]
) -> dict[int, LogRecord]:
    """The first committed record at or above each start, where there is one."""
    found: dict[int, LogRecord] = {}
    for number, start in starts.items():
        ends_now = bounds.get(number)
        if ends_now is None or max(start, ends_now.low) >= ends_now.stable_end:
            continue
        with PartitionReader(settings, topic, number, "horizon") as reader:
            begin = max(start, ends_now.low)
            for record in reader.read(begin, ends_now.stable_end, batch=1):
                found[number] = record
                break
    return found


def open_since_ms(
    settings: Settings, topic: str, bounds: dict[int, Bounds], timeout_s: float = 5.0
) -> dict[int, int]:
    """Append time of the oldest undecided record of each partition that has one.

    A transaction that stays open for long holds up every reader behind it.
    """
    found: dict[int, int] = {}
    for number, ends_now in bounds.items():
        if ends_now.stable_end >= ends_now.end:
            continue
        properties = {**config.reader(settings, "open"), "isolation.level": "read_uncommitted"}
        consumer = Consumer(properties)
        try:
            consumer.assign([TopicPartition(topic, number, ends_now.stable_end)])
            for message in consumer.consume(1, timeout_s):
                if message.error() is None:
                    found[number] = message.timestamp()[1]
        finally:
            consumer.close()
    return found


def _result(future: Future[T]) -> T:
    return future.result(timeout=_TIMEOUT_S + 5)


def _reason(heard: list[str], error: KafkaException) -> str:
    """Why no broker answered: what was heard in the background tells more than the time-out."""
    if heard:
        return heard[0].split(" (after", 1)[0]
    fault = error.args[0] if error.args else None
    return fault.str() if isinstance(fault, KafkaError) else str(error)

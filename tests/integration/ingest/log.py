"""What really stands in the log: read by plain consumers, records as they are."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas import codec
from schemas.records import Mark, Observation, SourceCheckpoint
from schemas.settings import Settings


@dataclass(frozen=True)
class Seen:
    """One record; `content` None is a tombstone."""

    offset: int
    key: str
    content: Observation | Mark | SourceCheckpoint | None


def read(
    settings: Settings, topic: str, partition: int = 0, *, committed: bool = True
) -> list[Seen]:
    """Everything up to the end as it stands now."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[Seen] = []
        while True:
            message = consumer.poll(10)
            assert message is not None, f"{topic}-{partition} does not answer"
            if message.error() is not None:
                return found  # the end of the partition
            found.append(_seen(message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()


def _seen(offset: int, key: bytes | None, value: bytes | None) -> Seen:
    text = (key or b"").decode()
    if value is None:
        return Seen(offset, text, None)
    content = codec.decode(value)
    assert isinstance(content, Observation | Mark | SourceCheckpoint)
    return Seen(offset, text, content)


def observations(settings: Settings, partition: int = 0, *, committed: bool = True) -> list[Seen]:
    return read(settings, settings.observations, partition, committed=committed)


def checkpoints(settings: Settings, partition: int = 0) -> dict[str, SourceCheckpoint]:
    """The newest checkpoint of each partition id."""
    newest: dict[str, SourceCheckpoint] = {}
    for seen in read(settings, settings.checkpoints, partition):
        if seen.content is None:
            newest.pop(seen.key, None)
        elif isinstance(seen.content, SourceCheckpoint):
            newest[seen.key] = seen.content
    return newest


def pages(settings: Settings, owner: str, partition: int = 0) -> list[int]:
    """Page numbers of one partition id in log order."""
    return [
        seen.content.page
        for seen in observations(settings, partition)
        if isinstance(seen.content, Observation) and seen.content.partition_id == owner
    ]


def put(settings: Settings, topic: str, key: str, value: bytes | None, partition: int = 0) -> int:
    """Writes one record without a transaction; its offset."""
    producer = Producer({"bootstrap.servers": settings.kafka})
    offsets: list[int] = []
    producer.produce(
        topic,
        key=key,
        value=value,
        partition=partition,
        on_delivery=lambda error, message: offsets.append(message.offset() or 0),
    )
    assert producer.flush(10) == 0
    return offsets[0]

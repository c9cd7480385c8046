"""Raw reading of the log's topics: committed records as plain mappings, decoded from the Avro files."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

SCHEMAS = Path(__file__).parents[2] / "schemas" / "avro"


@dataclass(frozen=True, slots=True)
class Raw:
    """One committed record: `type` is the Avro name without its namespace, None for a tombstone."""

    partition: int
    offset: int
    key: str
    type: str | None
    value: dict[str, Any]


@cache
def _schemas() -> dict[bytes, tuple[str, Any]]:
    found = {}
    for file in SCHEMAS.glob("*.avsc"):
        raw = json.loads(file.read_text("utf-8"))
        form = fastavro.schema.to_parsing_canonical_form(raw)
        mark = bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
        found[mark] = (raw["name"], fastavro.parse_schema(_integers(raw)))
    return found


def _integers(schema: Any) -> Any:
    """Times as microseconds: the oracle compares integers."""
    if isinstance(schema, dict):
        return {k: _integers(v) for k, v in schema.items() if k != "logicalType"}
    return [_integers(s) for s in schema] if isinstance(schema, list) else schema


def _decode(value: bytes | None) -> tuple[str | None, dict[str, Any]]:
    if value is None:
        return None, {}
    if value[:2] != b"\xc3\x01":
        raise AssertionError(f"a value without Avro framing: {value[:20]!r}")
    name, schema = _schemas()[value[2:10]]
    body = fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)
    assert isinstance(body, dict)
    return name, body


def read(
    kafka: str,
    topic: str,
    partition: int | None = None,
    *,
    committed: bool = True,
    limit_s: float = 60.0,
) -> Iterator[Raw]:
    """Every record of a topic up to the end that stands now, partition by partition."""
    consumer = Consumer(_reading(kafka, committed=committed))
    try:
        meta = consumer.list_topics(topic, 10).topics[topic]
        numbers = sorted(meta.partitions) if partition is None else [partition]
        for number in numbers:
            yield from _read_partition(consumer, topic, number, time.monotonic() + limit_s)
    finally:
        consumer.close()


class Tail:
    """Follows the committed records of a topic from its beginning. For waiting, not for judging."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._consumer = Consumer(_reading(kafka, committed=True))
        numbers = self._consumer.list_topics(topic, 10).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in numbers])

    def news(self) -> Iterator[Raw]:
        """What has come since it was asked last."""
        while messages := self._consumer.consume(500, 0.05):
            for message in messages:
                if (found := _raw(message)) is not None:
                    yield found

    def close(self) -> None:
        self._consumer.close()


def _reading(kafka: str, *, committed: bool) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka,
        "group.id": "oracle",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "fetch.wait.max.ms": 50,
    }


def _raw(message: Message) -> Raw | None:
    """The record; None for news of the connection. Fails for any other error."""
    error = message.error()
    if error is not None:
        assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error
        return None
    partition, offset = message.partition(), message.offset()
    key, value = message.key(), message.value()
    assert partition is not None and offset is not None and isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    return Raw(partition, offset, key.decode(), *_decode(value))


def _read_partition(consumer: Consumer, topic: str, number: int, deadline: float) -> Iterator[Raw]:
    where = TopicPartition(topic, number)
    ends = consumer.get_watermark_offsets(where, 10)
    assert ends is not None, f"no answer for the ends of {topic}-{number}"
    low, end = ends
    if low >= end:
        return
    where = TopicPartition(topic, number, low)
    consumer.assign([where])
    while time.monotonic() < deadline:
        for message in consumer.consume(500, 0.05):
            found = _raw(message)
            if found is None:
                continue
            if found.offset >= end:
                return
            yield found
        if consumer.position([where])[0].offset >= end:
            return
    raise AssertionError(f"{topic}-{number}: end {end} not reached in time")

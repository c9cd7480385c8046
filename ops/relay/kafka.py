"""The way out to topics. Trouble of Kafka is no trouble of an event and counts no attempt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from ops.relay.answers import ACCEPTED, Kind, Result
from ops.relay.event import Event
from schemas.log import config
from schemas.settings import Settings

# What another attempt cannot cure.
_HOPELESS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG})
# What is wrong with this event or its topic, and may be put right there: nobody else has to wait.
_OF_THE_EVENT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.POLICY_VIOLATION,
    }
)


class Topics:
    """One producer. Used by one thread; a broken one is replaced."""

    mapping = None
    batch = 500

    def __init__(self, settings: Settings) -> None:
        self._delivery_s = settings.message_timeout_ms / 1000
        self._properties = {
            **config.client(settings, "relay"),
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": settings.message_timeout_ms,
            "socket.timeout.ms": min(10_000, settings.message_timeout_ms // 2),
            # a topic that is not there holds up a whole batch: find out soon
            "topic.metadata.propagation.max.ms": min(2_000, settings.message_timeout_ms // 2),
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
        self._producer: Producer | None = Producer(self._properties)

    def prepare(self) -> Result | None:
        """Nothing stands in the way that could be known before."""
        if self._producer is None:
            self._producer = Producer(self._properties)
        return None

    def idle(self) -> None:
        """Let the client say what it has to say."""
        if self._producer is not None:
            self._producer.poll(0)

    def publish(self, events: Sequence[Event]) -> dict[int, Result]:
        """Deliver them side by side; every one has a result. Returns when nothing is in flight."""
        producer = self._producer
        assert producer is not None
        errors: dict[int, KafkaError | None] = {
            event.id: KafkaError(KafkaError._TIMED_OUT) for event in events
        }
        for event in events:
            assert event.topic is not None
            try:
                producer.produce(
                    event.topic,
                    event.body,
                    event.key,
                    headers=event.kafka_headers(),
                    on_delivery=partial(_delivered, errors, event.id),
                )
            except KafkaException as error:
                errors[event.id] = error.args[0]
            except BufferError:
                errors[event.id] = KafkaError(KafkaError._QUEUE_FULL)
        # longer than a delivery may take, so that nothing is in flight when the batch is judged;
        # in short steps, so that signals are heard
        deadline = time.monotonic() + self._delivery_s * 1.25
        while producer.flush(0.2) and time.monotonic() < deadline:
            continue
        if len(producer) or any(error is not None and error.fatal() for error in errors.values()):
            self._producer = None  # what it still holds must not be sent after a newer event
            producer.purge()
        return {number: result_of(error) for number, error in errors.items()}

    def close(self) -> None:
        """Nothing is in flight between two batches."""
        self._producer = None


def _delivered(
    errors: dict[int, KafkaError | None], number: int, error: KafkaError | None, _: object
) -> None:
    errors[number] = error


def result_of(error: KafkaError | None) -> Result:
    """What the end of a delivery means; None: it was delivered."""
    if error is None:
        return ACCEPTED
    text = f"Kafka: {error.str()}"
    if error.code() in _HOPELESS:
        return Result(Kind.REFUSED, text)
    return Result(Kind.FAULT if error.code() in _OF_THE_EVENT else Kind.AWAY, text)

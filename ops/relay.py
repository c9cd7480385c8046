"""Publishes the outbox to Kafka, in order per key, at least once, always with the same id.

Only the oldest unsent event of a key is eligible, and a dead one holds up its key until somebody
retries or skips it by name. Selects by state, never by "id greater than the last one". Trouble of
Kafka is no trouble of an event: it pauses the relay and counts no attempt.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from ops import quarantine_copies
from ops import relay_metrics as metrics
from schemas.log import config
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
ATTEMPTS = 10
_BATCH = 500
_IDLE_S = 0.5
_TROUBLE_S = 2.0
_DELIVERY_S = 30.0
# What another attempt cannot cure.
_HOPELESS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG})
# What is wrong with this event's topic, and may be put right.
_OF_THE_EVENT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)

_ELIGIBLE = """
SELECT id, mapping, key, sequence, effect, type, topic, idempotency_key, payload, attempts,
  created_at
FROM gapless.outbox o
WHERE o.state = 'unsent' AND o.due_at <= now() AND NOT EXISTS (
  SELECT 1 FROM gapless.outbox before
  WHERE before.mapping = o.mapping AND before.key = o.key AND before.id < o.id
    AND before.state IN ('unsent', 'dead'))
ORDER BY o.id LIMIT %s FOR UPDATE OF o SKIP LOCKED"""
_SENT = "UPDATE gapless.outbox SET state = 'sent', sent_at = now() WHERE id = ANY(%s)"
_FAILED = """
UPDATE gapless.outbox SET state = %(state)s, attempts = attempts + 1,
  due_at = now() + make_interval(secs => %(wait_s)s) WHERE id = %(id)s"""


class KafkaTrouble(Exception):
    """Kafka could not take events; nothing is known of them, all stay unsent."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the outbox."""

    id: int
    mapping: str
    key: str
    sequence: int
    effect: str
    type: str
    topic: str
    idempotency_key: str
    payload: Any
    attempts: int
    created_at: datetime

    def message(
        self, copied: Mapping[str, bytes | None]
    ) -> tuple[bytes | None, list[tuple[str, str | bytes | None]]]:
        """Value and headers: of a change as JSON, of a copy the record's own bytes."""
        if self.type == quarantine_copies.TYPE:
            return quarantine_copies.message(self, copied)
        return json.dumps(self.payload, ensure_ascii=False).encode(), self.headers()

    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """CloudEvents in the Kafka binding: what receivers need to drop repetitions."""
        return [
            ("ce_specversion", "1.0"),
            ("ce_id", self.idempotency_key),
            ("ce_source", f"gapless/{self.mapping}"),
            ("ce_type", self.type),
            ("ce_subject", self.key),
            ("ce_time", self.created_at.isoformat()),
            ("ce_sequence", str(self.sequence)),
            ("content-type", "application/json"),
        ]


class Relay:
    """Publishes batch after batch. One per process; several processes share the work."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        properties = {
            **config.client(settings, "relay"),
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(_DELIVERY_S * 1000),
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
        self._producer = Producer(properties)

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Publish until told to stop; `once`: until nothing is eligible. Raises only if `once`."""
        while not stop.is_set():
            try:
                with psycopg.connect(
                    self._settings.postgres, row_factory=dict_row, connect_timeout=5
                ) as connection:
                    self._drain(connection, stop, once=once)
                    if once:
                        return
            except (psycopg.OperationalError, KafkaTrouble) as error:
                if once:
                    raise
                _log.warning("relay pauses", error=str(error).strip())
                metrics.TROUBLE.inc()
                stop.wait(_TROUBLE_S)

    def _drain(
        self, connection: psycopg.Connection[dict[str, Any]], stop: threading.Event, *, once: bool
    ) -> None:
        while not stop.is_set():
            number = self.publish(connection)
            if number == 0:
                if once:
                    return
                self._producer.poll(0)  # what the client says while it is idle
                stop.wait(_IDLE_S)

    def publish(self, connection: psycopg.Connection[dict[str, Any]]) -> int:
        """One batch in one transaction; returns how many events were tried.

        Raises KafkaTrouble (nothing changed) or psycopg.Error.
        """
        with connection.transaction():
            events = [Event(**row) for row in connection.execute(_ELIGIBLE, (_BATCH,))]
            if not events:
                return 0
            errors = self._produce(events, quarantine_copies.read(connection, events))
            trouble = [e for e in errors.values() if e is not None and not _is_events_own(e)]
            sent = [event.id for event in events if errors[event.id] is None]
            if trouble and not sent:
                raise KafkaTrouble(trouble[0].str())
            connection.execute(_SENT, (sent,))
            for event in events:
                error = errors[event.id]
                if error is not None and _is_events_own(error):
                    self._failed(connection, event, error)
        metrics.SENT.inc(len(sent))
        return len(events)

    def _produce(
        self, events: Sequence[Event], copied: Mapping[str, bytes | None]
    ) -> dict[int, KafkaError | None]:
        """Delivery of each event: None, or why not. `copied`: the bytes of copies among them."""
        errors: dict[int, KafkaError | None] = {
            event.id: KafkaError(KafkaError._TIMED_OUT) for event in events
        }

        for event in events:
            value, headers = event.message(copied)
            try:
                self._producer.produce(
                    event.topic,
                    value,
                    event.key,
                    headers=headers,
                    on_delivery=partial(_delivered, errors, event.id),
                )
            except KafkaException as error:
                errors[event.id] = error.args[0]
        # longer than a delivery may take, so that nothing is in flight when the batch is judged;
        # in short steps, so that signals are heard
        deadline = time.monotonic() + _DELIVERY_S + 5
        while self._producer.flush(0.2) and time.monotonic() < deadline:
            continue
        return errors

    def _failed(
        self, connection: psycopg.Connection[dict[str, Any]], event: Event, error: KafkaError
    ) -> None:
        dead = error.code() in _HOPELESS or event.attempts + 1 >= ATTEMPTS
        wait_s = min(300.0, 2.0**event.attempts)
        connection.execute(
            _FAILED, {"state": "dead" if dead else "unsent", "wait_s": wait_s, "id": event.id}
        )
        metrics.FAILED.inc()
        _log.warning(
            "event not published", number=event.id, topic=event.topic, error=error.str(), dead=dead
        )


def _delivered(
    errors: dict[int, KafkaError | None], number: int, error: KafkaError | None, _: object
) -> None:
    errors[number] = error


def _is_events_own(error: KafkaError) -> bool:
    return error.code() in _HOPELESS or error.code() in _OF_THE_EVENT


def decide(
    connection: psycopg.Connection[Any], action: str, event: int, *, by: str, note: str
) -> bool:
    """An operator's word on a dead event: `retry` it, or `skip` it for ever. False: none is dead."""
    state = {"retry": "unsent", "skip": "skipped"}[action]
    with connection.transaction():
        done = connection.execute(
            "UPDATE gapless.outbox SET state = %s, attempts = 0, due_at = now()"
            " WHERE id = %s AND state = 'dead' RETURNING id",
            (state, event),
        ).fetchone()
        if done is None:
            return False
        connection.execute(
            "INSERT INTO gapless.operator_action (by, action, about, note) VALUES (%s, %s, %s, %s)",
            (by, f"{action}_event", Jsonb({"event": event}), note),
        )
    return True


def waiting(dsn: str, limit: int = 200) -> list[dict[str, Any]]:
    """Unsent and dead events, oldest first, without their content. Raises psycopg.Error."""
    with psycopg.connect(dsn, row_factory=dict_row, connect_timeout=5) as connection:
        connection.read_only = True
        return connection.execute(
            "SELECT id, mapping, topic, type, effect, sequence, state, attempts, due_at, created_at"
            " FROM gapless.outbox WHERE state IN ('unsent', 'dead') ORDER BY id LIMIT %s",
            (limit,),
        ).fetchall()

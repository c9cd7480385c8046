"""Membership of a consumer group: it spreads partitions and notices dead workers, nothing more.

The consumer is paused for ever and decides no position. Callbacks only signal; safety rests on
the producer's fence and on the position row, never on what the group believes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from schemas.log import config
from schemas.log.pause import Pause, to_note
from schemas.log.seldom import Seldom
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
Changed = Callable[[frozenset[int]], None]


class Membership:
    """One member of `group` on `topic`, on a thread of its own.

    `on_assigned` and `on_revoked` get partition numbers and are called on that thread: they must
    return at once (hand over to the loop).
    """

    def __init__(
        self,
        settings: Settings,
        group: str,
        topic: str,
        role: str,
        on_assigned: Changed,
        on_revoked: Changed,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._consumer = Consumer(config.member(settings, group, role))
        self._topic = topic
        self._on_assigned, self._on_revoked, self._on_error = (
            on_assigned,
            on_revoked,
            on_error,
        )
        self._noted = Seldom()
        self._commits: queue.SimpleQueue[dict[int, tuple[int, str]]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{role}-group", daemon=True)

    def start(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )
        self._thread.start()

    def commit(self, next_offsets: dict[int, int], pause: Pause | None = None) -> None:
        """Mirror next offsets to Kafka, later and best effort: Postgres is what counts.

        `pause`: why nothing more is applied now; it stands beside them until the next commit.
        """
        note = to_note(pause)
        self._commits.put({number: (offset, note) for number, offset in next_offsets.items()})

    def stop(self, timeout_s: float = 10.0) -> None:
        """Leave the group, so that others take over at once."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(0.1)
                error = message.error() if message is not None else None
                if error is not None:
                    held_back = self._noted.told(error.name(), time.monotonic())
                    if held_back is not None:
                        _log.warning("group", error=error.str(), held_back=held_back)
                    self._on_error(error.str())
                self._mirror()
            self._mirror()
        finally:
            self._consumer.close()

    def _mirror(self) -> None:
        merged: dict[int, tuple[int, str]] = {}
        while not self._commits.empty():
            merged.update(self._commits.get_nowait())
        if not merged:
            return
        offsets = [
            TopicPartition(self._topic, number, offset, metadata=note)
            for number, (offset, note) in merged.items()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            _log.info("mirrored offsets not committed", error=str(error))

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # without an assignment of ours, confluent-kafka would assign by itself from Kafka's offsets
        placed = [TopicPartition(p.topic, p.partition, 0) for p in partitions]
        consumer.incremental_assign(placed)
        consumer.pause(placed)
        self._on_assigned(_numbers(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._on_revoked(_numbers(partitions))
        consumer.incremental_unassign(partitions)


def _numbers(partitions: Iterable[TopicPartition]) -> frozenset[int]:
    return frozenset(p.partition for p in partitions)

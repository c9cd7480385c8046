"""Everything the log says about a deployment at one moment, for status, metrics and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from ops.facts import log
from schemas.log.reader import Bounds
from schemas.records import Control
from schemas.settings import Settings


@dataclass(slots=True)
class LogFacts:
    """Facts of the topics. Times in milliseconds are the broker's append times.

    `waiting_since_ms`: partition → append time of the first record that is not applied yet, or not
    by what Kafka knows, where Postgres could not be asked.
    `mirrored`: partition → what apply last told Kafka.
    `open_since_ms`: partition → append time of the oldest record whose transaction is undecided.
    """

    partitions: int
    ends: dict[int, Bounds]
    checkpoints: dict[str, log.CheckpointRecord] = field(default_factory=dict)
    controls: list[tuple[int, Control]] = field(default_factory=list)
    oldest_ms: dict[int, int] = field(default_factory=dict)
    waiting_since_ms: dict[int, int] = field(default_factory=dict)
    open_since_ms: dict[int, int] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    mirrored: dict[int, log.Mirrored] = field(default_factory=dict)


class LogWatcher:
    """Reads the facts again and again; of the checkpoints only what is new since the last time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read_to: dict[int, int] = {}
        self._last: dict[str, log.CheckpointRecord] = {}
        self._oldest: dict[int, tuple[int, int]] = {}

    def read(self, applied: Mapping[int, int] | None = None) -> LogFacts:
        """The facts of now.

        `applied`: partition → next offset to apply; None: Postgres could not be asked, so what was
        mirrored to Kafka counts. Raises KafkaUnreachable, TopicsMissing or LogUnavailable; the next
        read starts over what failed.
        """
        settings = self._settings
        admin = log.connect(settings)
        topics = (settings.observations, settings.checkpoints, settings.control)
        many = log.partition_counts(admin, topics)[settings.observations]
        self._follow_checkpoints(log.ends(admin, settings.checkpoints, many))
        ends = log.ends(admin, settings.observations, many)
        mirrored = self._mirrored(many)
        if applied is None:
            applied = {number: one.offset for number, one in mirrored.items()}
        waiting = log.next_records(settings, settings.observations, applied, ends)
        return LogFacts(
            partitions=many,
            ends=ends,
            checkpoints=dict(self._last),
            controls=list(log.controls(settings, log.ends(admin, settings.control, 1))),
            oldest_ms=self._oldest_ms(ends),
            waiting_since_ms={number: record.timestamp_ms for number, record in waiting.items()},
            open_since_ms=log.open_since_ms(settings, settings.observations, ends),
            topic=log.topic_settings(admin, settings.observations),
            mirrored=mirrored,
        )

    def _mirrored(self, partitions: int) -> dict[int, log.Mirrored]:
        """Best effort, as the mirror itself is: a group that may not be asked tells nothing."""
        try:
            return log.mirrored(self._settings, partitions)
        except KafkaException:
            return {}

    def _follow_checkpoints(self, ends: dict[int, Bounds]) -> None:
        if any(self._read_to.get(number, 0) > found.stable_end for number, found in ends.items()):
            self._read_to, self._last = {}, {}  # the topic was cut or made again
        unread = {
            number: Bounds(
                max(found.low, self._read_to.get(number, 0)), found.stable_end, found.end
            )
            for number, found in ends.items()
        }
        for record in log.checkpoints(self._settings, unread):
            if isinstance(record, log.Cleared):
                self._last.pop(record.partition_id, None)
            else:
                self._last[record.checkpoint.partition_id] = record
        self._read_to = {number: found.stable_end for number, found in ends.items()}

    def _oldest_ms(self, ends: dict[int, Bounds]) -> dict[int, int]:
        """Append time of the first record kept; asked again only where the log's start moved."""
        moved = {
            number: found.low
            for number, found in ends.items()
            if self._oldest.get(number, (-1, 0))[0] != found.low
        }
        topic = self._settings.observations
        for number, record in log.next_records(self._settings, topic, moved, ends).items():
            self._oldest[number] = (ends[number].low, record.timestamp_ms)
        return {number: at_ms for number, (_, at_ms) in self._oldest.items()}


def read_log(settings: Settings, applied: Mapping[int, int] | None = None) -> LogFacts:
    """The facts of now, once."""
    return LogWatcher(settings).read(applied)

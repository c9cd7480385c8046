"""Where the partitions of the log begin and end, and where a time stands in them: asked, never guessed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from schemas.log import config
from schemas.log.reader import LogUnavailable
from schemas.settings import Settings

_TIMEOUT_S = 10.0


class LogBounds:
    """One consumer for questions, used by one thread. Raises LogUnavailable."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.observations
        self._consumer = Consumer(config.reader(settings, "replay-bounds"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def of(self, partition: int, timeout_s: float = _TIMEOUT_S) -> tuple[int, int]:
        """The first offset that is kept, and the last stable one."""
        where = TopicPartition(self._topic, partition)
        try:
            found = self._consumer.get_watermark_offsets(where, timeout_s)
        except KafkaException as error:
            raise LogUnavailable(f"ends of {self._topic}-{partition}: {error}") from error
        if found is None:
            raise LogUnavailable(f"ends of {self._topic}-{partition}: no answer in {timeout_s} s")
        low, end = found
        return low, end

    def at(self, since: datetime, partitions: Iterable[int]) -> dict[int, int]:
        """The first offset appended at `since` or later; a partition without one is left out."""
        moment_ms = int(since.timestamp() * 1000)
        asked = [TopicPartition(self._topic, number, moment_ms) for number in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, _TIMEOUT_S)
        except KafkaException as error:
            raise LogUnavailable(f"times of {self._topic}: {error}") from error
        return {one.partition: one.offset for one in found if one.offset >= 0}

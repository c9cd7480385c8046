"""What a benchmark reads of the log while a worker writes it: the newest checkpoints, as they come."""

from __future__ import annotations

from typing import Self

from schemas import codec
from schemas.log.reader import PartitionReader
from schemas.records import SourceCheckpoint
from schemas.settings import Settings


class Checkpoints:
    """The newest checkpoint of each partition id; of the topic only what is new is read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read_to = dict.fromkeys(range(settings.partitions), 0)
        self.newest: dict[str, SourceCheckpoint] = {}
        self.largest_bytes = 0

    def read(self) -> Self:
        """Everything that is committed by now."""
        topic = self._settings.checkpoints
        for number, start in self._read_to.items():
            with PartitionReader(self._settings, topic, number, "bench") as reader:
                end = reader.stable_end()
                for record in reader.read(start, end):
                    self._take(record.value or b"")
            self._read_to[number] = end
        return self

    def complete(self, since: str) -> int:
        """How many partition ids have proven anything behind `since`, the beginning of their past."""
        found = 0
        for checkpoint in self.newest.values():
            state = checkpoint.plans.get("interval")
            before = None if state is None else state.complete_before
            found += before is not None and before > since
        return found

    def _take(self, value: bytes) -> None:
        one = codec.decode(value)
        if isinstance(one, SourceCheckpoint):
            self.newest[one.partition_id] = one
            self.largest_bytes = max(self.largest_bytes, len(value))

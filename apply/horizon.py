"""How long the topic keeps what is not applied yet: as configured, and as observed at its start.

Asked on a thread of its own, since the answers of brokers may take long. Absent on purpose: alerts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.log import config
from schemas.log.reader import LogUnavailable, OffsetGone, PartitionReader
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_EVERY_S = 60.0
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Horizon:
    """`retention_s`: None keeps for ever. `oldest_ms`: append time of the first record kept, per
    partition; absent where the partition is empty."""

    retention_s: float | None = None
    oldest_ms: Mapping[int, int] = field(default_factory=dict)


def retention_s(settings: Settings) -> float | None:
    """The topic's configured retention; None: it only compacts, or keeps for ever.

    Raises LogUnavailable.
    """
    resource = ConfigResource(ResourceType.TOPIC, settings.observations)
    admin = AdminClient(config.admin(settings, "apply-horizon"))
    try:
        future = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]
        found = future.result(_TIMEOUT_S + 1)
    except (KafkaException, TimeoutError) as error:
        raise LogUnavailable(f"settings of {settings.observations}: {error}") from error
    limit_ms = int(str(found["retention.ms"].value))
    deletes = "delete" in str(found["cleanup.policy"].value)
    return limit_ms / 1000 if deletes and limit_ms >= 0 else None


def oldest_ms(settings: Settings, partition: int) -> int | None:
    """Append time of the first record that a partition still holds; None if it is empty.

    Raises LogUnavailable.
    """
    with PartitionReader(settings, settings.observations, partition, "apply-horizon") as reader:
        low, end = reader.low(), reader.stable_end()
        try:
            for record in reader.read(low, end, idle_timeout_s=_TIMEOUT_S, batch=1):
                return record.timestamp_ms
        except OffsetGone as error:
            raise LogUnavailable(f"the start of partition {partition} moved: {error}") from error
    return None


class Horizons:
    """Keeps the newest answer. `partitions` says which ones are worth asking about."""

    def __init__(self, settings: Settings, partitions: Callable[[], Iterable[int]]) -> None:
        self._settings, self._partitions = settings, partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="apply-horizon", daemon=True)
        self.found = Horizon()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        wait_s = 1.0  # the first partitions are owned by then
        while not self._stop.wait(wait_s):
            begun = time.monotonic()
            try:
                self.found = self._look()
            except Exception as error:
                _log.info("horizon not seen", error=str(error))
            wait_s = max(1.0, _EVERY_S - (time.monotonic() - begun))

    def _look(self) -> Horizon:
        oldest = {}
        for partition in sorted(self._partitions()):
            if self._stop.is_set():
                break
            at = oldest_ms(self._settings, partition)
            if at is not None:
                oldest[partition] = at
        return Horizon(retention_s(self._settings), oldest)

"""Settings with the smallest time-outs on a lane of its own, topics created."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from ingest.watchdog import Watchdog
from ops.topics import ensure_topics
from schemas.log.reader import LogUnavailable, bounds
from schemas.settings import Settings
from tests.conftest import Lane
from tests.waiting import wait_until


def small_settings(lane: Lane, **changes: object) -> Settings:
    """One log partition unless told otherwise."""
    given: dict[str, object] = {
        "kafka": lane.kafka,
        "prefix": lane.prefix,
        "partitions": 1,
        "session_timeout_ms": 1_000,
        "transaction_timeout_ms": 10_000,
        "message_timeout_ms": 4_000,
        "linger_s": 0.01,
        "worker": "w1",
        **changes,
    }
    return Settings(**given)  # type: ignore[arg-type]


def with_topics(settings: Settings) -> Settings:
    """Creates the topics and waits until every partition answers."""
    ensure_topics(settings)
    topics = (settings.observations, settings.checkpoints)
    where = [(topic, partition) for topic in topics for partition in range(settings.partitions)]
    wait_until(lambda: all(map(_answers, repeat(settings), where)), 20, "leaders of all partitions")
    return settings


def _answers(settings: Settings, where: tuple[str, int]) -> bool:
    try:
        bounds(settings, *where)
    except LogUnavailable:
        return False
    return True


@pytest.fixture
def settings(lane: Lane) -> Settings:
    return with_topics(small_settings(lane))


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    found = Watchdog()
    yield found
    found.stop()

"""A test's lane is its own: fresh, empty, and gone afterwards."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conftest import Lane
from tests.waiting import wait_until

_seen: list[Lane] = []

# The second test looks at what the first one left.
pytestmark = pytest.mark.xdist_group("lanes")


def _topics(kafka: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics)


def test_lane_is_fresh(lane: Lane) -> None:
    assert lane.environment["GAPLESS_PREFIX"] == lane.prefix
    with psycopg.connect(lane.environment["GAPLESS_POSTGRES"]) as connection:
        assert connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone() == (0,)
        connection.execute("CREATE TABLE left_over ()")
    admin = AdminClient({"bootstrap.servers": lane.kafka})
    for created in admin.create_topics([NewTopic(f"{lane.prefix}left_over", 1)]).values():
        created.result(30)
    wait_until(lambda: f"{lane.prefix}left_over" in _topics(lane.kafka), 30, "the topic")
    _seen.append(lane)


def test_lane_before_is_gone(lane: Lane, postgres: str, request: pytest.FixtureRequest) -> None:
    # Where the run promises to keep groups together, a missing first test is a broken promise.
    if not _seen and not request.config.getoption("loadgroup", default=False):
        pytest.skip("runs after the test before it only")
    (before,) = _seen
    assert before.prefix != lane.prefix
    wait_until(
        lambda: not any(name.startswith(before.prefix) for name in _topics(lane.kafka)),
        30,
        "the topics of the lane before to be gone",
    )
    with psycopg.connect(postgres) as connection:
        found = connection.execute(
            "SELECT FROM pg_database WHERE datname = %s", [before.prefix.rstrip(".")]
        )
        assert found.fetchone() is None

"""The first worker of a deployment meets a broker that has no coordinator for its group yet."""

from __future__ import annotations

import pytest

from ingest.checks import Cluster
from ops.stack import Stack
from ops.topics import ensure_topics
from schemas.settings import Settings

pytestmark = pytest.mark.timeout(120)


def test_a_group_can_be_asked_for_as_soon_as_its_broker_answers(own_stack: Stack) -> None:
    settings = Settings(kafka=own_stack.addresses.kafka, prefix="fresh.", partitions=1)
    ensure_topics(settings)
    cluster = Cluster(settings)
    cluster.check()
    assert cluster.members() == {}

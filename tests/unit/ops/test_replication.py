"""How often topics are kept: three times where there are three brokers, and the settings say so."""

from __future__ import annotations

import pytest

from ops.topics import in_sync, replicas, topic_plans
from schemas.settings import Settings


def unasked() -> int:
    raise AssertionError("the broker's default does not matter here")


@pytest.mark.parametrize(
    ("asked", "brokers", "wanted"), [(0, 3, 3), (0, 5, 3), (1, 3, 1), (2, 5, 2), (4, 1, 4)]
)
def test_without_the_brokers_default(asked: int, brokers: int, wanted: int) -> None:
    assert replicas(asked, brokers, unasked) == wanted


@pytest.mark.parametrize("brokers", [1, 2])
def test_fewer_than_three_brokers_keep_their_default(brokers: int) -> None:
    assert replicas(0, brokers, lambda: 2) == 2


@pytest.mark.parametrize(("replication", "least"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_one_of_three_may_be_away(replication: int, least: str) -> None:
    for plan in topic_plans(Settings(), in_sync(replication)):
        found = {wanted.name: wanted.value for wanted in plan.settings}
        assert found["min.insync.replicas"] == least


def test_the_description_says_the_same() -> None:
    told = Settings.model_fields["replication"].description
    assert told is not None
    assert "three where there are three brokers" in told
    assert "two must hold a record" in told

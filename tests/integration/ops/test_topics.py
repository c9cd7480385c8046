"""Topics are created once, verified for ever, and never altered behind the operator's back."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from ops.stack import Stack
from ops.topics import TopicsRefused, TopicsUnreachable, ensure_topics, verify_topics
from schemas.settings import Settings
from tests.conftest import Lane
from tests.waiting import wait_until


def settings_of(lane: Lane, **changes: object) -> Settings:
    given: dict[str, object] = {"kafka": lane.kafka, "prefix": lane.prefix, "partitions": 3}
    return Settings(**(given | changes))  # type: ignore[arg-type]


def alter(settings: Settings, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)
    # brokers learn of it a moment later
    wait_until(lambda: config_of(settings, topic)[name] == value, 20, f"{name}={value}")


def config_of(settings: Settings, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items()}


def exists(settings: Settings, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    return topic in admin.list_topics(timeout=10).topics


def known_everywhere(settings: Settings) -> bool:
    """Ten answers in a row, whichever broker gives them."""
    try:
        return all(verify_topics(settings) == [] for _ in range(10))
    except TopicsUnreachable:
        return False


def test_they_are_created_with_what_the_promises_need(lane: Lane) -> None:
    settings = settings_of(lane)
    assert len(verify_topics(settings)) == 5
    lines = ensure_topics(settings)
    assert lines[0] == f"{settings.observations}: created, 3 partitions"
    assert f"{settings.control}: created, 1 partition" in lines
    pages, claims = (
        config_of(settings, settings.observations),
        config_of(settings, settings.checkpoints),
    )
    assert pages["cleanup.policy"] == claims["cleanup.policy"] == "compact"
    assert pages["message.timestamp.type"] == "LogAppendTime"
    assert int(pages["max.compaction.lag.ms"]) == 7 * 86_400_000
    assert int(pages["max.message.bytes"]) > settings.record_max_bytes
    assert (claims["min.compaction.lag.ms"], claims["segment.bytes"]) == ("900000", "16777216")
    assert verify_topics(settings) == []


def test_again_it_changes_nothing(lane: Lane) -> None:
    settings = settings_of(lane)
    ensure_topics(settings)
    assert all("as it must be" in line for line in ensure_topics(settings))


def test_a_stricter_operator_is_left_alone(lane: Lane) -> None:
    settings = settings_of(lane)
    ensure_topics(settings)
    alter(settings, settings.observations, "cleanup.policy", "compact,delete")
    alter(settings, settings.observations, "max.compaction.lag.ms", "3600000")
    assert verify_topics(settings) == []
    ensure_topics(settings)
    assert config_of(settings, settings.observations)["max.compaction.lag.ms"] == "3600000"


@pytest.mark.parametrize(
    ("topic", "name", "value"),
    [
        ("observations", "cleanup.policy", "delete"),
        ("observations", "message.timestamp.type", "CreateTime"),
        ("observations", "max.compaction.lag.ms", "9223372036854775807"),
        ("observations", "max.message.bytes", "1000"),
        ("observations", "unclean.leader.election.enable", "true"),
        ("checkpoints", "cleanup.policy", "compact,delete"),
        ("checkpoints", "min.compaction.lag.ms", "0"),
        ("quarantine", "cleanup.policy", "compact"),
        ("events", "retention.ms", "-1"),
    ],
)
def test_a_setting_that_breaks_a_promise_is_refused(
    lane: Lane, topic: str, name: str, value: str
) -> None:
    settings = settings_of(lane)
    ensure_topics(settings)
    alter(settings, lane.prefix + topic, name, value)
    with pytest.raises(TopicsRefused) as refused:
        ensure_topics(settings)
    assert f"{lane.prefix}{topic} has {name}={value}" in str(refused.value)
    assert "--add-config" in str(refused.value)
    assert config_of(settings, lane.prefix + topic)[name] == value, "it alters nothing"
    assert len(verify_topics(settings)) == 1


def test_another_partition_count_is_refused_with_both_ways_out(lane: Lane) -> None:
    settings = settings_of(lane)
    ensure_topics(settings)
    with pytest.raises(TopicsRefused, match="set GAPLESS_PARTITIONS=3, or choose another"):
        ensure_topics(settings_of(lane, partitions=4))


def test_added_partitions_are_refused(lane: Lane) -> None:
    settings = settings_of(lane)
    ensure_topics(settings)
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    for created in admin.create_partitions([NewPartitions(settings.checkpoints, 5)]).values():
        created.result(20)
    wait_until(lambda: verify_topics(settings) != [], 20, "the added partitions to show")
    faults = verify_topics(settings)
    assert len(faults) == 1
    assert f"{settings.checkpoints} has 5 partitions, the settings say 3" in faults[0]


def test_a_missing_one_among_wrong_ones_is_not_created(lane: Lane) -> None:
    """Refused means that nothing was changed."""
    settings = settings_of(lane)
    ensure_topics(settings)
    alter(settings, settings.observations, "cleanup.policy", "delete")
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    admin.delete_topics([settings.events])[settings.events].result(20)
    wait_until(lambda: not exists(settings, settings.events), 20, "the deletion to show")
    with pytest.raises(TopicsRefused):
        ensure_topics(settings)
    assert not exists(settings, settings.events)


def test_an_unreachable_broker_is_said(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.topics._TIMEOUT_S", 1.0)
    with pytest.raises(TopicsUnreachable, match=r"127\.0\.0\.1:9"):
        ensure_topics(settings_of(lane, kafka="127.0.0.1:9"))


@pytest.mark.parametrize("own_stack", [{"brokers": 3}], indirect=True)
def test_with_three_brokers_two_must_hold_a_record(own_stack: Stack) -> None:
    settings = Settings(kafka=own_stack.kafka.address, prefix="three.", partitions=2)
    ensure_topics(settings)
    wait_until(lambda: known_everywhere(settings), 20, "all brokers to know the topics")
    assert config_of(settings, settings.observations)["min.insync.replicas"] == "2"
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    topic = admin.list_topics(timeout=10).topics[settings.observations]
    assert all(len(partition.replicas) == 3 for partition in topic.partitions.values())
    alter(settings, settings.checkpoints, "min.insync.replicas", "1")
    wait_until(lambda: verify_topics(settings) != [], 20, "all brokers to know")
    with pytest.raises(TopicsRefused, match=r"min\.insync\.replicas=1, needs at least 2"):
        ensure_topics(settings)

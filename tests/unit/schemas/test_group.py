"""Offsets mirrored to Kafka, with a note while apply waits; without a broker."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition

from schemas.log import group
from schemas.log.group import Membership
from schemas.log.pause import Pause, of_note, to_note
from schemas.settings import Settings

PAUSE = Pause("disk_full", 5, "a-1")


class Consumer:
    """Keeps what is committed."""

    def __init__(self, _properties: dict[str, Any]) -> None:
        self.committed: list[dict[int, tuple[int, Pause | None]]] = []
        self.refuse = False

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        if self.refuse:
            raise KafkaException("not now")
        self.committed.append({p.partition: (p.offset, of_note(p.metadata)) for p in offsets})


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Membership:
    monkeypatch.setattr(group, "Consumer", Consumer)
    return Membership(Settings(), "g", "t", "apply", lambda _: None, lambda _: None)


def committed(member: Membership) -> list[dict[int, tuple[int, Pause | None]]]:
    consumer: Any = member._consumer
    found: list[dict[int, tuple[int, Pause | None]]] = consumer.committed
    return found


def test_offsets_alone(member: Membership) -> None:
    member.commit({0: 7, 1: 9})
    member._mirror()
    assert committed(member) == [{0: (7, None), 1: (9, None)}]


def test_a_pause_stands_beside_its_offsets_until_the_next_commit(member: Membership) -> None:
    member.commit({0: 7}, PAUSE)
    member._mirror()
    member.commit({0: 7})
    member._mirror()
    assert committed(member) == [{0: (7, PAUSE)}, {0: (7, None)}]


def test_only_the_last_word_about_a_partition_is_committed(member: Membership) -> None:
    member.commit({0: 7, 1: 3}, PAUSE)
    member.commit({0: 8})
    member._mirror()
    assert committed(member) == [{0: (8, None), 1: (3, PAUSE)}]


def test_nothing_to_say_asks_nobody_and_a_refusal_ends_nothing(member: Membership) -> None:
    member._mirror()
    assert committed(member) == []
    consumer: Any = member._consumer
    consumer.refuse = True
    member.commit({0: 7})
    member._mirror()
    consumer.refuse = False
    member.commit({0: 8})
    member._mirror()
    assert committed(member) == [{0: (8, None)}]


@pytest.mark.parametrize("pause", [PAUSE, None])
def test_a_real_client_carries_the_note(pause: Pause | None) -> None:
    """To librdkafka's own stand-in for a broker, and back."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": "unused", "test.mock.num.brokers": 1, "group.id": "g",
            "allow.auto.create.topics": True, "log_level": 0,
        }
    )  # fmt: skip
    try:
        consumer.list_topics("t", timeout=10)
        place = TopicPartition("t", 0, 7, metadata=to_note(pause))
        consumer.commit(offsets=[place], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("t", 0)], 10)
    finally:
        consumer.close()
    assert (found.offset, of_note(found.metadata)) == (7, pause)

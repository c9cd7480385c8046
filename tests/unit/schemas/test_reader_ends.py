"""Asking for the ends of a partition while its leadership moves; a real broker does so rarely."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.log.reader import LogUnavailable, _ask_ends


class Answers:
    """In place of a consumer: one answer after the other, the last one for ever."""

    def __init__(self, *answers: int | tuple[int, int] | None) -> None:
        self.answers, self.asked = list(answers), 0

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> Any:
        assert timeout > 0
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer


def ask(answers: Answers, timeout_s: float = 5.0) -> tuple[int, int]:
    return _ask_ends(answers, "t", 0, timeout_s)  # type: ignore[arg-type]


def test_a_moving_leader_is_asked_again() -> None:
    moving = Answers(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, (3, 9))
    assert ask(moving) == (3, 9)
    assert moving.asked == 3


def test_a_leader_that_never_comes_is_said_in_time() -> None:
    with pytest.raises(LogUnavailable, match=r"t-0: .*Not leader"):
        ask(Answers(KafkaError.NOT_LEADER_FOR_PARTITION), 0.3)


def test_what_time_does_not_cure_is_said_at_once() -> None:
    refused = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(LogUnavailable, match="uthorization"):
        ask(refused)
    assert refused.asked == 1

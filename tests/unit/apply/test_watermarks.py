"""Whoever scrapes the metrics never asks the consumer: it belongs to the thread that reads."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from apply import consumer as consumer_module
from apply.consumer import Opening, Reader
from apply.decode import Decoder
from apply.inbox import Inbox
from apply.listings import Listings
from schemas.failpoints import none
from schemas.settings import Settings
from tests.waiting import wait_until


class Gated:
    """A consumer that nothing comes out of, and that notes which threads call it."""

    def __init__(self, _properties: object) -> None:
        self.callers: set[str] = set()

    def _note(self) -> None:
        self.callers.add(threading.current_thread().name)

    def consume(self, _number: int, timeout: float) -> list[Any]:
        self._note()
        threading.Event().wait(timeout)
        return []

    def poll(self, _timeout: float) -> None:
        self._note()

    def incremental_assign(self, _where: list[TopicPartition]) -> None:
        self._note()

    def position(self, where: list[TopicPartition]) -> list[TopicPartition]:
        self._note()
        return where

    def get_watermark_offsets(self, where: TopicPartition, *, cached: bool) -> tuple[int, int]:
        self._note()
        assert cached
        return (-1001, -1001) if where.partition == 1 else (3, 42)

    def close(self) -> None:
        self._note()


def test_watermarks_are_told_without_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "Consumer", Gated)
    reader = Reader(Settings(), cast("Decoder", None), Inbox(), hit=none)
    reader.start()
    for number in (0, 1):
        reader.open(Opening(number, 1, 1, 0, None, Listings()))
    try:
        wait_until(lambda: bool(reader.watermarks([0])), 10, "the reader looks at the watermarks")
        assert reader.watermarks([0, 1, 2]) == {0: (3, 42)}, "only what was fetched is known"
    finally:
        reader.stop()
    assert cast("Any", reader)._consumer.callers == {"apply-read"}

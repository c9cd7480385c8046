"""The writer tells Kafka why it waits for its sink, once, and takes it back when it goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from apply import writer as module
from apply.faults import SinkFault
from apply.inbox import Inbox
from apply.writer import Writer
from schemas.failpoints import none

Told = list[tuple[dict[int, int], str | None]]


@dataclass
class Position:
    next_offset: int


@dataclass
class Store:
    """Holds two partitions; `connect` raises what is left in `faults`, one after the other."""

    faults: list[SinkFault]
    positions: dict[int, Position] = field(default_factory=lambda: {0: Position(5), 3: Position(8)})

    def connect(self) -> list[int]:
        if self.faults:
            raise self.faults.pop(0)
        return []

    def close(self) -> None:
        pass


class Ownership:
    def step_down(self, lost: list[int]) -> None:
        assert lost == []

    def due(self, now: float) -> None:
        pass

    def leave(self) -> None:
        pass


class Careful:
    waits = False


def told(monkeypatch: pytest.MonkeyPatch, *faults: SinkFault) -> Told:
    """What a writer mirrors that meets these faults, then goes on, then is stopped."""
    monkeypatch.setattr(module, "_BACKOFF_S", (0.001, 0.002))
    found: Told = []
    store: Any = Store(list(faults))
    ownership: Any = Ownership()
    went_on = threading.Event()

    def chores(*_: object) -> None:
        went_on.set()

    careful: Any = Careful()
    writer = Writer(
        store, ownership, Inbox(), lambda offsets, why: found.append((offsets, why)), chores,
        careful, hit=none,
    )  # fmt: skip
    writer.start()
    assert went_on.wait(10)
    assert writer.stop(10)
    assert writer.failed is None
    assert writer.waits_for is None
    return found


OFFSETS = {0: 5, 3: 8}
FULL, AWAY = SinkFault("disk_full", "no space"), SinkFault("unreachable", "refused")


def test_a_reason_is_told_once_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, FULL, FULL, FULL) == [(OFFSETS, "disk_full"), (OFFSETS, None)]


def test_another_reason_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, AWAY, FULL) == [
        (OFFSETS, "unreachable"), (OFFSETS, "disk_full"), (OFFSETS, None),
    ]  # fmt: skip


def test_without_trouble_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch) == []

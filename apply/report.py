"""What came of one batch: its outcomes and times, or the partitions that were lost before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from apply.batch import Batch


class Lost(Exception):
    """Partitions of a batch that are no longer ours, or do not stand where the batch begins."""

    def __init__(self, partitions: frozenset[int]) -> None:
        super().__init__(f"no longer ours: {sorted(partitions)}")
        self.partitions = partitions


@dataclass(slots=True)
class Report:
    """What one committed batch did. `outcomes`: per outcome, over all mappings; times in seconds.

    `batch`: what of it was committed; `halted`: the partitions that stop behind it, with the reason.
    """

    batch: Batch
    outcomes: list[int] = field(default_factory=lambda: [0] * 6)
    exceptions: int = 0
    events: int = 0
    lowered: int = 0
    broken: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    halted: dict[int, dict[str, Any]] = field(default_factory=dict)


class Clock:
    """Times the steps of one batch."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def lap(self, report: Report, name: str) -> None:
        now = time.monotonic()
        report.seconds[name] = report.seconds.get(name, 0.0) + now - self._at
        self._at = now

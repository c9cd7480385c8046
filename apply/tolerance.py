"""How many quarantined records a mapping takes before its log partition stops behind one. Pure.

Invariant: the page that is one too many is applied with its evidence, so that somebody can decide
about it; nothing behind it is. Records that wait for others never count: what they wait for may
stand behind the halt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apply.batch import Part
from apply.mapping.types import CompiledMapping

RECORD_FAULTS = "record_faults"
"""The cause of such a halt, in `position.halted`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that this batch has newly put in quarantine; `offset`: of its first page here."""

    mapping: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class TooMany:
    """Where a partition has to stop: behind the page at `offset`. `open`: how many there are."""

    mapping: str
    partition: int
    offset: int
    open: int
    limit: int

    def halted(self, now: datetime) -> dict[str, Any]:
        """What `position.halted` says of it."""
        records = "1 record is" if self.open == 1 else f"{self.open} records are"
        return {
            "cause": RECORD_FAULTS,
            "mapping": self.mapping,
            "detail": f"{records} in quarantine and {self.mapping} takes {self.limit}; "
            f"the last one stands at offset {self.offset}",
            "since": now.isoformat(),
            "unblocked_by": f"decide about them (gapless quarantine list {self.mapping}): retry, "
            "dismiss, or raise the mapping's version; it then goes on by itself",
        }


def limits(mappings: Iterable[CompiledMapping]) -> dict[str, int]:
    """How many records may be in quarantine, by mapping; those that take any number are left out."""
    return {
        one.spec.name: one.spec.faults_max for one in mappings if one.spec.faults_max is not None
    }


def stops(
    refused: Iterable[Refused],
    opened: Mapping[tuple[str, int], int],
    allowed: Mapping[str, int],
) -> dict[int, TooMany]:
    """Which partitions have to stop, each at the earliest page that is one too many.

    `opened`: how many are in quarantine now, by mapping and partition, those of this batch included.
    """
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in refused:
        if one.mapping in allowed:
            offsets[one.mapping, one.partition].append(one.offset)
    found: dict[int, TooMany] = {}
    for (mapping, partition), at in offsets.items():
        total, limit = opened.get((mapping, partition), 0), allowed[mapping]
        if total <= limit:
            continue
        left = max(0, limit - (total - len(at)))
        stop = TooMany(mapping, partition, sorted(at)[left], total, limit)
        if partition not in found or stop.offset < found[partition].offset:
            found[partition] = stop
    return found


def behind(parts: Sequence[Part], stop: Mapping[int, TooMany]) -> dict[int, int]:
    """Of which partitions a batch holds more than may be applied, and up to which offset it may."""
    found = {}
    for part in parts:
        at = stop.get(part.partition)
        if at is not None:
            offsets = [page.offset for page in part.pages] + [mark.offset for mark in part.marks]
            if max(offsets) > at.offset:
                found[part.partition] = at.offset
    return found

"""One fact: one state of one entity, as it was committed. It never changes once it is written.

A fact of a generated record holds no body: the body follows from its id, version and stamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """Where the body of a fact comes from."""

    GENERATED = 0
    GIVEN = 1  # JSON that a test gave
    RAW = 2  # bytes that a test gave; perhaps no JSON at all
    TOMBSTONE = 3


@dataclass(slots=True, eq=False)
class Fact:
    """Times are microseconds of the provider's clock; `seq` is the place in the change feed, from 1."""

    id: str
    version: int
    stamp_us: int
    seq: int
    committed_us: int
    visible_us: int
    kind: Kind
    # What was given, or the rendered bytes while they are worth keeping.
    body: bytes | None = None

    @property
    def deleted(self) -> bool:
        return self.kind is Kind.TOMBSTONE


def by_id(fact: Fact) -> str:
    return fact.id


def by_time(fact: Fact) -> tuple[int, str]:
    return (fact.stamp_us, fact.id)

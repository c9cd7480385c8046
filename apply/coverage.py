"""Which stretches of the source's time were fully searched: how a new statement changes that. Pure.

Invariant: the stretches of one plan never overlap, and no statement makes a searched stretch less
searched. Absent on purpose: how a walk came to be; that stands in marks and in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

State = Literal["complete", "complete_with_errors", "failed", "gap"]
_SEARCHED = ("complete", "complete_with_errors")


@dataclass(frozen=True, slots=True)
class Stretch:
    """`[start, end)` and what is known of it. Counts add up over every search of the stretch."""

    start: datetime
    end: datetime
    state: State
    run: str | None
    reason: str | None
    pages: int
    records: int
    errors: int
    completed_at: datetime


def add(known: Sequence[Stretch], new: Stretch, *, searched: bool = True) -> list[Stretch]:
    """The stretches after a new statement, sorted and merged with their neighbours.

    `known`: all that overlap or touch the new one. `searched` False: a `complete` that only says
    "nothing was there" (caught up), which does not replace what a search found.
    """
    if new.start >= new.end:
        return merged(known)
    kept: list[Stretch] = []
    pieces = [new]
    for old in sorted(known, key=lambda one: one.start):
        if old.end <= new.start or old.start >= new.end:
            kept.append(old)
        elif _replaces(new, old, searched):
            left = _outside(old, new)
            kept += left
            if not left and _same(old, new):
                # searched again as a whole: the counts of both are kept, as between neighbours
                pieces[0] = _counted(pieces[0], old)
        else:
            kept.append(old)
            pieces = [piece for one in pieces for piece in _outside(one, old)]
    return merged([*kept, *pieces])


def _replaces(new: Stretch, old: Stretch, searched: bool) -> bool:
    if new.state in _SEARCHED:
        return searched or old.state not in _SEARCHED
    return new.state == "gap" and old.state == "failed"


def _outside(one: Stretch, hole: Stretch) -> list[Stretch]:
    """What is left of a stretch beside a hole; counts stay with the first piece left."""
    if one.end <= hole.start or one.start >= hole.end:
        return [one]
    left = [replace(one, end=hole.start)] if one.start < hole.start else []
    if one.end > hole.end:
        rest = replace(one, start=hole.end)
        left.append(replace(rest, pages=0, records=0, errors=0) if left else rest)
    return left


def _counted(one: Stretch, other: Stretch) -> Stretch:
    return replace(
        one,
        pages=one.pages + other.pages,
        records=one.records + other.records,
        errors=one.errors + other.errors,
        completed_at=max(one.completed_at, other.completed_at),
    )


def _joined(one: Stretch, other: Stretch) -> Stretch:
    return replace(
        _counted(one, other), start=min(one.start, other.start), end=max(one.end, other.end)
    )


def merged(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours that touch and say the same become one."""
    found: list[Stretch] = []
    for one in sorted(stretches, key=lambda stretch: stretch.start):
        last = found[-1] if found else None
        if last is not None and last.end == one.start and _same(last, one):
            found[-1] = _joined(last, one)
        else:
            found.append(one)
    return found


def _same(one: Stretch, other: Stretch) -> bool:
    return (one.state, one.run, one.reason) == (other.state, other.run, other.reason)

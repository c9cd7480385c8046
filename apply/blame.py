"""Mapping a page without the records that end the process: these are quarantined, unread. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator

import msgspec

from apply.mapping.types import Mapped
from apply.outcomes import Outcome, Reason, RecordFault
from schemas.records import Observation

_DETAIL = "the process that mapped or stored this record ended, again and again"


def part_of(observation: Observation, first: int, last: int) -> Observation:
    """The same page with its records at positions `[first, last)` only."""
    start = observation.first_index
    return msgspec.structs.replace(
        observation,
        records=observation.records[first:last],
        missing=[m for m in observation.missing if first <= m.index - start < last],
        first_index=start + first,
    )


def map_without(
    map_page: Callable[[Observation], Mapped], observation: Observation, blamed: Collection[int]
) -> Mapped:
    """`map_page` of everything but the records at these positions, whose keys nobody may read."""
    whole = Mapped(observation.first_index, bytearray())
    for first, last in _stretches(len(observation.records), blamed):
        part = part_of(observation, first, last)
        _join(whole, _blamed(part.first_index) if first in blamed else map_page(part))
    return whole


def _stretches(records: int, blamed: Collection[int]) -> Iterator[tuple[int, int]]:
    """Each blamed position by itself, and what lies between."""
    first = 0
    for at in sorted(one for one in blamed if one < records):
        if first < at:
            yield first, at
        yield at, at + 1
        first = at + 1
    if first < records:
        yield first, records


def _blamed(index: int) -> Mapped:
    fault = RecordFault(index, Reason.KILLED_WORKER, _DETAIL)
    return Mapped(index, bytearray([Outcome.QUARANTINED]), faults=[fault], unreadable=1)


def _join(whole: Mapped, part: Mapped) -> None:
    """Everything that a part says, behind what the whole says already."""
    for field in dataclasses.fields(Mapped):
        if field.name == "first_index":
            continue
        ours, theirs = getattr(whole, field.name), getattr(part, field.name)
        if isinstance(ours, dict):
            ours.update(theirs)
        else:
            setattr(whole, field.name, ours + theirs)

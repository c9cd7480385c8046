"""One pass over the log, from fixed starts to fixed ends, batch by batch, on the caller's thread.

What a replay and its dry run share. Raises what it cannot go on from; waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from apply.batch import Batch
from apply.consumer import Opening, Reader
from apply.decode import Decoder
from apply.inbox import Inbox, ReaderFailed, ReadFault, Stuck
from apply.listings import KnownSnapshot, Listings
from schemas.failpoints import Hit
from schemas.settings import Settings

_TAKE_S = 0.5


class PassFailed(Exception):
    """The log could not be read to the end; says why. What was done stays done."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part `[start, end)` of one partition's log. `known`: snapshots that Postgres knows."""

    partition: int
    generation: int
    start: int
    end: int
    known: tuple[KnownSnapshot, ...] = ()


@contextmanager
def reading(
    settings: Settings, decoder: Decoder, stretches: list[Stretch], *, hit: Hit
) -> Iterator[Callable[[], Iterator[Batch]]]:
    """A reader over the stretches; call what this gives to iterate over their batches.

    A batch is taken only once the one before was dealt with, so memory is bounded.
    """
    inbox = Inbox()
    reader = Reader(settings, decoder, inbox, hit=hit, role="replay")
    reader.start()
    try:
        yield lambda: _batches(reader, inbox, stretches)
    finally:
        inbox.close()
        reader.stop()


def _batches(reader: Reader, inbox: Inbox, stretches: list[Stretch]) -> Iterator[Batch]:
    left: dict[int, int] = {}
    for number, stretch in enumerate(stretches, 1):
        if stretch.start < stretch.end:
            left[stretch.partition] = stretch.end
            reader.open(_opening(number, stretch))
    while left:
        found = inbox.take(_TAKE_S)
        if isinstance(found, Batch):
            yield found
            for part in found.parts:
                if part.end >= left.get(part.partition, part.end + 1):
                    del left[part.partition]
            inbox.applied(found)
        elif isinstance(found, ReadFault | Stuck | ReaderFailed):
            raise PassFailed(found.detail)


def _opening(session: int, stretch: Stretch) -> Opening:
    return Opening(
        partition=stretch.partition,
        session=session,
        generation=stretch.generation,
        next_offset=stretch.start,
        leader_epoch=None,
        listings=Listings.of(stretch.known),
        until=stretch.end,
    )

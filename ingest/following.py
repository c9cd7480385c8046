"""Tells people how long polls get on: one line in the log now and then, while there is any.

Holds what the newest committed checkpoints say of polls in work, of the partition ids owned here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from ingest.headway import Progress, progress
from schemas.records import SourceCheckpoint

_log = structlog.get_logger(__name__)
EVERY_S = 30.0
_NAMED = 5
"""Polls that a line names; of thousands nobody could read all."""


class Following:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._newest: dict[str, SourceCheckpoint] = {}

    def note(self, checkpoint: SourceCheckpoint) -> None:
        """A checkpoint was committed."""
        if checkpoint.headway:
            self._newest[checkpoint.partition_id] = checkpoint
        else:
            self._newest.pop(checkpoint.partition_id, None)

    def drop(self, partition_ids: Iterable[str]) -> None:
        """These are owned no longer."""
        for partition_id in partition_ids:
            self._newest.pop(partition_id, None)

    def long(self, now: int) -> list[tuple[str, Progress]]:
        """The polls that go on for long, by partition id; what takes longest or is unknown first."""
        found = [
            (name, one)
            for name, checkpoint in self._newest.items()
            for one in progress_of(checkpoint, now).values()
            if one.long
        ]
        return sorted(found, key=lambda each: _patience(each[1]), reverse=True)

    async def tell(self, now: Callable[[], int]) -> None:
        """One line every half minute for as long as a poll is long; `now` in microseconds."""
        while True:
            await asyncio.sleep(EVERY_S)
            found = self.long(now())
            if found:
                _log.info("reading", **line(found))


def progress_of(checkpoint: SourceCheckpoint, now: int) -> dict[str, Progress]:
    """How the polls in work get on by what a checkpoint says, by plan; `now` in microseconds."""
    waits = checkpoint.not_before is not None and checkpoint.not_before > now
    held = waits or checkpoint.blocked is not None
    return {
        name: progress(name, headway, checkpoint.plans[name], checkpoint.written_at, now, held=held)
        for name, headway in sorted(checkpoint.headway.items())
        if name in checkpoint.plans
    }


def line(found: list[tuple[str, Progress]]) -> dict[str, object]:
    """What the log's line says of these polls; rates are of all of them together."""
    return {
        "polls": len(found),
        "pages_per_s": round(sum(one.pages_per_s or 0.0 for _, one in found), 1),
        "records_per_s": round(sum(one.records_per_s or 0.0 for _, one in found)),
        "slowest": [f"{name} {_said(one)}" for name, one in found[:_NAMED]],
    }


def _said(one: Progress) -> str:
    words = [f"{one.plan}: {one.pages:,} pages, {one.records:,} records in {one.elapsed_s:.0f} s"]
    if one.share is not None:
        words.append(f"{one.share:.0%} of the range")
    if one.left_s is not None:
        words.append(f"{one.left_s:.0f} s left")
    return ", ".join(words)


def _patience(one: Progress) -> float:
    return float("inf") if one.left_s is None else one.left_s

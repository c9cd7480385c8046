"""Arithmetic of intervals: text and microseconds, coalescing, how far everything is complete.

All intervals are half-open, `[start, end)`; their text sorts as their time does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from schemas.records import Done, Failed, PlanState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)

Range = tuple[int, int]


@lru_cache(maxsize=4096)
def to_text(us: int) -> str:
    """Microseconds since the epoch as `2024-01-01T00:00:00.000000Z`."""
    moment = _EPOCH + timedelta(microseconds=us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)


@lru_cache(maxsize=4096)
def to_us(text: str) -> int:
    """The inverse of `to_text`."""
    return (datetime.fromisoformat(text) - _EPOCH) // _MICRO


def scope_of(start: str, end: str) -> str:
    """The scope of an interval's pages and marks."""
    return f"{start}~{end}"


def floor_to(us: int, step: int) -> int:
    """The greatest multiple of `step` that is not above `us`."""
    return us - us % step


def coalesced(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, with touching and overlapping ranges merged."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def run_end(at: int, ranges: Iterable[Range]) -> int:
    """How far a contiguous run of `ranges` reaches that touches `at`."""
    for start, end in coalesced(ranges):
        if start > at:
            break
        at = max(at, end)
    return at


def done_ranges(state: PlanState) -> list[Range]:
    """Intervals complete beyond `complete_before`."""
    return [(to_us(d.start), to_us(d.end)) for d in state.done]


def failed_ranges(state: PlanState) -> list[Range]:
    """Intervals that failed and nobody has accepted."""
    return [(to_us(f.start), to_us(f.end)) for f in state.failed]


def open_ranges(state: PlanState) -> list[Range]:
    """Intervals being fetched."""
    return [(to_us(o.start), to_us(o.end)) for o in state.open]


def frontier(state: PlanState) -> int:
    """How far anything was asked for: behind it nothing is complete, failed or open."""
    known = done_ranges(state) + failed_ranges(state) + open_ranges(state)
    return max([to_us(state.complete_before or ""), *(end for _, end in known)])


def advanced(
    before: int, done: Iterable[Range], failed: Sequence[Range]
) -> tuple[int, list[Range]]:
    """How far everything is complete, and the complete ranges beyond it.

    It never goes back, and never past a failed interval, not even one that was read again below it.
    """
    ranges = coalesced(done)
    reach = run_end(before, ranges)
    reach = max(before, min([reach, *(start for start, _ in failed)]))
    return reach, [(max(s, reach), e) for s, e in ranges if e > reach]


def as_done(ranges: Iterable[Range]) -> list[Done]:
    """Ranges as they stand in a checkpoint."""
    return [Done(to_text(start), to_text(end)) for start, end in ranges]


def with_failed(failed: Sequence[Failed], new: Failed) -> list[Failed]:
    """`failed` with one more; neighbours that failed for the same reason become one."""
    result: list[Failed] = []
    for item in sorted([*failed, new], key=lambda f: f.start):
        last = result[-1] if result else None
        if last and last.reason == item.reason and item.start <= last.end:
            result[-1] = Failed(last.start, max(last.end, item.end), item.reason)
        else:
            result.append(item)
    return result

"""What is asked for an interval, and what the times on a page say about the rest of its walk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ingest.plans.protocol import Stall
from ingest.plans.ranges import Range, floor_to
from schemas.definitions.source import Bounds, IntervalSpec, Order

_START_EXCLUDED = (Bounds.OPEN, Bounds.OPEN_CLOSED, Bounds.UNKNOWN)


def asked(interval: Range, bounds: Bounds, unit: int) -> Range:
    """The ends to ask for, so that the server's answer holds all of `[start, end)`.

    An excluded start is asked one granule earlier; with unknown bounds both ends are widened. An
    included end only brings records of the next interval, which are kept.
    """
    start, end = interval
    if bounds in _START_EXCLUDED:
        start -= unit
    if bounds is Bounds.UNKNOWN:
        end += unit
    return start, end


def since(start: int, spec: IntervalSpec) -> int:
    """Since when another stream has changed what is asked below it from `start` on. There is no end:
    what changed again later is stamped later.
    """
    unit = max(spec.granularity_us, spec.format.unit_us)
    return asked((floor_to(start, unit), start), spec.bounds, unit)[0]


def middle(interval: Range, unit: int, width_min: int) -> int | None:
    """Where to bisect; None if the interval is as small as it may become. Only the newer half may
    be smaller than `width_min`.
    """
    start, end = interval
    half = -floor_to(-(end - start) // 2, unit)
    at = start + max(half, width_min)
    return at if at < end else None


def horizon(retention_us: int | None, server_max: int, unit: int) -> int | None:
    """What is older than this the provider may have purged; None: unknown."""
    if retention_us is None:
        return None
    return -floor_to(retention_us - server_max, unit)


def disorder(times: Sequence[int], last: int | None, order: Order) -> Stall | None:
    """A stall if the page is not in the declared order (behind `last` of the page before)."""
    if order is Order.NONE:
        return None
    run = list(times) if last is None else [last, *times]
    sign = 1 if order is Order.ASC else -1
    if all(sign * a <= sign * b for a, b in itertools.pairwise(run)):
        return None
    return Stall(
        f"a page is not in the declared order ({order}), so rows may have been passed over",
        "correct `order`; `none` makes no claim",
    )


def is_beyond(
    times: Sequence[int], window: Range, order: Order, *, by_start: bool, by_end: bool
) -> bool:
    """Whether all later records lie outside the window, at an end that the request does not say."""
    if not times:
        return False
    if order is Order.ASC and not by_end:
        return times[-1] > window[1]
    if order is Order.DESC and not by_start:
        return times[-1] < window[0]
    return False

"""Which facts a question by time means: bounds, granularity, retention, result cap, place of a token.

Every window becomes one half-open range of stored stamps, whatever the server's bounds are.
"""

from __future__ import annotations

from dataclasses import dataclass

from .answers import Refused
from .collection import Collection
from .facts import Fact
from .settings import Settings
from .times import SECOND_US, BadTime, parse
from .tokens import Place

_END_OF_TIME_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """The records of one page. `total` counts the window, `more` says whether some stand behind the page."""

    facts: list[Fact]
    total: int
    more: bool


def when(text: object) -> int | None:
    """Microseconds of an asked time, None for none; raises Refused."""
    if text is None:
        return None
    try:
        return parse(str(text))
    except BadTime as error:
        raise Refused(400, "bad_time", str(error)) from None


def half_open(settings: Settings, from_us: int | None, to_us: int | None) -> tuple[int, int]:
    """The stored stamps [low, high) that the server's bounds and granularity make of the asked ends."""
    unit_us = settings.granularity_us
    low_us, high_us = 0, _END_OF_TIME_US
    if from_us is not None:
        low_us = from_us - from_us % unit_us + (0 if settings.bounds[0] == "[" else unit_us)
    if to_us is not None:
        high_us = to_us - to_us % unit_us + (unit_us if settings.bounds[1] == "]" else 0)
    return low_us, high_us


def ranks(
    collection: Collection, settings: Settings, now_us: int, from_us: int | None, to_us: int | None
) -> tuple[int, int, int]:
    """Ranks [start, stop) that can be given, and the count of the whole window. Raises Refused."""
    collection.refresh()
    if settings.ignore_filter:
        from_us = to_us = None
    low_us, high_us = half_open(settings, from_us, to_us)
    if settings.retention_s is not None:
        kept_us = now_us - int(settings.retention_s * SECOND_US)
        if low_us < kept_us and settings.retention_answer == "refuse":
            raise Refused(410, "before_retention", "the window begins before the retention")
        low_us = max(low_us, kept_us)
    start = collection.by_time.rank((low_us, ""))
    stop = max(start, collection.by_time.rank((high_us, "")))
    total, cap = stop - start, settings.result_cap
    if cap is not None and total > cap:
        if settings.result_cap_answer == "refuse":
            raise Refused(422, "too_many_results", f"the window holds more than {cap} records")
        stop = start + cap
    return start, stop, total


def page(
    collection: Collection, bounds: tuple[int, int, int], place: Place | None, limit: int
) -> Found:
    """At most `limit` records of these ranks behind a place."""
    start, stop, total = bounds
    if place is not None:
        start = max(start, collection.by_time.rank_after((place.stamp_us, place.id)))
    end = max(start, min(start + limit, stop))
    return Found(collection.by_time.slice(start, end), total, end < stop)

"""Positions of records in the order of (time, id): whether pages keep it, and whether they move on. Pure.

A record's time and id are compared as the provider showed them: to round either would pass over
what lies between. How a server compares texts is its own affair, so several orders are accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ingest.plans.opaque import give
from ingest.plans.protocol import TOKEN_MAX_BYTES, Position, Stall, too_long

_Key = Callable[[Any], Any]


def out_of_order(
    positions: Sequence[Position],
    times: Sequence[int | None],
    after: Position,
    after_us: int | None,
) -> Stall | None:
    """A stall if the page does not ascend by (time, id) from `after`, where its question began.

    `times`: those of `positions` in microseconds; `after_us`: that of `after`, None on a first page.
    Records without a time have no place in the order, and say nothing about it.
    """
    known = [(us, *position) for us, position in zip(times, positions, strict=True)]
    if after_us is not None:
        known.insert(0, (after_us, *after))
    placed = [(us, text, id_) for us, text, id_ in known if us is not None]
    ties: list[tuple[object, object]] = []
    for (us_a, text_a, id_a), (us_b, text_b, id_b) in itertools.pairwise(placed):
        if us_a > us_b:
            return _disordered()
        if text_a == text_b and id_a is not None and id_b is not None:
            ties.append((give(id_a), give(id_b)))
    return None if _ascending(ties) else _disordered()


def position_fault(last: Position, before: Position) -> Stall | None:
    """A stall if the next page cannot be asked for behind `last`, asked behind `before`."""
    time, id_ = last
    if time is None or id_ is None:
        lacks = "time" if time is None else "id"
        return Stall(
            f"the page's last record has no {lacks}, so the next page cannot be asked for",
            f"correct `{'time' if time is None else 'id'}`; or leave such records out in the request",
        )
    if too_long(time) or too_long(id_):
        return Stall(
            f"the page's last record has a time or id longer than {TOKEN_MAX_BYTES} bytes",
            "correct `time` or `id`: a checkpoint cannot hold such a position",
        )
    if last == before:
        return Stall(
            "the page ends where it began: its pages go in a circle",
            "a filter that excludes {after.id} itself; or `end: nothing_new` if it is included",
        )
    return None


def _ascending(ties: Sequence[tuple[object, object]]) -> bool:
    """Whether one order that servers have makes every pair ascend; the same id may come again."""
    return any(_holds(ties, key) for key in _ORDERS)


def _holds(ties: Sequence[tuple[object, object]], key: _Key) -> bool:
    try:
        return all(a == b or key(a) <= key(b) for a, b in ties)
    except (TypeError, ValueError):
        return False


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("no number")
    return int(value) if isinstance(value, str) else value


def _letters(value: object) -> str:
    """Letters and digits without regard to case, as most languages' collations weigh them first."""
    return "".join(c for c in str(value).casefold() if c.isalnum())


_ORDERS: tuple[_Key, ...] = (_number, str, lambda value: str(value).casefold(), _letters)


def _disordered() -> Stall:
    return Stall(
        "a page is not in the order of (time, id), so rows may have been passed over",
        "sort by the time and then the id, both ascending, and filter by both; a server that shows"
        " times coarser than it sorts by is read with `interval`",
    )

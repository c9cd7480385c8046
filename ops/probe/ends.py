"""Which ends of a window the server includes, in which steps, and how finely it stores. Pure.

Asks whether windows around known records include them, always the window whose answer tells most,
until what matters is certain. A record that moved meanwhile is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ops.probe.model import Question, Refused, Row, Sight, Steps, ask
from ops.probe.servers import Beliefs, Mark, Server, Window, outside, widest, windows
from ops.probe.walking import Scope, finer_units, walk

_RECORDS_MAX = 4
_PAGES_MAX = 3
_ENOUGH = 2e-4
"""A question that would tell less than this is not worth asking; more than what one record leaves of
a finer stamp, so that no single record decides about those.
"""
_MS = 1_000


@dataclass(frozen=True, slots=True)
class Seen:
    """A record with the question that showed it."""

    row: Row
    question: Question

    @property
    def mark(self) -> Mark:
        assert self.row.time is not None
        return Mark(self.row.time, self.row.unit)


@dataclass(slots=True)
class Ends:
    """`beliefs`: what the answers allow. `told`: records that told; `strayed`: records that no
    window around their own time includes; `moved`: records that changed meanwhile.
    """

    beliefs: Beliefs
    told: int = 0
    strayed: int = 0
    moved: int = 0
    asked: int = 0
    fine_refused: bool = False
    unsure: set[tuple[Window, int | None]] = field(default_factory=set)


def find_ends(
    scope: Scope, known: Sequence[Seen], ascending: bool, most: int, ends: Ends
) -> Steps[None]:
    """Fills `ends` with about `most` requests: a window is asked for to its end, and one more
    request sees whether its record has moved.
    """
    for seen in known[:_RECORDS_MAX]:
        if ends.asked >= most or _settled(scope, ends.beliefs):
            return
        before, here = ends.asked, ends.beliefs.at(seen.mark)
        here = yield from _about(scope, seen, here, ascending, most, ends)
        if ends.asked == before:
            continue  # it has nothing to tell
        still = yield from _is_still_there(seen)
        if not still:
            ends.moved += 1
        elif here.held:
            ends.told += 1
            ends.beliefs = here
        else:
            ends.strayed += 1
        ends.unsure.clear()


def _about(
    scope: Scope, seen: Seen, here: Beliefs, ascending: bool, most: int, ends: Ends
) -> Steps[Beliefs]:
    """The beliefs after all that one record can tell; none left: it contradicts every server."""
    seen_in = seen_out = False
    while ends.asked < most and here.held and not _settled(scope, here):
        found = _best(scope, seen.mark, here, ends)
        if found is None:
            break
        window, fine = found
        included = yield from _includes(scope, seen.row, window, fine, ascending, ends)
        if included is None:
            ends.unsure.add((window, fine))
        else:
            seen_in, seen_out = seen_in or included, seen_out or not included
            here = here.after(window, included)
    # Whoever filters by this time has it in here, and not out there.
    certain = []
    if not seen_in:
        certain.append(widest(here, seen.mark, scope.unit, scope.by_start, scope.by_end))
    if not seen_out and not (scope.by_start and scope.by_end):
        certain.append(outside(here, seen.mark, scope.unit, scope.by_start))
    for window in certain:
        if here.held and ends.asked < most:
            included = yield from _includes(scope, seen.row, window, None, ascending, ends)
            here = here if included is None else here.after(window, included)
    return here


def _best(scope: Scope, mark: Mark, here: Beliefs, ends: Ends) -> tuple[Window, int | None] | None:
    """The window that tells most; in the definition's own notation if any of them tells enough."""
    fine = 1 if mark.shown <= _MS else _MS
    units: list[int | None] = [None]
    if fine in finer_units(scope.interval.format) and not ends.fine_refused:
        units.append(fine)
    for unit in units:
        choice = [
            (here.gain(window), -number, window)
            for number, window in enumerate(
                windows(
                    here,
                    mark,
                    unit=unit or scope.unit,
                    by_start=scope.by_start,
                    by_end=scope.by_end,
                )
            )
            if (window, unit) not in ends.unsure
        ]
        gain, _, window = max(choice, default=(0.0, 0, (None, None)))
        if gain >= _ENOUGH:
            return window, unit
    return None


def _includes(
    scope: Scope, row: Row, window: Window, fine: int | None, ascending: bool, ends: Ends
) -> Steps[bool | None]:
    """Whether a window includes the record; None: it cannot be told in a few pages."""
    assert row.time is not None

    def enough(sight: Sight) -> bool:
        if any((one.id, one.time) == (row.id, row.time) for one in sight.rows):
            return True
        last = sight.rows[-1].time if sight.rows else None
        return ascending and last is not None and last > (row.time or 0) + row.unit

    walked = yield from walk(
        scope, scope.window(*window), pages_max=_PAGES_MAX, until=enough, fine=fine
    )
    ends.asked += max(1, len(walked.pages))
    if walked.refused is not None:
        ends.fine_refused |= fine is not None
        return None
    if any((one.id, one.time) == (row.id, row.time) for one in walked.rows):
        return True
    if walked.ended or (walked.pages and enough(walked.pages[-1][1])):
        return False
    return None


def _is_still_there(seen: Seen) -> Steps[bool]:
    """Whether the question that showed a record shows it still, with the same time."""
    answer = yield from ask(seen.question)
    return not isinstance(answer, Refused) and any(
        (row.id, row.time) == (seen.row.id, seen.row.time) for row in answer.rows
    )


def _settled(scope: Scope, beliefs: Beliefs) -> bool:
    """Whether nothing that matters is open."""

    def matters(server: Server) -> object:
        return (
            server.start_closed if scope.by_start else None,
            server.end_closed if scope.by_end else None,
            max(server.step, scope.unit),
            server.finer,
        )

    return beliefs.all_agree(matters)


def choose(scope: Scope, seen: Sequence[Seen], ascending: bool, descending: bool) -> list[Seen]:
    """The records that tell most: on the grid of what can be asked, and off the grid of longer steps.

    Where one end cannot be asked, those that stand near the other end of the listing.
    """
    timed = [one for one in seen if one.row.time is not None and not one.row.gone]
    if scope.by_start and not scope.by_end and not ascending:
        timed = sorted(timed, key=lambda one: -(one.row.time or 0))[:20]
    elif scope.by_end and not scope.by_start and not descending:
        timed = sorted(timed, key=lambda one: one.row.time or 0)[:20]
    unit = scope.unit

    def rank(one: Seen) -> tuple[bool, int]:
        time = one.row.time or 0
        coarse = sum(time % step == 0 for step in (1_000_000, 60_000_000) if step > unit)
        return time % unit != 0, coarse

    ranked = sorted(timed, key=rank)
    apart = ranked[:1]
    for one in sorted(ranked[1:], key=lambda one: rank(one)[1]):
        if all(abs((one.row.time or 0) - (o.row.time or 0)) > one.row.unit for o in apart):
            apart.append(one)
    return apart

"""The newest rows, looked at again and again. Pure: a generator of questions and pauses."""

from __future__ import annotations

from collections.abc import Sequence

from ops.probe.evidence import Evidence, Look, clock_of
from ops.probe.model import Sight, Steps, pause
from ops.probe.sampling import DAY, S, times_of
from ops.probe.walking import Scope, walk
from schemas.definitions.source import Turn

_LOOK_BACK_US = (120 * S, 30 * S, 8 * S)
"""A busy collection is looked at from a later time on: a look that sees everything tells more."""
_PAUSES_S = (1.0, 1.0, 2.0, 3.0)
_STEADY = (Turn.TOKEN, Turn.LAST_ID, Turn.KEYSET)


def looks(scope: Scope, evidence: Evidence) -> Steps[None]:
    """The newest rows, looked at again and again: what shows later than it is stamped?"""
    if not times_of(evidence):
        return
    clock = clock_of(evidence.sights())
    now = scope.now if clock is None else clock.earliest(scope.now)
    back = iter(_LOOK_BACK_US)
    start = now - next(back)
    for number in range(len(_PAUSES_S) + 1):
        look = yield from _look(scope, evidence, start, now + DAY)
        while number == 0 and look is not None and scope.by_start and look.floor is None:
            narrower = next(back, None)
            if narrower is None:
                break
            start = now - narrower
            look = yield from _look(scope, evidence, start, now + DAY)
        if look is None:
            return
        evidence.looks.append(look)
        if number == 1 and _quiet(evidence, now):
            return
        if number < len(_PAUSES_S):
            yield from pause(_PAUSES_S[number])


def _look(scope: Scope, evidence: Evidence, start: int, end: int) -> Steps[Look | None]:
    """The rows from `start` on, as far as a few pages show them; None: no page came."""
    values = scope.window(start - start % scope.unit, end - end % scope.unit)
    walked = yield from walk(scope, values, pages_max=3)
    if walked.refused is not None or not walked.pages:
        return None
    sights = [sight for _, sight in walked.pages]
    evidence.looked += sights
    return Look(
        rows=tuple(walked.rows),
        first=len(sights[0].rows),
        whole=walked.ended and scope.by_start and _steady(scope, evidence, sights),
        start=start,
        sent=sights[0].sent,
        received=sights[-1].received,
    )


def _steady(scope: Scope, evidence: Evidence, sights: Sequence[Sight]) -> bool:
    """Whether no row can have slipped between two pages, which would look like one that is late.

    Positions shift when something goes. Where the first page had room left, nothing stood behind it,
    and the empty page that a walk by page numbers ends with took nothing away.
    """
    if len(sights) == 1 or scope.turn in _STEADY:
        return True
    return not any(sight.rows for sight in sights[1:]) and _has_room(scope, evidence, sights[0])


def _has_room(scope: Scope, evidence: Evidence, page: Sight) -> bool:
    """Whether it holds fewer rows than the full pages of the sample, and than were asked for; False
    where neither is known.
    """
    full = [] if evidence.cap is None else [*evidence.cap.sizes]
    if scope.by_size and scope.size is not None:
        full.append(scope.size)
    return bool(full) and len(page.rows) < min(full)


def _quiet(evidence: Evidence, now: int) -> bool:
    """Nothing came between two looks, nor shortly before."""
    shown = [{(row.id, row.time) for row in look.rows} for look in evidence.looks]
    newest = max((row.time or 0 for look in evidence.looks for row in look.rows), default=0)
    return all(one == shown[0] for one in shown) and now - newest > 60 * S

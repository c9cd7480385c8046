"""The newest rows, looked at again and again. Pure: a generator of questions and pauses."""

from __future__ import annotations

from ops.probe.evidence import Evidence, Look, clock_of
from ops.probe.model import Steps, pause
from ops.probe.sampling import DAY, S, times_of
from ops.probe.walking import Scope, walk
from schemas.definitions.source import Turn

_LOOK_BACK_US = 120 * S
_PAUSES_S = (1.0, 1.0, 2.0, 3.0)
_STEADY = (Turn.TOKEN, Turn.LAST_ID)


def looks(scope: Scope, evidence: Evidence) -> Steps[None]:
    """The newest rows, looked at again and again: what shows later than it is stamped?"""
    if not times_of(evidence):
        return
    clock = clock_of(evidence.sights())
    now = scope.now if clock is None else clock.earliest(scope.now)
    start, end = now - _LOOK_BACK_US, now + DAY
    values = scope.window(start - start % scope.unit, end - end % scope.unit)
    for number in range(len(_PAUSES_S) + 1):
        walked = yield from walk(scope, values, pages_max=3)
        if walked.refused is not None or not walked.pages:
            return
        sights = [sight for _, sight in walked.pages]
        # Positions shift when something goes: a row that slipped between two pages is not late.
        steady = len(sights) == 1 or scope.turn in _STEADY
        whole = walked.ended and scope.by_start and steady
        evidence.looked += sights
        evidence.looks.append(
            Look(
                tuple(walked.rows),
                len(sights[0].rows),
                whole,
                start,
                sights[0].sent,
                sights[-1].received,
            )
        )
        if number == 1 and _quiet(evidence, now):
            return
        if number < len(_PAUSES_S):
            yield from pause(_PAUSES_S[number])


def _quiet(evidence: Evidence, now: int) -> bool:
    """Nothing came between two looks, nor shortly before."""
    shown = [{(row.id, row.time) for row in look.rows} for look in evidence.looks]
    newest = max((row.time or 0 for look in evidence.looks for row in look.rows), default=0)
    return all(one == shown[0] for one in shown) and now - newest > 60 * S

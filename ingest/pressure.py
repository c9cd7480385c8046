"""How many requests a credential may have in flight: one more after good answers, a share after bad ones. Pure.

Additive increase, multiplicative decrease: the limit finds what a provider bears without being told.
One wave of trouble counts once, however many requests were in flight. Times in seconds, rising.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

RAISE_AFTER = 20
"""Good answers in a row before one more request may run beside the others."""
THROTTLED_SHARE, SLOW_SHARE = 0.5, 0.75
SLOW_FACTOR, SLOW_LEAST_S = 3.0, 0.5
"""Slow is so many times the usual, and longer than it by at least this."""
SETTLE_ANSWERS = 10
"""Answers before anything is called usual."""
_USUAL_WEIGHT, _SLOW_WEIGHT = 0.1, 0.02
_COOL_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """What one credential has learnt. `most`: the declared bound; `allowed`: 1 to `most`.

    `usual_s`: the usual time to a whole answer; a provider that became slower for good becomes
    the usual, slowly. `cool_until_s`: trouble until then is the wave that was answered already.
    """

    most: int
    allowed: int
    usual_s: float = 0.0
    seen: int = 0
    good: int = 0
    cool_until_s: float = 0.0


def fresh(most: int) -> Pressure:
    """Before the first answer: as much as is declared."""
    return Pressure(most, most)


def answered(state: Pressure, elapsed_s: float, now_s: float) -> Pressure:
    """A whole answer came after `elapsed_s`, and it did not ask for less."""
    slow = state.seen >= SETTLE_ANSWERS and elapsed_s > max(
        SLOW_FACTOR * state.usual_s, state.usual_s + SLOW_LEAST_S
    )
    after = replace(state, usual_s=_usual(state, elapsed_s, slow=slow), seen=state.seen + 1)
    if slow:
        return _less(after, SLOW_SHARE, elapsed_s, now_s)
    if state.good + 1 < RAISE_AFTER:
        return replace(after, good=state.good + 1)
    return replace(after, good=0, allowed=min(state.allowed + 1, state.most))


def refused(state: Pressure, elapsed_s: float, now_s: float) -> Pressure:
    """The provider says that it is asked too much (429) or cannot (503)."""
    return _less(state, THROTTLED_SHARE, elapsed_s, now_s)


def _usual(state: Pressure, elapsed_s: float, *, slow: bool) -> float:
    if state.seen < SETTLE_ANSWERS:
        return (state.usual_s * state.seen + elapsed_s) / (state.seen + 1)
    weight = _SLOW_WEIGHT if slow else _USUAL_WEIGHT
    return state.usual_s + weight * (elapsed_s - state.usual_s)


def _less(state: Pressure, share: float, elapsed_s: float, now_s: float) -> Pressure:
    """Requests that were under way already will tell the same: they are heard once."""
    if now_s < state.cool_until_s:
        return replace(state, good=0)
    allowed = max(1, int(state.allowed * share))
    return replace(
        state, allowed=allowed, good=0, cool_until_s=now_s + max(elapsed_s, _COOL_LEAST_S)
    )

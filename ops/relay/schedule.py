"""Which events are tried, and what becomes of them after a round. Pure: times are durations.

Only the head of a key, its oldest event that is unsent or dead, can be tried, and a dead one not.
The turn goes over keys, not over ids: an event that becomes visible late is met in the next turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.relay.answers import Kind, Result
from ops.relay.event import Event

ATTEMPTS: Final = 10
"""After so many an event is dead: with the waits between them that is a quarter of an hour."""
_WAIT_MAX_S: Final = 300.0
_PAUSE_MAX_S: Final = 60.0
_ASKED_MAX_S: Final = 3600.0
"""No receiver is waited for any longer, whatever it asks for: what it says may be a mistake, and
nothing but a try can show that it has been put right."""
_PROBES: Final = 4
"""Events that are tried while the receiver may be away."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of one key; `due`: it is unsent and its time has come."""

    id: int
    mapping: str
    key: str
    due: bool


class Turn:
    """Goes over all keys that have a head, a stretch at a time, and begins again at the end."""

    def __init__(self) -> None:
        self.after: tuple[str, str] | None = None
        self._tried = False

    def choose(self, heads: Sequence[Head], scanned: int, most: int) -> list[int]:
        """Ids to try of the stretch behind `after`, at most `most`; moves on behind them.

        `heads`: in the order of the keys; fewer than `scanned` say that the keys end there.
        """
        chosen: list[int] = []
        self.after = None if len(heads) < scanned else (heads[-1].mapping, heads[-1].key)
        for at, head in enumerate(heads):
            if not head.due:
                continue
            chosen.append(head.id)
            if len(chosen) == most and at + 1 < len(heads):
                self.after = (head.mapping, head.key)
                break
        return chosen

    def quiet(self, tried: int) -> bool:
        """To ask after every stretch: whether a whole turn has ended in which nothing was tried."""
        self._tried = self._tried or tried > 0
        if self.after is not None:
            return False
        quiet, self._tried = not self._tried, False
        return quiet


@dataclass(frozen=True, slots=True)
class Later:
    """An event that was not accepted. `wait_s`: from now until it is due again."""

    id: int
    state: str  # unsent or dead
    attempts: int
    wait_s: float
    error: str


@dataclass(slots=True)
class Marks:
    """What a round came to. `pause_s`: before anything else is tried; None: go on."""

    sent: list[int] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    pause_s: float | None = None
    why: str = ""

    @property
    def away(self) -> bool:
        """Nothing was accepted, since the receiver is away."""
        return self.pause_s is not None and not self.sent


def settle(events: Sequence[Event], results: Mapping[int, Result], away_before: int) -> Marks:
    """What becomes of the events that were tried; one without a result stays as it is.

    `away_before`: how many rounds in a row found the receiver away.
    """
    marks = Marks(sent=[one.id for one in events if _kind(results, one) is Kind.ACCEPTED])
    asked: list[float] = []
    for event in events:
        result = results.get(event.id)
        if result is None or result.kind is Kind.ACCEPTED:
            continue
        gateway = result.kind is Kind.GATEWAY
        if result.kind is Kind.AWAY or (gateway and not marks.sent):
            asked.append(_asked_s(result))
            marks.why = marks.why or result.text
            marks.later.append(Later(event.id, "unsent", event.attempts, 0.0, result.text))
        else:
            marks.later.append(_fault(event, result))
    if asked:
        own = 0.0 if marks.sent else min(_PAUSE_MAX_S, 2.0 ** min(away_before + 1, 10))
        longest = max(own, *asked)
        marks.pause_s = longest or None
    return marks


def most(away: int, batch: int) -> int:
    """How many to try after so many rounds in a row that found the receiver away."""
    return min(batch, _PROBES) if away else batch


def _kind(results: Mapping[int, Result], event: Event) -> Kind | None:
    result = results.get(event.id)
    return None if result is None else result.kind


def _asked_s(result: Result) -> float:
    return min(_ASKED_MAX_S, result.wait_s or 0.0)


def _fault(event: Event, result: Result) -> Later:
    attempts = event.attempts + 1
    dead = result.kind is Kind.REFUSED or attempts >= ATTEMPTS
    wait_s = max(min(_WAIT_MAX_S, 2.0 ** min(event.attempts, 20)), _asked_s(result))
    return Later(event.id, "dead" if dead else "unsent", attempts, wait_s, result.text)

"""When a run that must end stops asking, and whether it left work behind. Pure.

A request begins only while what it brings can still be stored, and the process can still end, in
time; what remains is durable continuation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ingest.control import is_paused
from ingest.emission import StreamState

_US = 1_000_000
SHUTDOWN_S = 2.0
"""Closing producers and leaving the group, after the last commit."""


class Pace(Protocol):
    """When polls may begin, and whether the work of a process ever ends."""

    @property
    def endless(self) -> bool: ...

    def may_ask(self, now: int) -> bool:
        """Whether another request may begin."""

    def awaits(self, left: bool, due_at: int, now: int) -> bool:
        """Whether a poll due at `due_at` is wanted, with work left or not; no is final."""


class Steady:
    """The pace of a service: polls come for ever."""

    endless = True

    def may_ask(self, now: int) -> bool:
        return True

    def awaits(self, left: bool, due_at: int, now: int) -> bool:
        return True


class Once:
    """The pace of `--once`: what is due, until nothing is left or the budget is spent.

    `reserve_s` gives the seconds that storing and ending may take, as known when it is asked.
    """

    endless = False

    def __init__(self, begun: int, budget_s: float | None, reserve_s: Callable[[], float]) -> None:
        self._begun, self._budget_s, self._reserve_s = begun, budget_s, reserve_s

    def may_ask(self, now: int) -> bool:
        return self._budget_s is None or now < self._last_ask()

    def awaits(self, left: bool, due_at: int, now: int) -> bool:
        if due_at > now and (self._budget_s is None or due_at >= self._last_ask()):
            return False
        return left

    def _last_ask(self) -> int:
        return self._begun + int(((self._budget_s or 0.0) - self._reserve_s()) * _US)


def unfinished(state: StreamState | None, due_at: int, now: int) -> bool:
    """Whether a partition id has work left: due, waiting, or in the middle of a walk.

    What is blocked has none that a further run could do: `blocked` says so.
    """
    if state is not None and state.blocked is not None:
        return False
    if state is None or due_at <= now:
        return True
    if state.not_before is not None and state.not_before > now:
        return True
    return any(
        plan.open or plan.walk is not None or plan.tombstone_due for plan in state.plans.values()
    )


def blocked(state: StreamState | None) -> bool:
    """Whether an operator must do something, other than ending a pause of his."""
    return state is not None and state.blocked is not None and not is_paused(state)


class Tail:
    """The upper tail of recent times from page to committed checkpoint, in seconds."""

    def __init__(self, kept: int = 256) -> None:
        self._recent: deque[float] = deque(maxlen=kept)

    def note(self, *durations_s: float) -> None:
        self._recent.extend(durations_s)

    def upper_s(self) -> float:
        """The longest of the recent ones; 0 while there are none."""
        return max(self._recent, default=0.0)


LEARNT_SHARE = 0.5
"""Of a budget: what was learnt keeps no more back. A run that asks nothing learns nothing either,
so one slow day would else end all runs to come."""


def reserve_s(
    configured: Iterable[float],
    persist_s: float,
    linger_s: float,
    fetch_s: float = 0.0,
    budget_s: float | None = None,
) -> float:
    """Seconds to keep back: the largest configured, or what an answer and storing it take lately."""
    learnt_s = fetch_s + persist_s + linger_s + SHUTDOWN_S
    if budget_s is not None:
        learnt_s = min(learnt_s, budget_s * LEARNT_SHARE)
    return max((learnt_s, *configured))


@dataclass(frozen=True, slots=True)
class Tails:
    """What a process learns of itself: times to store a page, times until an answer is whole."""

    persist: Tail = field(default_factory=Tail)
    fetch: Tail = field(default_factory=Tail)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a run by a rising clock, and what has to be done before it. All in seconds."""

    ends_at_s: float
    configured_s: tuple[float, ...]
    linger_s: float
    tails: Tails
    budget_s: float | None = None

    @property
    def last_ask_s(self) -> float:
        """No request begins from here on."""
        tails = self.tails
        kept_s = reserve_s(
            self.configured_s,
            tails.persist.upper_s(),
            self.linger_s,
            tails.fetch.upper_s(),
            self.budget_s,
        )
        return self.ends_at_s - kept_s

    @property
    def answer_by_s(self) -> float:
        """An answer that is not whole by then could not be stored any more."""
        return self.ends_at_s - self.tails.persist.upper_s() - self.linger_s - SHUTDOWN_S

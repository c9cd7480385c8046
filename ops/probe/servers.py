"""What a server may do with the ends of a window, and which of it the answers still allow. Pure.

Every combination of bounds, step and precision is a hypothesis. An answer rules out those under
which it could not have come; a record's stamp that may be stored finer than it is shown stays a
stretch of possible stamps, which answers narrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

S = 1_000_000
UNITS = (1, 1_000, S, 60 * S, 3_600 * S, 86_400 * S)
_BEGIN, _END = -(1 << 62), 1 << 62
_IMPLAUSIBLE = 1e-4
"""A hypothesis that explains the answers so much worse than the best is given up."""

Window = tuple[int | None, int | None]
Stretch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Server:
    """One hypothesis. `step`: what asked ends are cut to, `cuts_stamps`: stamps too.

    `finer`: stamps are stored finer than they are shown. `parses`: times written finer than the
    format are read in full, not cut to the format's unit.
    """

    start_closed: bool
    end_closed: bool
    step: int
    cuts_stamps: bool
    finer: bool
    parses: bool

    def admits(self, window: Window, unit: int) -> Stretch:
        """The stamps `[low, high)` that a window includes; `unit` of the format."""
        start, end = window
        grain = self.step if self.cuts_stamps else 1
        low, high = _BEGIN, _END
        if start is not None:
            low = self._cut(start, unit) + (0 if self.start_closed else grain)
        if end is not None:
            high = self._cut(end, unit) + (grain if self.end_closed else 0)
        return low, high

    def _cut(self, end: int, unit: int) -> int:
        if not self.parses:
            end -= end % unit
        return end - end % self.step


@dataclass(frozen=True, slots=True)
class Mark:
    """A record whose place in windows is asked for: its shown time and the step it is shown in."""

    time: int
    shown: int


@dataclass(frozen=True, slots=True)
class Belief:
    """A hypothesis with its weight before the current record, and the stamps it may still have."""

    weight: float
    stretches: tuple[Stretch, ...]
    whole: int

    @property
    def now(self) -> float:
        return self.weight * sum(b - a for a, b in self.stretches) / self.whole

    def share(self, admitted: Stretch) -> float:
        """How much of the possible stamps a window includes, 0 to 1."""
        left = sum(b - a for a, b in self.stretches)
        return sum(b - a for a, b in _within(self.stretches, admitted)) / left


class Beliefs:
    """All hypotheses that are left. Immutable; `unit` is the smallest step that can be asked."""

    def __init__(self, unit: int, held: Mapping[Server, Belief]) -> None:
        self.unit, self.held = unit, held

    @classmethod
    def all(cls, unit: int, *, finer: bool) -> Beliefs:
        """Everything is possible; `finer`: also that stamps are stored finer than shown."""
        held = {}
        flags = (False, True)
        for start, end, cuts, fine, parses in itertools.product(flags, repeat=5):
            for step in UNITS:
                if (fine and not finer) or (step == 1 and cuts):
                    continue
                held[Server(start, end, step, cuts, fine, parses)] = Belief(1.0, ((0, 1),), 1)
        return cls(unit, held)

    def at(self, mark: Mark) -> Beliefs:
        """Turned to another record; what was learnt of the servers stays."""
        held = {}
        for server, belief in self.held.items():
            width = mark.shown if server.finer else 1
            held[server] = Belief(belief.now, ((mark.time, mark.time + width),), width)
        return Beliefs(self.unit, held)

    def after(self, window: Window, included: bool) -> Beliefs:
        """What is left once a window was seen to include the record, or not."""
        held = {}
        for server, belief in self.held.items():
            admitted = server.admits(window, self.unit)
            cut = _within if included else _without
            left = tuple(cut(belief.stretches, admitted))
            if left:
                held[server] = Belief(belief.weight, left, belief.whole)
        best = max((belief.now for belief in held.values()), default=0.0)
        return Beliefs(self.unit, {s: b for s, b in held.items() if b.now >= best * _IMPLAUSIBLE})

    @property
    def servers(self) -> tuple[Server, ...]:
        return tuple(self.held)

    @property
    def longest_step(self) -> int:
        return max((server.step for server in self.held), default=1)

    def all_agree(self, of: Callable[[Server], object]) -> bool:
        """Whether every hypothesis that is left says the same."""
        return len({of(server) for server in self.held}) == 1

    def gain(self, window: Window) -> float:
        """How well the answer to a window would tell hypotheses apart, 0 to 1/2."""
        total = mean = 0.0
        seen: list[tuple[float, float]] = []
        for server, belief in self.held.items():
            share, weight = belief.share(server.admits(window, self.unit)), belief.now
            seen.append((weight, share))
            total += weight
            mean += weight * share
        mean /= total
        return sum(weight * abs(share - mean) for weight, share in seen) / total


def windows(
    beliefs: Beliefs, mark: Mark, *, unit: int, by_start: bool, by_end: bool
) -> Sequence[Window]:
    """The windows worth asking around a record, in steps of `unit`; narrow ones first."""
    found: dict[Window, None] = {}
    start, end = widest(beliefs, mark, unit, True, True)
    low, high = start or 0, end or 0
    for reach in UNITS:
        step = max(2 * reach, 2 * unit)
        around = (mark.time - mark.time % unit - step, _up(mark.time, unit) + step)
        found[_sent(around, by_start, by_end)] = None
    for point in _points(mark, unit):
        if by_start and low <= point < high:
            found[_sent((point, high), True, by_end)] = None
        if by_end and low < point <= high:
            found[_sent((low, point), by_start, True)] = None
    return list(found)


def widest(beliefs: Beliefs, mark: Mark, unit: int, by_start: bool, by_end: bool) -> Window:
    """A window that includes the record, whatever else the server does."""
    far = _up(2 * beliefs.longest_step + mark.shown, unit) + unit
    around = (mark.time - mark.time % unit - far, _up(mark.time, unit) + far)
    return _sent(around, by_start, by_end)


def outside(beliefs: Beliefs, mark: Mark, unit: int, by_start: bool) -> Window:
    """A window with one end that does not include the record, whatever else the server does."""
    before, after = widest(beliefs, mark, unit, True, True)
    return (after, None) if by_start else (None, before)


def _points(mark: Mark, unit: int) -> Iterable[int]:
    """Where hypotheses differ: at a step's beginning and end, and one unit before."""
    points = set()
    for step in (*UNITS, mark.shown):
        at = mark.time - mark.time % step
        for edge in (at, at + step):
            points |= {edge - edge % unit, _up(edge, unit), edge - edge % unit - unit}
    points.add(mark.time + mark.shown // 2 - (mark.time + mark.shown // 2) % unit)
    return sorted(points)


def _sent(window: tuple[int, int], by_start: bool, by_end: bool) -> Window:
    return window[0] if by_start else None, window[1] if by_end else None


def _up(us: int, unit: int) -> int:
    return us + -us % unit


def _within(stretches: Iterable[Stretch], limits: Stretch) -> Iterable[Stretch]:
    for low, high in stretches:
        low, high = max(low, limits[0]), min(high, limits[1])
        if low < high:
            yield low, high


def _without(stretches: Iterable[Stretch], limits: Stretch) -> Iterable[Stretch]:
    begin, end = limits[0], max(limits)  # a window that admits nothing takes nothing away
    for low, high in stretches:
        for one in ((low, min(high, begin)), (max(low, end), high)):
            if one[0] < one[1]:
                yield one

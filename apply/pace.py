"""How fast a replay goes and how fast it may go: rate, time left, and rest so that live keeps its lag.

Pure: times and offsets are given, nothing is asked or waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_S = 30.0
STEP_S = 0.1
LONGEST_S = 10.0
_SAMPLES_MAX = 600


class Rate:
    """Offsets per second over the last WINDOW_S, from readings of a counter."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, now: float, done: int) -> None:
        """A reading of the counter at `now` (seconds, monotonic); it never falls."""
        self._readings.append((now, done))
        while len(self._readings) > 2 and self._readings[1][0] <= now - WINDOW_S:
            self._readings.popleft()

    def per_s(self) -> float | None:
        """None until there are two readings at different times."""
        if len(self._readings) < 2:
            return None
        (began, first), (now, last) = self._readings[0], self._readings[-1]
        return None if now <= began else (last - first) / (now - began)

    def left_s(self, total: int) -> float | None:
        """Seconds to `total` at this rate; None while nothing moves."""
        rate = self.per_s()
        if not self._readings or not rate:
            return None
        return max(0, total - self._readings[-1][1]) / rate


class Lag:
    """For how long live has been behind: since when the log's end was beyond where live stands now.

    Knows only what it was shown, so at first it says too little, never too much.
    """

    def __init__(self) -> None:
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    def seconds(self, now: float, ends: Mapping[int, int], nexts: Mapping[int, int]) -> float:
        """The longest lag in seconds. `ends`: of the log, `nexts`: where live stands, by partition."""
        worst = 0.0
        for partition, end in ends.items():
            seen = self._ends.setdefault(partition, deque())
            if not seen or end > seen[-1][1]:
                seen.append((now, end))
            following = nexts.get(partition)
            while seen and following is not None and seen[0][1] <= following:
                seen.popleft()
            while len(seen) > _SAMPLES_MAX:
                del seen[1]  # the oldest says since when, the newest how far
            if following is not None and seen:
                worst = max(worst, now - seen[0][0])
        return worst


class Throttle:
    """The rest after every batch: grows fast while live lags, shrinks slowly once it does not."""

    def __init__(self, lag_max_s: float, rest_min_s: float = 0.0) -> None:
        """`lag_max_s`: what live may lag behind; `rest_min_s`: what the operator asked for anyway."""
        self._lag_max_s, self._least = lag_max_s, rest_min_s
        self.rest_s = rest_min_s

    def heard(self, lag_s: float) -> float:
        """The rest from now on, given the lag of live: at least `rest_min_s`, at most LONGEST_S."""
        most = max(LONGEST_S, self._least)
        if lag_s > self._lag_max_s:
            self.rest_s = min(most, max(STEP_S, self.rest_s * 2))
        elif lag_s <= self._lag_max_s / 2:
            shorter = self.rest_s * 0.7
            self.rest_s = max(self._least, shorter if shorter >= STEP_S / 2 else 0.0)
        return self.rest_s

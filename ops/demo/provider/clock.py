"""The provider's own clock: real time at a speed, moved by tests.

It is read for stamps, for the `Date` header, for horizons and for lifetimes of tokens,
so that a jump of it is everything that a jump of the provider's time would be.
"""

from __future__ import annotations

import time

from .times import SECOND_US


class Clock:
    """`now_us()` is in microseconds since 1970 UTC of the provider's time."""

    def __init__(self, offset_s: float = 0.0, speed: float = 1.0) -> None:
        self._real_ns = time.monotonic_ns()
        self._base_us = time.time_ns() // 1_000 + int(offset_s * SECOND_US)
        self.speed = speed

    def now_us(self) -> int:
        passed_us = (time.monotonic_ns() - self._real_ns) / 1_000
        return self._base_us + int(passed_us * self.speed)

    def jump(self, seconds_s: float) -> None:
        """Moves the clock; a negative number sets it back."""
        self._base_us += int(seconds_s * SECOND_US)

    def set(self, now_us: int) -> None:
        self._real_ns, self._base_us = time.monotonic_ns(), now_us

    def run_at(self, speed: float) -> None:
        """Changes the speed from now on; 0 stops the clock."""
        if speed < 0:
            raise ValueError("the speed of the clock is never below 0: jump it back instead")
        self.set(self.now_us())
        self.speed = speed

    def ahead_s(self) -> float:
        """How far this clock is ahead of the machine's."""
        return (self.now_us() - time.time_ns() // 1_000) / SECOND_US

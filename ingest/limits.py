"""How hard one credential may ask: a rate and a concurrency that lower themselves when throttled.

Shared by all partition ids of a credential; holds no request back longer than the rate demands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

RECOVER_AFTER = 20
"""Answers in a row without throttling before one more request may run beside the others."""


class Limiter:
    """`rate_per_s`: requests per second or None; `concurrency`: requests at once.

    `clock` gives seconds, rising; it is the loop's in production.
    """

    def __init__(
        self, rate_per_s: float | None, concurrency: int, clock: Callable[[], float]
    ) -> None:
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._most = concurrency
        self.allowed = concurrency
        self._running = 0
        self._good = 0
        self._next_at = 0.0
        self._not_before = 0.0
        self._clock = clock
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._running < self.allowed)
            self._running += 1
        try:
            await self._pace()
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._changed.notify_all()

    async def _pace(self) -> None:
        """Turns are handed out one interval apart; a pause of the provider moves all of them."""
        now = self._clock()
        at = max(self._next_at, self._not_before, now)
        self._next_at = at + self._interval_s
        if at > now:
            await asyncio.sleep(at - now)

    def throttled(self, wait_s: float) -> None:
        """The provider refused for `wait_s` seconds: nobody asks before, and fewer ask at once."""
        self.allowed = max(1, self.allowed // 2)
        self._good = 0
        self._not_before = max(self._not_before, self._clock() + wait_s)

    def answered(self) -> None:
        """An answer came without throttling; enough of them raise the concurrency by one."""
        self._good += 1
        if self._good >= RECOVER_AFTER and self.allowed < self._most:
            self._good = 0
            self.allowed += 1

"""How hard one credential may ask: a rate, pauses of the provider, and an adaptive concurrency.

Shared by all partition ids of a credential; holds no request back longer than these demand. What
the concurrency learns from answers is `pressure`'s to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ingest import pressure


class Limiter:
    """`rate_per_s`: requests per second or None; `concurrency`: most requests at once.

    `clock` gives seconds, rising; it is the loop's in production. `on_change` hears how many
    requests may be in flight, at first and whenever that changes.
    """

    def __init__(
        self,
        rate_per_s: float | None,
        concurrency: int,
        clock: Callable[[], float],
        on_change: Callable[[int], None] = lambda allowed: None,
    ) -> None:
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._pressure = pressure.fresh(concurrency)
        self._running = 0
        self._next_at = 0.0
        self._not_before = 0.0
        self._clock, self._on_change = clock, on_change
        self._changed = asyncio.Condition()
        on_change(concurrency)

    @property
    def allowed(self) -> int:
        """How many requests may be in flight now."""
        return self._pressure.allowed

    @property
    def pause_s(self) -> float:
        """Seconds for which the provider asked everybody to wait; 0: nobody has to."""
        return max(0.0, self._not_before - self._clock())

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
        at = max(self._next_at, self._not_before, self._clock())
        self._next_at = at + self._interval_s
        # a pause may begin while somebody waits for his turn
        while (wait_s := max(at, self._not_before) - self._clock()) > 0:  # noqa: ASYNC110 - a time
            await asyncio.sleep(wait_s)

    def throttled(self, wait_s: float, elapsed_s: float = 0.0) -> None:
        """The provider refused for `wait_s` seconds: nobody asks before, and fewer ask at once."""
        self._not_before = max(self._not_before, self._clock() + wait_s)
        self._adapt(pressure.refused(self._pressure, elapsed_s, self._clock()))

    def overloaded(self, elapsed_s: float = 0.0) -> None:
        """The provider cannot serve this now: fewer ask at once, but nobody is made to wait."""
        self._adapt(pressure.refused(self._pressure, elapsed_s, self._clock()))

    def answered(self, elapsed_s: float = 0.0) -> None:
        """An answer came that asks for no less."""
        self._adapt(pressure.answered(self._pressure, elapsed_s, self._clock()))

    def _adapt(self, after: pressure.Pressure) -> None:
        before, self._pressure = self._pressure, after
        if after.allowed != before.allowed:
            self._on_change(after.allowed)

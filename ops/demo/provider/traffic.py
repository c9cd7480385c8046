"""The writer: inserts, updates and deletes at a rate, from the seed, until it is stopped or its bound is reached.

Writes happen between two requests, never inside one, so every answer is a consistent cut.
Records that a test put itself are left alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import Any

from .collection import Collection
from .facts import Fact, Kind
from .store import Store
from .times import SECOND_US

_TICK_S = 0.01
_PER_TICK = 200
MAX_RATE = 10_000.0
MAX_FACTS = 2_000_000


class Traffic:
    """`rate` is writes per second of real time; the other fields are shares or weights."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rng = random.Random(f"{store.seed}/traffic")
        self.rate = 0.0
        self.written = 0
        self.limit: int | None = None
        self.weights: dict[str, float] = {"insert": 3, "update": 5, "delete": 1, "event": 2}
        # Share of events whose stamp is up to `late_s` old when they come in.
        self.late_share = 0.0
        self.late_s = 300.0
        self._owed = 0.0

    def change(self, wanted: Mapping[str, Any]) -> None:
        """`rate`, `limit` (writes from now on), `weights`, `late_share`, `late_s`. Raises ValueError."""
        unknown = set(wanted) - {"rate", "limit", "weights", "late_share", "late_s"}
        if unknown:
            raise ValueError(f"traffic has no {sorted(unknown)}")
        rate = float(wanted.get("rate", self.rate))
        if not 0 <= rate <= MAX_RATE:
            raise ValueError(f"rate is 0 to {MAX_RATE:.0f} writes per second")
        weights = {**self.weights, **wanted.get("weights", {})}
        if (
            set(weights) != set(self.weights)
            or min(weights.values()) < 0
            or not any(weights.values())
        ):
            raise ValueError(f"weights are numbers for {', '.join(self.weights)}, not all 0")
        if "limit" in wanted:
            limit = wanted["limit"]
            self.limit = None if limit is None else self.written + int(limit)
        self.rate, self.weights, self._owed = rate, weights, 0.0
        self.late_share = float(wanted.get("late_share", self.late_share))
        self.late_s = float(wanted.get("late_s", self.late_s))

    def state(self) -> dict[str, object]:
        left = None if self.limit is None else max(0, self.limit - self.written)
        return {"rate": self.rate, "written": self.written, "left": left, "done": self._done()}

    def _done(self) -> bool:
        return (
            self.limit is not None and self.written >= self.limit
        ) or self._store.facts() >= MAX_FACTS

    async def run(self) -> None:
        """Writes for ever; cancel it to end."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            # After a stall (a stopped process) it goes on at its rate instead of catching up.
            self._owed += min(now - before, 1.0) * self.rate
            before = now
            for _ in range(min(int(self._owed), _PER_TICK)):
                if self._done():
                    self._owed = 0.0
                    break
                self._owed -= 1
                self.step()

    def step(self) -> None:
        """One write, or two when an entity changes twice within one unit of its stamp."""
        rng = self._rng
        tenant = rng.choice(self._store.tenants)
        what = rng.choices(list(self.weights), list(self.weights.values()))[0]
        if what == "event":
            self._event(self._store.collection(tenant, "events"))
            return
        accounts = self._store.collection(tenant, "accounts")
        known = self._pick(accounts)
        if known is None or what == "insert":
            accounts.put(accounts.new_id())
        elif what == "delete":
            accounts.delete(known.id)
        else:
            accounts.put(known.id)
            if rng.random() < 0.05:
                accounts.put(known.id)
                self.written += 1
        self.written += 1

    def _pick(self, accounts: Collection) -> Fact | None:
        if not len(accounts.live):
            return None
        rank = self._rng.randrange(len(accounts.live))
        known = accounts.live.slice(rank, rank + 1)[0]
        return known if known.kind is Kind.GENERATED else None

    def _event(self, events: Collection) -> None:
        stamp_us = None
        if self._rng.random() < self.late_share:
            late_us = int(self._rng.uniform(0, self.late_s) * SECOND_US)
            stamp_us = self._store.settings.cut(self._store.clock.now_us() - late_us)
        events.put(events.new_id(), stamp_us=stamp_us)
        self.written += 1

"""Requests that are held: their answer waits until a test lets it go.

So a test can do something (kill a worker, move the clock) while a page is known to be on its way.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field

STAGES = ("request", "body")


@dataclass(slots=True, eq=False)
class Hold:
    """Holds `count` requests from the `nth` on that match `path`; 0 means all from there on.

    At stage `request` the request was read and nothing answered; at `body` half of the body was sent.
    """

    number: int
    path: re.Pattern[str]
    nth: int
    count: int
    stage: str
    matched: int = 0
    held: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)


class Holds:
    """All holds in force and what they hold."""

    def __init__(self) -> None:
        self._holds: list[Hold] = []
        self._last = 0
        self._changed = asyncio.Condition()

    def add(self, path: str, nth: int, count: int, stage: str) -> int:
        """The hold's number. Raises ValueError for what cannot be held."""
        if stage not in STAGES or nth < 1 or count < 0:
            raise ValueError(
                f"stage is one of {', '.join(STAGES)}, nth begins at 1, count at 0 (all)"
            )
        try:
            pattern = re.compile(path)
        except re.error as error:
            raise ValueError(str(error)) from error
        self._last += 1
        self._holds.append(Hold(self._last, pattern, nth, count, stage))
        return self._last

    def match(self, target: str) -> Hold | None:
        """The hold that this request falls into; each hold that matches counts it."""
        caught = None
        for hold in self._holds:
            if not hold.path.search(target):
                continue
            hold.matched += 1
            beyond = hold.matched - hold.nth
            if caught is None and beyond >= 0 and (hold.count == 0 or beyond < hold.count):
                caught = hold
        return caught

    async def wait(self, hold: Hold, target: str) -> None:
        """Stays until the hold is released; a caller that went away is forgotten."""
        async with self._changed:
            hold.held.append(target)
            self._changed.notify_all()
        try:
            await hold.gate.wait()
        finally:
            hold.held.remove(target)

    async def held(self, number: int | None, timeout_s: float) -> list[tuple[int, str]]:
        """What is held, by one hold or any, as soon as something is; empty after the timeout."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._now(number))
        except TimeoutError:
            pass
        return self._now(number)

    def _now(self, number: int | None) -> list[tuple[int, str]]:
        return [
            (hold.number, target)
            for hold in self._holds
            if number in (None, hold.number)
            for target in hold.held
        ]

    def release(self, number: int | None) -> int:
        """Ends one hold or all, lets go what they hold, and says how many requests that was."""
        gone = [hold for hold in self._holds if number in (None, hold.number)]
        self._holds = [hold for hold in self._holds if hold not in gone]
        for hold in gone:
            hold.gate.set()
        return sum(len(hold.held) for hold in gone)

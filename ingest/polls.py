"""Runs the pollers of one log partition when they are due; an idle partition id costs no task.

A poller that raises is a fault of this program: it is tried again later, and the others go on. Belongs to one event loop; stores nothing.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ingest.emission import Emission, Emit, Poller

_US = 1_000_000
_FIRST_RETRY_S, _LAST_RETRY_S = 1.0, 300.0
_LONGEST_SLEEP_S = 60.0  # the wall clock may be set while we sleep by the monotonic one


class Keeper(Protocol):
    """Who keeps the states of the partition ids, and decides whether to go on."""

    @property
    def endless(self) -> bool:
        """Whether to wait for ever when nothing is due."""

    def may_ask(self) -> bool:
        """Whether another request may begin now."""

    def left(self, partition_id: str, due_at: int) -> bool:
        """Whether there is work left for a poller that is due at `due_at`."""

    def awaits(self, left: bool, due_at: int) -> bool:
        """Whether a poll due at `due_at` is wanted, with work left or not; no is final."""

    async def emit(self, emission: Emission) -> None:
        """Takes what a poll found."""

    async def failed(self, partition_id: str, error: Exception) -> None:
        """A poller raised: put it back to its last known state."""

    async def recovered(self, partition_id: str) -> None:
        """The first poll that ended well after a failed one."""


@dataclass(slots=True)
class _Entry:
    poller: Poller
    due_at: int
    left: bool
    faults: int = 0
    held: bool = False
    task: asyncio.Task[None] | None = None
    emitted: bool = False


class Polls:
    """The polls of one ownership. `now` in microseconds since the epoch."""

    def __init__(self, keeper: Keeper, now: Callable[[], int]) -> None:
        self._keeper, self._now = keeper, now
        self.pollers: dict[str, Poller] = {}
        self._entries: dict[str, _Entry] = {}
        self._order = itertools.count()
        self._heap: list[tuple[int, int, str]] = []
        self._wake = asyncio.Event()
        self._stopped = False
        self._running = 0

    def begin(self, pollers: Mapping[str, Poller]) -> None:
        """Plans the first poll of every poller; they must have their states by now."""
        for name, poller in pollers.items():
            self.add(name, poller)

    def add(self, partition_id: str, poller: Poller) -> None:
        """Plans the first poll of one more poller, which must have its state by now."""
        due_at = poller.due_at
        entry = _Entry(poller, due_at, self._keeper.left(partition_id, due_at))
        self.pollers[partition_id] = poller
        self._entries[partition_id] = entry
        self._push(partition_id, entry)
        self._wake.set()

    async def remove(self, partition_id: str) -> None:
        """Ends a running poll for good; does nothing for a partition id that has none."""
        if partition_id in self._entries:
            await self.interrupt(partition_id)
            del self._entries[partition_id], self.pollers[partition_id]

    @property
    def unfinished(self) -> list[str]:
        """Partition ids that had work left when their last poll ended."""
        return [name for name, entry in self._entries.items() if entry.left]

    async def run(self) -> None:
        """Returns when no poll is awaited any more and none is running."""
        while not self._stopped:
            self._wake.clear()
            wait_s = self._begin_due()
            if wait_s is None and not self._running and not self._keeper.endless:
                return
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Ends all polls; what they emitted stays emitted, the rest is fetched again one day."""
        self._stopped = True
        self._wake.set()
        running = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def interrupt(self, partition_id: str) -> None:
        """Ends a running poll of one partition id; none begins before `reschedule`."""
        self._entries[partition_id].held = True
        task = self._entries[partition_id].task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def reschedule(self, partition_id: str) -> None:
        """Asks the poller again when it is due: its state was changed from outside."""
        entry = self._entries[partition_id]
        entry.held = False
        entry.due_at = entry.poller.due_at
        entry.left = self._keeper.left(partition_id, entry.due_at)
        self._push(partition_id, entry)
        self._wake.set()

    def _push(self, name: str, entry: _Entry) -> None:
        heapq.heappush(self._heap, (entry.due_at, next(self._order), name))

    def _begin_due(self) -> float | None:
        """Begins what is due; seconds until the next one, None when no further poll is awaited."""
        if not self._keeper.may_ask():
            return None
        while self._heap:
            due_at, _, name = item = heapq.heappop(self._heap)
            entry = self._entries.get(name)
            if entry is None:
                continue  # removed
            if due_at != entry.due_at or entry.task is not None or entry.held:
                continue  # rescheduled since: a newer item stands in the heap, or will
            if not self._keeper.awaits(entry.left, due_at):
                continue
            left_s = (due_at - self._now()) / _US
            if left_s > 0:
                heapq.heappush(self._heap, item)
                return min(left_s, _LONGEST_SLEEP_S)
            entry.task = asyncio.create_task(self._poll(name, entry), name=f"poll {name}")
            self._running += 1
        return None

    async def _poll(self, name: str, entry: _Entry) -> None:
        entry.emitted = False
        try:
            await entry.poller.poll(self._gated(entry))
            due_at = entry.poller.due_at
        except Exception as error:
            entry.faults += 1
            entry.left = True
            wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** (entry.faults - 1))
            entry.due_at = self._now() + int(wait_s * _US)
            await self._keeper.failed(name, error)
        else:
            if entry.faults:
                entry.faults = 0
                await self._keeper.recovered(name)
            entry.left = self._keeper.left(name, due_at)
            # a poller that is due again without having done anything must not spin
            rest_us = 0 if entry.emitted else _US
            entry.due_at = max(due_at, self._now() + rest_us)
        finally:
            entry.task = None
            self._running -= 1
            if not self._stopped and self._entries.get(name) is entry:
                self._push(name, entry)
            self._wake.set()

    def _gated(self, entry: _Entry) -> Emit:
        async def emit(emission: Emission) -> None:
            entry.emitted = True
            await self._keeper.emit(emission)
            if not self._keeper.may_ask() and entry.task is not None:
                entry.task.cancel()  # ends at its next await: before it asks for another page

        return emit

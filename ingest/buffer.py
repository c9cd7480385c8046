"""Pages that are fetched and not yet durable: bounded per partition id and in bytes per process.

Invariant: emissions of one partition id leave in the order in which they came, and room is given
back only when they are durable or thrown away. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.emission import Emission


class ByteBudget:
    """Bytes of pages in memory, over all partitions; who asked first is served first."""

    def __init__(
        self, limit_bytes: int, on_change: Callable[[int], None] = lambda used_bytes: None
    ) -> None:
        self._limit_bytes, self._on_change = limit_bytes, on_change
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    async def acquire(self, size_bytes: int) -> None:
        """Waits for room. What is larger than the whole budget is let in alone."""
        if not self._waiting and self._fits(size_bytes):
            self._use(size_bytes)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size_bytes)  # it was granted in the moment of the cancellation
            else:
                self._waiting = deque(w for w in self._waiting if w[1] is not granted)
                self._grant()
            raise

    def release(self, size_bytes: int) -> None:
        self._use(-size_bytes)
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, granted = self._waiting.popleft()
            if not granted.done():
                self._use(size_bytes)
                granted.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._limit_bytes

    def _use(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        self._on_change(self.used_bytes)


class _Lane:
    """The places of one partition id; its lock keeps concurrent emits in their order."""

    def __init__(self, places: int) -> None:
        self.lock = asyncio.Lock()
        self.places = asyncio.Semaphore(places)
        self.held = 0


@dataclass(frozen=True, slots=True)
class Held:
    """An emission in the buffer and when it came, by the monotonic clock, in seconds."""

    emission: Emission
    since_s: float


class Buffer:
    """The emissions of one log partition, oldest first."""

    def __init__(self, pages_in_flight: int, budget: ByteBudget) -> None:
        self._places, self._budget = pages_in_flight, budget
        self._lanes: dict[str, _Lane] = {}
        self._queue: deque[Held] = deque()
        self._out: deque[Held] = deque()
        self._starved = 0
        self._ended = False
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def unsettled(self) -> int:
        """Emissions that are not durable yet: waiting and in the open transaction."""
        return len(self._queue) + len(self._out)

    @property
    def starved(self) -> bool:
        """Whether an emitter waits for room, so that waiting for more pages is in vain."""
        return self._starved > 0

    async def put(self, emission: Emission) -> None:
        """Waits for room, then appends. Cancelled before that, the emission never was here."""
        lane = self._lanes.setdefault(emission.partition_id, _Lane(self._places))
        lane.held += 1
        self._starved += 1
        self._changed.set()
        try:
            async with lane.lock:
                await lane.places.acquire()
                try:
                    await self._budget.acquire(emission.size)
                except BaseException:
                    lane.places.release()
                    raise
                # nothing is awaited from here on: it is in, whole
                self._queue.append(Held(emission, time.monotonic()))
        except BaseException:
            self._leave(emission.partition_id, lane)
            raise
        finally:
            self._starved -= 1
        self._changed.set()

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""
        return self._ended

    def end(self) -> None:
        """Nothing will come any more: who waits for emissions is woken."""
        self._ended = True
        self._changed.set()

    async def filled(self, linger_s: float, pages: int) -> None:
        """Waits for a first emission, then at most `linger_s` for more.

        Returns early when `pages` are there, an emitter waits for room, or the buffer has ended.
        """
        while not self._queue and not self._ended:
            await self._change()
        end_s = time.monotonic() + linger_s
        while len(self._queue) < pages and not self.starved and not self._ended:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._change()
            except TimeoutError:
                return

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def waiting(self) -> Sequence[Emission]:
        """What may go into the next transaction, oldest first."""
        return [held.emission for held in self._queue]

    def take(self, count: int) -> list[Held]:
        """Moves the first `count` into the open transaction; their room is still held."""
        taken = [self._queue.popleft() for _ in range(count)]
        self._out.extend(taken)
        return taken

    def settled(self) -> None:
        """What was taken is durable: its room is free."""
        while self._out:
            self._free(self._out.popleft())

    def discard(self) -> None:
        """Throws everything away, also what was taken: it will be fetched again."""
        self.settled()
        while self._queue:
            self._free(self._queue.popleft())

    def _free(self, held: Held) -> None:
        owner = held.emission.partition_id
        lane = self._lanes[owner]
        lane.places.release()
        self._budget.release(held.emission.size)
        self._leave(owner, lane)

    def _leave(self, partition_id: str, lane: _Lane) -> None:
        lane.held -= 1
        if lane.held == 0 and self._lanes.get(partition_id) is lane:
            del self._lanes[partition_id]  # an idle partition id costs nothing

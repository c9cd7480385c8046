"""One ownership of a log partition, from the restored state to the last commit.

The committer loop is the only place in ingest that writes: it takes what the polls have put into
the buffer, and no fetch is awaited inside a transaction. Ends by `stop` or by a fault of the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from ingest import committer, metrics
from ingest.budget import Pace, Tail, blocked, unfinished
from ingest.buffer import Buffer, ByteBudget, Held
from ingest.committer import Head, Limits, Transaction
from ingest.decisions import Decisions
from ingest.emission import Emission, Poller, StreamState
from ingest.faults import where
from ingest.metrics import Horizon
from ingest.partition_log import PartitionLog
from ingest.polls import Polls
from ingest.producer import Written
from ingest.restore import Restored
from schemas.records import Blocked, Control
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_INTERNAL = "internal_error"
_US = 1_000_000

Obey = Callable[[StreamState, Control], StreamState]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every ownership of the process shares. `now` in microseconds since the epoch."""

    settings: Settings
    bytes: ByteBudget
    decisions: Decisions
    obey: Obey
    horizon_of: Callable[[str], Horizon]
    pace: Pace
    persist: Tail
    now: Callable[[], int]


class Ownership:
    """One log partition while its producer is alive."""

    def __init__(
        self,
        partition: int,
        around: Surroundings,
        pollers: Mapping[str, Poller],
        log: PartitionLog,
        restored: Restored,
    ) -> None:
        self._partition, self._around, self._log = partition, around, log
        self._restored = restored
        self._pollers = pollers
        self._heads: dict[str, Head] = dict(restored.heads)
        self._limits = Limits()
        self._buffer = Buffer(around.settings.pages_in_flight, around.bytes)
        self.latest: dict[str, StreamState] = {}
        """The state after everything emitted so far; not durable yet."""
        self.unfinished: list[str] = sorted(pollers)
        """Partition ids that have work left; known when `run` has returned."""
        self.blocked: list[str] = []
        """Partition ids that need an operator; known when `run` has returned."""
        self.committed = 0
        self._begun = time.monotonic()
        self._tick_due_s = self._begun + self._first_tick_s()

    async def run(self, stop: asyncio.Event) -> None:
        """Fetches and commits until `stop` is set or nothing is awaited any more.

        Then finishes what is fetched. Raises Fenced, Refused or LogUnavailable.
        """
        polls = Polls(self._pollers, self, self._around.now)
        news = asyncio.Event()
        forget = self._around.decisions.listen(news.set)
        tasks: list[asyncio.Task[object]] = []
        try:
            if self._restored.heal:
                await self._heal()
            await self._start_pollers()
            polls.begin()
            tasks = [
                asyncio.create_task(work, name=f"{name} {self._partition}")
                for name, work in (
                    ("commit", self._commit_for_ever()),
                    ("polls", polls.run()),
                    ("decisions", self._follow_decisions(polls, news)),
                    ("stop", stop.wait()),
                )
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await polls.stop()
            self._buffer.end()
            await tasks[0]  # commits what is left
            for task in tasks[1:]:
                if task.done():
                    task.result()
            self.unfinished = polls.unfinished
            self.blocked = [name for name in self._pollers if blocked(self.latest.get(name))]
        finally:
            forget()
            await polls.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._buffer.discard()
            metrics.CLAIMS.drop(self._pollers)

    # -- polls -----------------------------------------------------------------------------------

    async def _start_pollers(self) -> None:
        for name, poller in self._pollers.items():
            known = self._restored.states.get(name)
            state = self._obeyed(name, _without_internal_fault(known))
            poller.restore(state)
            if state is None:
                continue
            self.latest[name] = state
            metrics.CLAIMS.put(name, state, self._around.horizon_of(name))
            if state is not known:
                await self.emit(Emission(name, (), (), state, 1))

    @property
    def endless(self) -> bool:
        return self._around.pace.endless

    def may_ask(self) -> bool:
        return self._around.pace.may_ask(self._around.now())

    def left(self, partition_id: str, due_at: int) -> bool:
        return unfinished(self.latest.get(partition_id), due_at, self._around.now())

    def awaits(self, left: bool, due_at: int) -> bool:
        return self._around.pace.awaits(left, due_at, self._around.now())

    async def emit(self, emission: Emission) -> None:
        """Puts an emission into the buffer; from here on what comes next continues from it."""
        await self._buffer.put(emission)
        self.latest[emission.partition_id] = emission.state

    async def failed(self, partition_id: str, error: Exception) -> None:
        """Shows the fault of a poller of ours, and puts it back to its last known state."""
        _log.error(
            "a poll failed; it is tried again",
            partition_id=partition_id,
            error=type(error).__name__,
            where=where(error),
        )
        state = _without_internal_fault(self.latest.get(partition_id))
        self._pollers[partition_id].restore(state)
        if state == self.latest.get(partition_id):
            now = self._around.now()
            blocked = Blocked(_INTERNAL, now, "see the error in the worker's log and report it")
            shown = replace(state or StreamState(), blocked=blocked)
            await self.emit(Emission(partition_id, (), (), shown, 1))

    async def recovered(self, partition_id: str) -> None:
        """Takes the fault back, unless a later state did so already."""
        state = self.latest.get(partition_id)
        cured = _without_internal_fault(state)
        if cured is not None and cured is not state:
            await self.emit(Emission(partition_id, (), (), cured, 1))

    # -- decisions -------------------------------------------------------------------------------

    def _obeyed(self, name: str, state: StreamState | None) -> StreamState | None:
        """`state` after every decision about it that it does not hold yet."""
        known = -1 if state is None else state.control_offset
        for decision in self._around.decisions.after(known, name):
            after = self._around.obey(state or StreamState(), decision.control)
            state = replace(after, control_offset=decision.offset)
            _log.info(
                "obeyed", partition_id=name, action=decision.control.action, offset=decision.offset
            )
        return state

    async def _follow_decisions(self, polls: Polls, news: asyncio.Event) -> None:
        while True:
            await news.wait()
            news.clear()
            for name, poller in self._pollers.items():
                known = self.latest.get(name, StreamState()).control_offset
                if not self._around.decisions.after(known, name):
                    continue
                await polls.interrupt(name)
                state = self._obeyed(name, self.latest.get(name))
                poller.restore(state)
                if state is not None:
                    await self.emit(Emission(name, (), (), state, 1))
                polls.reschedule(name)

    # -- commits ---------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Writes everything restored again before anything else (design: rules 4 and 5)."""
        restored = self._restored
        transaction = committer.heal(
            self._partition, self._around.now(), restored.states, restored.ghosts
        )
        await self._write(transaction, [])
        metrics.HEALS.inc()

    async def _commit_for_ever(self) -> None:
        linger_s = self._around.settings.linger_s
        while True:
            try:
                async with asyncio.timeout(max(0.0, self._tick_due_s - time.monotonic())):
                    await self._buffer.filled(linger_s, self._limits.pages)
            except TimeoutError:
                if not len(self._buffer):
                    await self._write(committer.tick(self._partition, self._around.now()), [])
                    continue
            transaction = committer.next_transaction(self._buffer.waiting(), self._limits)
            if transaction is None:
                return  # the buffer has ended
            await self._write(transaction, self._buffer.take(len(transaction.emissions)))

    async def _write(self, transaction: Transaction, held: list[Held]) -> None:
        begun_s = time.monotonic()
        written = await self._log.write(transaction, self._heads)
        now_s = time.monotonic()
        self._buffer.settled()
        self.committed += 1
        metrics.TRANSACTIONS.labels(transaction.kind).inc()
        metrics.COMMIT_SECONDS.observe(now_s - begun_s)
        if transaction.records:
            self._tick_due_s = now_s + self._around.settings.tick_s
        self._remember(transaction, written, held, now_s)

    def _remember(
        self, transaction: Transaction, written: Written, held: list[Held], now_s: float
    ) -> None:
        """What is durable now, for the next checkpoints and for the metrics."""
        slowest: dict[str, float] = {}
        for one in held:
            name = one.emission.partition_id
            slowest[name] = max(slowest.get(name, 0.0), now_s - one.since_s)
        for checkpoint in written.checkpoints:
            name = checkpoint.partition_id
            head = committer.head_of(checkpoint)
            duration_s = slowest.get(name)
            if duration_s is not None:
                head = committer.with_persist(head, duration_s)
                metrics.PERSIST_SECONDS.observe(duration_s)
                self._around.persist.note(duration_s)
            self._heads[name] = head
            if name in self._pollers:
                state = transaction.states[name]
                metrics.CLAIMS.put(name, state, self._around.horizon_of(name))
        self._count(transaction, written)

    def _count(self, transaction: Transaction, written: Written) -> None:
        sizes = iter(written.sizes)
        for emission in transaction.emissions:
            pages = [next(sizes) for _ in emission.observations]
            for _ in (*emission.marks, *emission.tombstones):
                next(sizes)
            records = sum(len(page.records) for page in emission.observations)
            metrics.stored(emission.partition_id, 1 if pages else 0, records, sum(pages))

    def _first_tick_s(self) -> float:
        """Seconds until the first tick, counted from the last append that is known."""
        tick_s, appended_at = self._around.settings.tick_s, self._restored.appended_at
        if appended_at is None:
            return tick_s
        return max(0.0, tick_s - (self._around.now() - appended_at) / _US)


def _without_internal_fault(state: StreamState | None) -> StreamState | None:
    """`state` itself unless it says that a poller of ours raised: trying again is the cure."""
    if state is None or state.blocked is None or state.blocked.reason != _INTERNAL:
        return state
    return replace(state, blocked=None)

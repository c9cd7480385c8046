"""The committer loop of one ownership: the only place in ingest that writes.

It takes what the polls have put into the buffer, one transaction after the other; no fetch is
awaited inside one. What goes into a transaction is decided by `committer`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from ingest import committer, metrics
from ingest.buffer import Buffer, Held
from ingest.committer import Head, Limits, Transaction
from ingest.partition_log import PartitionLog
from ingest.producer import Written
from ingest.restore import Restored
from ingest.surroundings import Surroundings

_US = 1_000_000


class Commits:
    """Commits what comes into `buffer`. `owners` are the partition ids whose state is shown."""

    def __init__(
        self,
        partition: int,
        around: Surroundings,
        log: PartitionLog,
        restored: Restored,
        buffer: Buffer,
        owners: Collection[str],
    ) -> None:
        self._partition, self._around, self._log = partition, around, log
        self._restored, self._buffer, self._owners = restored, buffer, owners
        self._heads: dict[str, Head] = dict(restored.heads)
        self._limits = Limits()
        self.count = 0
        """Transactions committed so far."""
        self._tick_due_s = time.monotonic() + self._first_tick_s()

    async def heal(self) -> None:
        """Writes everything restored again before anything else (design: rules 4 and 5)."""
        restored = self._restored
        transaction = committer.heal(
            self._partition, self._around.now(), restored.states, restored.ghosts
        )
        await self._write(transaction, [])
        metrics.HEALS.inc()

    async def run(self) -> None:
        """Commits whatever comes until the buffer has ended and is empty."""
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
        self.count += 1
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
            if name in self._owners:
                self._around.following.note(checkpoint)
                state = transaction.states[name]
                metrics.CLAIMS.put(name, state, self._around.horizon_of(name))
        self._count(transaction, written)

    def _count(self, transaction: Transaction, written: Written) -> None:
        sizes = iter(written.sizes)
        for emission in transaction.emissions:
            pages = [next(sizes) for _ in emission.observations]
            for _ in (*emission.marks, *emission.tombstones):
                next(sizes)
            for mark in emission.marks:
                if mark.kind == "interval_complete":
                    metrics.interval_ended(emission.partition_id, mark.passes)
            records = sum(len(page.records) for page in emission.observations)
            metrics.stored(emission.partition_id, 1 if pages else 0, records, sum(pages))

    def _first_tick_s(self) -> float:
        """Seconds until the first tick, counted from the last append that is known."""
        tick_s, appended_at = self._around.settings.tick_s, self._restored.appended_at
        if appended_at is None:
            return tick_s
        return max(0.0, tick_s - (self._around.now() - appended_at) / _US)

"""Owns one log partition until it is told to stop: fence, restore, fetch and commit, again and again.

Safety never rests on the group: whoever fenced last owns. Faults of the log close this ownership
and begin the next one; only what no retry can cure leaves this file as an exception.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping

import structlog

from ingest import metrics, restore_log
from ingest.emission import Poller
from ingest.faults import Fenced, Refused, where
from ingest.ownership import Ownership
from ingest.partition_log import PartitionLog
from ingest.restore import Restored
from ingest.rivals import Rivals
from ingest.surroundings import Surroundings
from schemas.log.reader import LogUnavailable

_log = structlog.get_logger(__name__)
_FIRST_WAIT_S, _LAST_WAIT_S = 0.5, 30.0
_FAULTS_OF_ONCE = 4
"""After so many faults in a row a run that must end gives up; a service tries for ever."""


class Owner:
    """The owner of log partition `partition`; `run` once, `stop` from the same event loop."""

    def __init__(
        self,
        partition: int,
        around: Surroundings,
        pollers: Mapping[str, Poller],
        open_log: Callable[[], PartitionLog],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.partition, self._around = partition, around
        self.pollers, self._open_log, self._on_end = pollers, open_log, on_end
        self._ownership: Ownership | None = None
        self._stop = asyncio.Event()
        self._faults = 0
        settings = around.settings
        self._rivals = Rivals(settings.worker, settings.prefix, settings.session_timeout_ms / 1000)
        self.unfinished: list[str] = sorted(pollers)
        self.blocked: list[str] = []

    def stop(self) -> None:
        """Ends the polls, finishes what is fetched, gives the partition up."""
        self._stop.set()

    def update(self, pollers: Mapping[str, Poller]) -> None:
        """From now on these are polled, now and in every later ownership."""
        self.pollers = pollers
        if self._ownership is not None:
            self._ownership.update(pollers)

    async def run(self) -> None:
        """Until stopped, or until nothing is awaited any more.

        Raises Refused, and LogUnavailable in a run that must end.
        """
        try:
            await self._run()
        finally:
            self._on_end()

    async def _run(self) -> None:
        while not self._stop.is_set():
            try:
                await self._own()
                return
            except Fenced as error:
                wait_s = self._fenced(error)
            except Refused:
                raise
            except Exception as error:
                metrics.UNAVAILABLE.inc()
                known = isinstance(error, LogUnavailable)
                if self._faults >= _FAULTS_OF_ONCE and not self._around.pace.endless:
                    raise LogUnavailable(f"log partition {self.partition}: {error}") from error
                wait_s = self._back_off_s()
                _log.warning(
                    "log partition closed; restoring",
                    partition=self.partition,
                    error=str(error) if known else type(error).__name__,
                    where=where(error),
                    wait_s=round(wait_s, 2),
                )
            await self._pause(wait_s)

    def _fenced(self, error: Fenced) -> float:
        """Says what it means; returns how long to stay away. Refused in a run that must end."""
        metrics.FENCED.inc()
        wait_s, hint = self._rivals.fenced(time.monotonic()), self._rivals.hint()
        if self._rivals.count > _FAULTS_OF_ONCE and not self._around.pace.endless:
            raise Refused(f"log partition {self.partition}: {hint}") from error
        say = _log.error if self._rivals.lasting else _log.warning
        say("fenced", partition=self.partition, error=str(error), hint=hint, wait_s=wait_s)
        return wait_s

    async def _own(self) -> None:
        log = self._open_log()
        try:
            restored = await self._unless_stopped(log.take_over())
            if restored is None:
                log.abandon()
                return
            metrics.RESTORES.inc()
            self._rivals.found(restored.worker)
            metrics.FALL_BACKS.inc(len(restored.fall_backs))
            restore_log.report(self.partition, restored.fall_backs)
            for head in restored.heads.values():
                self._around.persist.note(*head.persist_s)
                self._around.answers.note(*head.answer_s)
            _log.info(
                "owned",
                partition=self.partition,
                partition_ids=len(self.pollers),
                restored=len(restored.states),
                heals=restored.heal,
            )
            self._say_unpolled(restored)
            ownership = Ownership(self.partition, self._around, self.pollers, log, restored)
            self._ownership = ownership
            try:
                await ownership.run(self._stop)
            finally:
                self._ownership = None
                self.unfinished, self.blocked = ownership.unfinished, ownership.blocked
                if ownership.committed > int(restored.heal):
                    self._faults = 0
        except BaseException:
            log.abandon()
            raise
        try:
            await log.close()
        except Exception as error:  # nothing is lost: every transaction is committed
            log.abandon()
            _log.info("producer not closed in order", partition=self.partition, error=str(error))
        _log.info("released", partition=self.partition)

    def _say_unpolled(self, restored: Restored) -> None:
        """Also what another deployment polls that shares the prefix by mistake: it looks alive here."""
        unpolled = sorted(set(restored.states) - set(self.pollers))
        if unpolled:
            _log.warning(
                "the log knows what no definition of this worker names: nobody polls it",
                partition=self.partition,
                number=len(unpolled),
                first=unpolled[0],
            )

    async def _unless_stopped(self, work: Coroutine[None, None, Restored]) -> Restored | None:
        """None when told to stop meanwhile: nothing is fetched yet, so nobody has to wait."""
        working = asyncio.create_task(work)
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            stopped.cancel()

    def _back_off_s(self) -> float:
        """Exponential with full jitter; begins again once a transaction was committed."""
        limit_s = min(_LAST_WAIT_S, _FIRST_WAIT_S * 2**self._faults)
        self._faults = min(self._faults + 1, 16)
        return random.uniform(_FIRST_WAIT_S / 2, limit_s)

    async def _pause(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._stop.wait()
        except TimeoutError:
            return

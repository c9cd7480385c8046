"""The life of an ingest process: checks, joins, works, leaves; for ever or once.

What is polled and how decisions are obeyed is handed in; `service` does that from the definitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import stamina
import structlog

from ingest import metrics
from ingest.budget import SHUTDOWN_S, Once, Pace, Steady, Tails, reserve_s
from ingest.buffer import ByteBudget
from ingest.checks import Cluster
from ingest.decisions import Decisions
from ingest.faults import Refused
from ingest.metrics import Horizon
from ingest.roster import Roster
from ingest.surroundings import Obey, Surroundings
from ingest.watchdog import Watchdog
from ingest.worker import PollersOf, Worker
from schemas.failpoints import Hit
from schemas.log.reader import LogUnavailable
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_US = 1_000_000
_JOIN_S = 30.0
_LEADERS_S = 10.0
_LOOK_S = 0.5

OK, BLOCKED, USAGE, UNREACHABLE, REFUSED, MORE_TO_DO, BUSY = range(7)


def now_us() -> int:
    """The wall clock, microseconds since the epoch."""
    return time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """What this process is for. `reserves_s`: configured reserves of all sources, in seconds.

    `roster`: how partition ids come and go while a service runs; None: they never do.
    """

    pollers_of: PollersOf
    obey: Obey
    horizon_of: Callable[[str], Horizon]
    reserves_s: Sequence[float]
    tails: Tails = field(default_factory=Tails)
    roster: Roster | None = None


async def run_process(
    settings: Settings, work: Work, *, hit: Hit, once: bool, budget_s: float | None
) -> int:
    """Runs until SIGTERM or SIGINT, with `once` until it is done; returns the exit code."""
    begun = now_us()
    configured_s = max(work.reserves_s, default=0.0)
    if budget_s is not None and budget_s <= configured_s:
        _log.error(
            "the budget is spent before the first request",
            budget_s=budget_s,
            reserve_s=configured_s,
            hint="give more --budget, or lower `limits: reserve` of the sources",
        )
        return USAGE
    stop = asyncio.Event()
    watchdog = Watchdog()
    pace: Pace = Steady()
    if once:
        pace = Once(begun, budget_s, lambda: _reserve_s(settings, work, budget_s))
    decisions = Decisions(settings)
    around = Surroundings(
        settings=settings,
        bytes=ByteBudget(settings.buffer_bytes, metrics.BUFFER_BYTES.set),
        decisions=decisions,
        obey=work.obey,
        horizon_of=work.horizon_of,
        pace=pace,
        persist=work.tails.persist,
        answers=work.tails.fetch,
        now=now_us,
    )
    telling: asyncio.Task[None] | None = None
    try:
        with _signals(stop):
            cluster = await asyncio.to_thread(_checked, settings)
            # topics that were created a moment ago may not have their leaders yet
            async for attempt in stamina.retry_context(on=LogUnavailable, timeout=_LEADERS_S):
                with attempt:
                    await asyncio.to_thread(decisions.read)
            _expose(settings.metrics_port)
            decisions.follow(asyncio.get_running_loop())
            worker = Worker(around, work.pollers_of, watchdog, hit)
            telling = asyncio.create_task(around.following.tell(now_us), name="progress")
            if once:
                occasion = _Occasion(settings, cluster, worker, begun, budget_s, work)
                return await occasion.run(stop)
            return await _serve(worker, stop, work.roster)
    except Refused as error:
        _log.error("refused", reason=str(error))
        return REFUSED
    except LogUnavailable as error:
        _log.error("unreachable", reason=str(error))
        return UNREACHABLE
    finally:
        if telling is not None:
            telling.cancel()
        await asyncio.to_thread(decisions.stop)
        watchdog.stop()


def _checked(settings: Settings) -> Cluster:
    cluster = Cluster(settings)
    cluster.check()
    return cluster


def _expose(port: int) -> None:
    try:
        metrics.expose(port)
    except OSError as error:
        raise Refused(
            f"metrics cannot be served on GAPLESS_METRICS_PORT={port}: {error}"
        ) from error


def _reserve_s(settings: Settings, work: Work, budget_s: float | None) -> float:
    persist_s, fetch_s = work.tails.persist.upper_s(), work.tails.fetch.upper_s()
    return reserve_s(work.reserves_s, persist_s, settings.linger_s, fetch_s, budget_s)


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the process in order; elsewhere than in a main thread nothing does."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as undo:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(RuntimeError, ValueError):
                loop.add_signal_handler(number, stop.set)
                undo.callback(loop.remove_signal_handler, number)
        yield


async def _serve(worker: Worker, stop: asyncio.Event, roster: Roster | None) -> int:
    worker.join()
    following = None
    if roster is not None:
        following = asyncio.create_task(roster.follow(lambda: worker.refresh(roster)))
    try:
        await _until(stop, worker, lambda: worker.failed is not None)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await worker.leave()
    if worker.failed is not None:
        raise worker.failed
    return OK


async def _until(stop: asyncio.Event, worker: Worker, done: Callable[[], bool]) -> None:
    """Waits until `stop` is set or `done` holds."""
    while not stop.is_set() and not done():
        await _change(stop, worker)


async def _change(stop: asyncio.Event, worker: Worker) -> None:
    """Waits until something changed, for a moment at most: budgets are spent without a signal."""
    waits = {asyncio.create_task(stop.wait()), asyncio.create_task(worker.change())}
    await asyncio.wait(waits, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    for task in waits:
        task.cancel()


class _Occasion:
    """One `--once`: gives way to another member, takes every partition, works, leaves."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        worker: Worker,
        begun: int,
        budget_s: float | None,
        work: Work,
    ) -> None:
        self._settings, self._cluster, self._worker = settings, cluster, worker
        self._begun, self._budget_s, self._work = begun, budget_s, work

    async def run(self, stop: asyncio.Event) -> int:
        """Raises LogUnavailable when the log or the group does not answer, Refused as owners do."""
        if await self._others():
            return BUSY
        worker = self._worker
        worker.join()
        try:
            joined = await self._joined(stop)
            if joined is not None:
                return joined
            await _until(stop, worker, lambda: worker.idle or worker.lost or self._spent())
        finally:
            await worker.leave()
            self._tell_rest()
        if worker.failed is not None:
            raise worker.failed
        if worker.lost:
            return BUSY if await self._others() else MORE_TO_DO
        if worker.unfinished:
            left = worker.unfinished
            _log.info("more to do", partition_ids=left[:20], count=len(left))
            return MORE_TO_DO
        if worker.blocked:
            names = worker.blocked
            _log.error(
                "blocked",
                partition_ids=names[:20],
                count=len(names),
                hint="`gapless status` says what blocks and what unblocks it",
            )
            return BLOCKED
        return OK

    async def _joined(self, stop: asyncio.Event) -> int | None:
        """None once all partitions are ours; else the exit code."""
        worker, give_up_at = self._worker, time.monotonic() + _JOIN_S
        everything = frozenset(range(self._settings.partitions))
        while worker.assigned != everything and worker.failed is None:
            if stop.is_set() or self._spent():
                return MORE_TO_DO
            if await self._others():
                return BUSY
            if time.monotonic() > give_up_at:
                raise LogUnavailable(f"the group assigned no partitions within {_JOIN_S:.0f} s")
            await _change(stop, worker)
        return None

    async def _others(self) -> list[str]:
        """Other active members to give way to: of two that begin at once, the later by name."""
        ours = f"{self._settings.prefix}ingest.{self._settings.worker}"
        found = await asyncio.to_thread(self._cluster.members)
        joined = ours in found.values()
        others = sorted(name for name in found.values() if name != ours)
        blocking = [name for name in others if not joined or name < ours]
        if blocking:
            _log.warning("busy: another member of the group is active", members=blocking)
        return blocking

    def _tell_rest(self) -> None:
        """How much of the budget is left when everything is stored: negative, it was too small."""
        if self._budget_s is not None:
            left_s = self._budget_s - (now_us() - self._begun) / _US
            kept_s = _reserve_s(self._settings, self._work, self._budget_s)
            metrics.BUDGET_LEFT.set(left_s)
            metrics.BUDGET_RESERVE.set(kept_s)
            _log.info(
                "stopped",
                budget_s=self._budget_s,
                left_s=round(left_s, 1),
                reserve_s=round(kept_s, 1),
            )

    def _spent(self) -> bool:
        """Whether only the time to store and to leave is left of the budget."""
        if self._budget_s is None:
            return False
        left_s = self._budget_s - (now_us() - self._begun) / _US
        return left_s <= self._work.tails.persist.upper_s() + SHUTDOWN_S

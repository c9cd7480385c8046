"""One ownership of a log partition, from the restored state to the last commit.

Keeps the state of every partition id after what was emitted, lets operators' decisions change it,
and runs polls beside the committer loop. Ends by `stop` or by a fault of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from ingest import metrics
from ingest.budget import blocked, unfinished
from ingest.buffer import Buffer
from ingest.commits import Commits
from ingest.emission import Emission, Poller, StreamState
from ingest.faults import where
from ingest.partition_log import PartitionLog
from ingest.polls import Polls
from ingest.restore import Restored
from ingest.roster import change
from ingest.surroundings import Surroundings
from schemas.records import Blocked

_log = structlog.get_logger(__name__)
_INTERNAL = "internal_error"


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
        self._partition, self._around = partition, around
        self._pollers, self._restored = dict(pollers), restored
        self._wanted: Mapping[str, Poller] = pollers
        self._news = asyncio.Event()
        self._buffer = Buffer(around.settings.pages_in_flight, around.bytes)
        self._commits = Commits(
            partition, around, log, restored, self._buffer, self._pollers.keys()
        )
        self.latest: dict[str, StreamState] = {}
        """The state after everything emitted so far; not durable yet."""
        self.unfinished: list[str] = sorted(pollers)
        """Partition ids that have work left; known when `run` has returned."""
        self.blocked: list[str] = []
        """Partition ids that need an operator; known when `run` has returned."""

    @property
    def committed(self) -> int:
        """Transactions committed so far, a heal included."""
        return self._commits.count

    async def run(self, stop: asyncio.Event) -> None:
        """Fetches and commits until `stop` is set or nothing is awaited any more.

        Then finishes what is fetched. Raises Fenced, Refused or LogUnavailable.
        """
        polls = Polls(self, self._around.now)
        forget = self._around.decisions.listen(self._news.set)
        tasks: list[asyncio.Task[object]] = []
        try:
            if self._restored.heal:
                await self._commits.heal()
            polls.begin(await self._start_pollers())
            tasks = [
                asyncio.create_task(work, name=f"{name} {self._partition}")
                for name, work in (
                    ("commit", self._commits.run()),
                    ("polls", polls.run()),
                    ("news", self._follow_news(polls)),
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
            self._drop(self._pollers)

    # -- polls -----------------------------------------------------------------------------------

    async def _start_pollers(self) -> dict[str, Poller]:
        """Gives every poller its state; one that cannot take it is shown and left out."""
        return {n: poller for n, poller in self._pollers.items() if await self._start(n, poller)}

    async def _start(self, name: str, poller: Poller) -> bool:
        known = self.latest.get(name, self._restored.states.get(name))
        state = self._obeyed(name, _without_internal_fault(known))
        if state is not None:
            self.latest[name] = state
            metrics.CLAIMS.put(name, state, self._around.horizon_of(name))
        try:
            poller.restore(state)
            _ = poller.due_at
        except Exception as error:
            _log.error(
                "a state cannot be continued",
                partition_id=name,
                error=type(error).__name__,
                where=where(error),
            )
            await self._show_fault(name)
            return False
        if state is not None and state is not known:
            await self.emit(Emission(name, (), (), state, 1))
        return True

    def update(self, pollers: Mapping[str, Poller]) -> None:
        """From now on these are polled; states of others stay where they are."""
        self._wanted = pollers
        self._news.set()

    async def _change_pollers(self, polls: Polls) -> None:
        found = change(self._pollers, self._wanted)
        for name in found.ended:
            await polls.remove(name)
            del self._pollers[name]
        self._drop(found.ended)
        for name in found.begun:
            poller = self._wanted[name]
            self._pollers[name] = poller
            if await self._start(name, poller):
                polls.add(name, poller)

    def _drop(self, partition_ids: Iterable[str]) -> None:
        metrics.CLAIMS.drop(partition_ids)
        self._around.following.drop(partition_ids)

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
            await self._show_fault(partition_id)

    async def _show_fault(self, partition_id: str) -> None:
        advice = "see the error in the worker's log and report it"
        fault = Blocked(_INTERNAL, self._around.now(), advice)
        shown = replace(self.latest.get(partition_id) or StreamState(), blocked=fault)
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
            what = {"partition_id": name, "action": decision.control.action}
            after = state or StreamState()
            try:
                after = self._around.obey(after, decision.control)
            except Exception as error:  # one that makes no sense must not hold up a partition
                _log.error(
                    "a decision cannot be obeyed",
                    error=type(error).__name__,
                    where=where(error),
                    **what,
                )
            else:
                _log.info("obeyed", offset=decision.offset, **what)
            state = replace(after, control_offset=decision.offset)
        return state

    async def _follow_news(self, polls: Polls) -> None:
        """Obeys decisions, and lets partition ids come and go, one after the other."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._change_pollers(polls)
            for name, poller in list(polls.pollers.items()):
                known = self.latest.get(name, StreamState()).control_offset
                if not self._around.decisions.after(known, name):
                    continue
                await polls.interrupt(name)
                state = self._obeyed(name, self.latest.get(name))
                poller.restore(state)
                if state is not None:
                    await self.emit(Emission(name, (), (), state, 1))
                polls.reschedule(name)


def _without_internal_fault(state: StreamState | None) -> StreamState | None:
    """`state` itself unless it says that a poller of ours raised: trying again is the cure."""
    if state is None or state.blocked is None or state.blocked.reason != _INTERNAL:
        return state
    return replace(state, blocked=None)

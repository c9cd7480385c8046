"""One member of the group: an owner for every log partition that it is assigned.

The group's callbacks come from its thread and only signal; all decisions are made on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from ingest import metrics
from ingest.emission import Poller
from ingest.faults import Refused
from ingest.log_thread import LogThread
from ingest.owner import Owner
from ingest.partition_log import KafkaPartitionLog, PartitionLog
from ingest.roster import Roster
from ingest.surroundings import Surroundings
from ingest.watchdog import Watchdog
from schemas.definitions.problems import DefinitionError
from schemas.failpoints import Hit
from schemas.log.group import Membership
from schemas.log.reader import LogUnavailable

_log = structlog.get_logger(__name__)
PollersOf = Callable[[int], Mapping[str, Poller]]


class Worker:
    """`pollers_of` gives fresh pollers for a log partition, by partition id."""

    def __init__(
        self, around: Surroundings, pollers_of: PollersOf, watchdog: Watchdog, hit: Hit
    ) -> None:
        self._around, self._pollers_of = around, pollers_of
        self._watchdog, self._hit = watchdog, hit
        self._loop = asyncio.get_running_loop()
        settings = around.settings
        self._membership = Membership(
            settings,
            settings.ingest_group,
            settings.checkpoints,
            "ingest",
            lambda partitions: self._signal(self._assigned, partitions),
            lambda partitions: self._signal(self._revoked, partitions),
        )
        self._owners: dict[int, Owner] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._leaving = False
        self.failed: Refused | LogUnavailable | None = None
        """Why an owner gave up."""
        self.lost = False
        """Whether the group took a partition away."""

    def join(self) -> None:
        """Joins the group; owners begin as partitions are assigned."""
        self._membership.start()

    async def leave(self) -> None:
        """Finishes what is fetched, then leaves, so that others take over at once."""
        self._leaving = True
        self.stop()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.to_thread(self._membership.stop)

    def stop(self) -> None:
        """Ends all polls; owners finish what is fetched."""
        for owner in self._owners.values():
            owner.stop()

    def refresh(self, roster: Roster) -> None:
        """Partition ids came or went: every owner goes on with those of now."""
        for partition, owner in self._owners.items():
            owner.update(roster.again(partition, owner.pollers))

    @property
    def assigned(self) -> frozenset[int]:
        """Log partitions assigned now."""
        return frozenset(self._owners)

    @property
    def idle(self) -> bool:
        """Whether every owner has ended."""
        return all(task.done() for task in self._tasks.values())

    @property
    def unfinished(self) -> list[str]:
        """Partition ids of ended owners that have work left."""
        return sorted(name for owner in self._owners.values() for name in owner.unfinished)

    @property
    def blocked(self) -> list[str]:
        """Partition ids of ended owners that need an operator."""
        return sorted(name for owner in self._owners.values() for name in owner.blocked)

    async def change(self) -> None:
        """Waits until partitions came or went, an owner ended, or `wake` was called."""
        await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Lets `change` return."""
        self._changed.set()

    def _signal(self, act: Callable[[frozenset[int]], None], partitions: frozenset[int]) -> None:
        self._loop.call_soon_threadsafe(act, partitions)

    def _assigned(self, partitions: frozenset[int]) -> None:
        if self._leaving:
            return
        for partition in sorted(partitions):
            earlier = self._tasks.get(partition)
            try:
                owner = self._owner(partition)
            except (DefinitionError, OSError, ValueError) as error:  # a file of tenants, a secret
                self.failed = Refused(f"log partition {partition} cannot be polled: {error}")
                break
            self._owners[partition] = owner
            self._tasks[partition] = asyncio.create_task(
                self._own(owner, earlier), name=f"owner {partition}"
            )
        self._tell()

    def _revoked(self, partitions: frozenset[int]) -> None:
        if self._leaving:
            return  # our own doing
        for partition in partitions:
            owner = self._owners.pop(partition, None)
            if owner is not None:
                self.lost = True
                owner.stop()
        self._tell()

    def _tell(self) -> None:
        metrics.OWNED.set(len(self._owners))
        _log.info("assigned", partitions=sorted(self._owners))
        self._changed.set()

    def _owner(self, partition: int) -> Owner:
        around, thread = self._around, LogThread(f"log-{partition}")

        def open_log() -> PartitionLog:
            return KafkaPartitionLog(
                around.settings, partition, thread, self._watchdog, around.now, self._hit
            )

        return Owner(partition, around, self._pollers_of(partition), open_log, thread.end)

    async def _own(self, owner: Owner, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])  # one owner of a partition at a time in this process
        try:
            await owner.run()
        except (Refused, LogUnavailable) as error:
            self.failed = error
        finally:
            self._changed.set()

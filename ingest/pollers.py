"""Builds the pollers of a log partition from the definitions, and again when tenants come and go.

Pollers are fresh for every ownership; what they ask with is `accesses`' to keep.
"""

from __future__ import annotations

import asyncio
import secrets as random_secrets
import time
from collections.abc import Callable, Iterator, Mapping

import structlog

from ingest.accesses import Accesses
from ingest.budget import Deadline
from ingest.emission import Poller
from ingest.exchange import Access
from ingest.faults import where
from ingest.fetcher import PartitionPoller
from ingest.plans.cursor import CursorPlan
from ingest.plans.interval import IntervalPlan
from ingest.plans.keyset import KeysetPlan
from ingest.plans.parents import ParentsWalker
from ingest.plans.protocol import Plan
from ingest.plans.runs import Runs
from ingest.plans.snapshot import SnapshotPlan
from ingest.plans.walk import Walker
from ingest.programs import Programs
from ingest.requests import says
from ingest.tenancy import Tenancy
from schemas.definitions.load import Definitions
from schemas.definitions.source import (
    IntervalSpec,
    KeysetSpec,
    PlanSpec,
    SourceSpec,
    StreamSpec,
    Tenant,
)
from schemas.failpoints import Hit
from schemas.routing import route
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
US = 1_000_000
_SLOW_SHARE = 0.5
"""A first page that takes more than this share of the time-out asks for smaller windows."""
_AFTER_FAULT_S = 60.0


def now_us() -> int:
    """The wall clock, microseconds since the epoch."""
    return time.time_ns() // 1_000


class Pollers:
    """All partition ids of the definitions. Use from one event loop; close it at the end.

    `one_shot`: the provider is looked at once, and nobody asks again later.
    """

    def __init__(
        self,
        definitions: Definitions,
        settings: Settings,
        hit: Hit,
        deadline: Deadline | None = None,
        now_us: Callable[[], int] = now_us,
        *,
        one_shot: bool = False,
    ) -> None:
        self.definitions, self.settings = definitions, settings
        self.hit, self.now_us = hit, now_us
        self._made: dict[str, tuple[Poller, Tenant | None]] = {}
        self._accesses = Accesses(definitions.folder, now_us, deadline, one_shot)
        self.tenancy = Tenancy(definitions.sources, time.monotonic)
        most = settings.record_max_bytes
        self._programs = Programs(definitions.folder, most, now_us, hit)

    def of(self, partition: int) -> Mapping[str, Poller]:
        """Fresh pollers of every partition id that is routed to log partition `partition`.

        Raises DefinitionError or OSError where tenants are needed that were never readable.
        """
        return self.again(partition, {})

    def again(self, partition: int, known: Mapping[str, Poller]) -> Mapping[str, Poller]:
        """As `of`, with those of `known` whose tenant is the same as it was."""
        found: dict[str, Poller] = {}
        for source, stream, tenant in self._all():
            owner = stream.partition_id(tenant.id if tenant else None)
            if route(owner, self.settings.partitions) == partition:
                found[owner] = self._kept(owner, tenant, known) or self._make(
                    source, stream, tenant
                )
        return found

    def access(self, source: SourceSpec, tenant: Tenant | None) -> Access:
        """How a tenant's data is asked for; built once for each credential.

        Raises SecretUnavailable, RenderError or FetchRefused.
        """
        return self._accesses.of(source, tenant)

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Reads lists of tenants again when they are due, for as long as any can change."""
        changed: set[str] = set()
        while (wait_s := self.tenancy.next_look_s) is not None:
            await asyncio.sleep(wait_s)
            try:
                changed |= await self.tenancy.look()
                if changed:
                    on_change()
                while changed:
                    name = changed.pop()
                    tenants = self.tenancy.of(self.definitions.sources[name])
                    await self._accesses.keep(name, {t.id for t in tenants if t is not None})
                    self._forget()
            except Exception as error:  # a fault of ours must not end the polls
                _log.error("tenants not followed", error=type(error).__name__, where=where(error))
                await asyncio.sleep(_AFTER_FAULT_S)

    async def close(self) -> None:
        """Ends all connections."""
        await self._accesses.close()

    def _all(self) -> Iterator[tuple[SourceSpec, StreamSpec, Tenant | None]]:
        for source in self.definitions.sources.values():
            for tenant in self.tenancy.of(source):
                for stream in source:
                    yield source, stream, tenant

    def _forget(self) -> None:
        """Lets go of the pollers of tenants that went: they may be many, one day after another."""
        there = {stream.partition_id(t.id if t else None) for _, stream, t in self._all()}
        self._made = {name: made for name, made in self._made.items() if name in there}

    def _kept(
        self, owner: str, tenant: Tenant | None, known: Mapping[str, Poller]
    ) -> Poller | None:
        """The known poller if it was made here for the tenant as it is now."""
        poller, made_for = self._made.get(owner, (None, None))
        return poller if poller is known.get(owner) and made_for == tenant else None

    def _make(self, source: SourceSpec, stream: StreamSpec, tenant: Tenant | None) -> Poller:
        poller = self._poller(source, stream, tenant)
        self._made[poller.partition_id] = (poller, tenant)
        return poller

    def _poller(
        self, source: SourceSpec, stream: StreamSpec, tenant: Tenant | None
    ) -> PartitionPoller:
        plans = plans_of(stream, tenant, source.limits.timeout_s)
        if stream.program is not None:
            return self._programs.poller(
                source, stream, tenant, lambda: self.access(source, tenant), plans
            )
        return PartitionPoller(
            stream,
            tenant,
            lambda: self.access(source, tenant),
            plans,
            record_max_bytes=self.settings.record_max_bytes,
            now_us=self.now_us,
            hit=self.hit,
        )


def plans_of(stream: StreamSpec, tenant: Tenant | None, timeout_s: float) -> tuple[Plan, ...]:
    """The plans of one partition id, changes first."""
    owner = stream.partition_id(tenant.id if tenant else None)
    retention = stream.upstream_retention_s
    found: list[Plan] = []
    changes = stream.changes
    if isinstance(changes, IntervalSpec):
        keyset = isinstance(changes, KeysetSpec)
        by_time = KeysetPlan if keyset else IntervalPlan
        found.append(
            by_time(
                changes,
                owner,
                nonce,
                retention_us=None if retention is None else int(retention * US),
                slow_us=int(timeout_s * _SLOW_SHARE * US),
                by_start=says(changes, "after.time" if keyset else "start"),
                by_end=says(changes, "until" if keyset else "end"),
                runs=_runs(stream),
                walker=_walker(stream, changes),
                parents=None if stream.parent is None else stream.parent.changed,
            )
        )
    elif changes is not None:
        found.append(CursorPlan(changes, owner, nonce))
    if stream.snapshot is not None:
        found.append(
            SnapshotPlan(
                stream.snapshot,
                owner,
                nonce,
                keep=stream.keep_snapshots,
                walker=_walker(stream, stream.snapshot),
            )
        )
    return tuple(found)


def _walker(stream: StreamSpec, spec: PlanSpec) -> Walker | None:
    """None: the plan's own. A walk over parents takes their listing's pages too."""
    if stream.parent is None:
        return None
    listing = stream.parent.asked(spec.plan)
    return ParentsWalker(spec.request.pages, listing.request.pages, nonce)


def _runs(stream: StreamSpec) -> Runs | None:
    occurrences = stream.schedule.occurrences
    return None if occurrences is None else Runs(occurrences, stream.run_id)


def nonce() -> str:
    """A text that no earlier pass has carried."""
    return random_secrets.token_hex(6)

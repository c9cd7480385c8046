"""Builds the pollers of streams that a program reads, and keeps what these share in one process."""

from __future__ import annotations

import asyncio
import secrets as random_secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ingest.calls import Calls
from ingest.exchange import Access
from ingest.fetcher import PartitionPoller
from ingest.plans.program import ProgramPlan
from ingest.plans.protocol import Plan
from ingest.python_poller import PythonPoller
from ingest.taps.poller import SingerPoller
from schemas.definitions.programs import SingerSpec
from schemas.definitions.source import SourceSpec, StreamSpec, Tenant
from schemas.failpoints import Hit


@dataclass
class Programs:
    """Use from one event loop. `folder`: of the definitions. `now_us`: the wall clock."""

    folder: Path
    record_max_bytes: int
    now_us: Callable[[], int]
    hit: Hit
    _calls: Calls = field(default_factory=Calls)
    _taps: dict[tuple[str, str | None], asyncio.Semaphore] = field(default_factory=dict)

    def poller(
        self,
        source: SourceSpec,
        stream: StreamSpec,
        tenant: Tenant | None,
        access_of: Callable[[], Access],
        plans: tuple[Plan, ...],
    ) -> PartitionPoller:
        """A fresh poller of a stream that has a program. `plans`: those with requests of their own."""
        plan = program_plan(stream, tenant)
        if isinstance(stream.program, SingerSpec):
            turns = self._turns(source, tenant)
            return SingerPoller(
                stream, tenant, plan, source.limits, turns, self.folder,
                record_max_bytes=self.record_max_bytes, now_us=self.now_us, hit=self.hit,
            )  # fmt: skip
        return PythonPoller(
            stream, tenant, access_of, (plan, *plans), self._calls, self.folder,
            record_max_bytes=self.record_max_bytes, now_us=self.now_us, hit=self.hit,
        )  # fmt: skip

    def _turns(self, source: SourceSpec, tenant: Tenant | None) -> asyncio.Semaphore:
        """How many taps of one credential may run at once, in this process."""
        own = tenant.id if tenant is not None and source.limits.per == "tenant" else None
        limit = source.limits.concurrency
        return self._taps.setdefault((source.name, own), asyncio.Semaphore(limit))


def program_plan(stream: StreamSpec, tenant: Tenant | None) -> ProgramPlan:
    """The durable side of the program that reads this stream."""
    program = stream.program
    assert program is not None
    owner = stream.partition_id(tenant.id if tenant else None)
    return ProgramPlan(program.plan, program.definition_hash, owner, _nonce)


def _nonce() -> str:
    """A text that no earlier pass has carried."""
    return random_secrets.token_hex(6)

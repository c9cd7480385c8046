"""Builds the pollers of a log partition from the definitions, and what they share.

One HTTP client, clock and limiter per credential; pollers are fresh for every ownership.
"""

from __future__ import annotations

import asyncio
import secrets as random_secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from ingest.auth import Credential
from ingest.clock import ServerClock
from ingest.emission import Poller
from ingest.exchange import Access
from ingest.fetcher import PartitionPoller
from ingest.http import Http, parsed
from ingest.limits import Limiter
from ingest.plans.cursor import CursorPlan
from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import Plan
from ingest.plans.snapshot import SnapshotPlan
from ingest.requests import says, tenant_values
from ingest.responses import Answer
from schemas.definitions.load import Definitions
from schemas.definitions.problems import DefinitionError
from schemas.definitions.secrets import Reference, Secrets
from schemas.definitions.source import (
    ApiKeyAuth,
    BasicAuth,
    BearerAuth,
    IntervalSpec,
    SessionAuth,
    SourceSpec,
    StreamSpec,
    Tenant,
)
from schemas.definitions.templates import Template, render_base_url, templates_in
from schemas.definitions.tenants import current_tenants
from schemas.failpoints import Hit
from schemas.routing import route
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
US = 1_000_000
_SLOW_SHARE = 0.5
"""A first page that takes more than this share of the time-out asks for smaller windows."""


def now_us() -> int:
    """The wall clock, microseconds since the epoch."""
    return time.time_ns() // 1_000


@dataclass
class Pollers:
    """All partition ids of the definitions. Use from one event loop; close it at the end.

    `ends_at_s`: when the process must end, by the monotonic clock: no wait is sat out beyond it.
    """

    definitions: Definitions
    settings: Settings
    hit: Hit
    ends_at_s: float | None = None
    now_us: Callable[[], int] = now_us
    _accesses: dict[tuple[str, str | None], Access] = field(default_factory=dict)
    _tenants: dict[str, tuple[Tenant | None, ...]] = field(default_factory=dict)

    def of(self, partition: int) -> Mapping[str, Poller]:
        """Fresh pollers of every partition id that is routed to log partition `partition`."""
        found: dict[str, Poller] = {}
        for source in self.definitions.sources.values():
            for tenant in self._tenants_of(source):
                for stream in source:
                    owner = stream.partition_id(tenant.id if tenant else None)
                    if route(owner, self.settings.partitions) == partition:
                        found[owner] = self._poller(source, stream, tenant)
        return found

    async def close(self) -> None:
        """Ends all connections."""
        await asyncio.gather(*(access.http.close() for access in self._accesses.values()))

    def _tenants_of(self, source: SourceSpec) -> tuple[Tenant | None, ...]:
        """The tenants of now; those known before if their file cannot be read."""
        try:
            self._tenants[source.name] = current_tenants(source)
        except (DefinitionError, OSError) as error:
            if source.name not in self._tenants:
                raise
            _log.error("tenants not read again", source=source.name, error=str(error))
        return self._tenants[source.name]

    def _poller(
        self, source: SourceSpec, stream: StreamSpec, tenant: Tenant | None
    ) -> PartitionPoller:
        return PartitionPoller(
            stream,
            tenant,
            lambda: self._access(source, tenant),
            plans_of(stream, tenant, source.limits.timeout_s),
            record_max_bytes=self.settings.record_max_bytes,
            now_us=self.now_us,
            hit=self.hit,
        )

    def _access(self, source: SourceSpec, tenant: Tenant | None) -> Access:
        own = tenant is not None and (source.limits.per == "tenant" or _names_tenant(source))
        name = (source.name, tenant.id if own and tenant is not None else None)
        if name not in self._accesses:
            self._accesses[name] = self._build_access(source, tenant)
        return self._accesses[name]

    def _build_access(self, source: SourceSpec, tenant: Tenant | None) -> Access:
        """Raises SecretUnavailable, RenderError or FetchRefused; then nothing was opened."""
        secrets = Secrets(folder=self.definitions.folder)

        def values() -> Mapping[str, object]:
            return tenant_values(tenant, secrets.get)

        base = source.base_url
        url = secrets.get(base) if isinstance(base, Reference) else render_base_url(base, values())
        limits = source.limits
        http = Http(url, timeout_s=limits.timeout_s, body_max_bytes=limits.body_max_bytes)
        limiter = Limiter(limits.rate_per_s, limits.concurrency, time.monotonic)

        async def sign_in(path: str, body: object) -> Answer:
            fetched = await http.fetch("POST", http.url_of(path), body=body)
            return Answer(fetched.status, fetched.headers, lambda: parsed(fetched.body))

        credential = Credential(source.auth, secrets, values, sign_in, time.monotonic)
        clock = ServerClock()
        return Access(
            source.name,
            http,
            credential,
            limiter,
            clock,
            secrets,
            limits,
            self.now_us,
            ends_at_s=self.ends_at_s,
        )


def _names_tenant(source: SourceSpec) -> bool:
    """Whether the origin or the credential depends on the tenant."""
    auth = source.auth
    held: list[object] = [source.base_url]
    if isinstance(auth, BearerAuth):
        held.append(auth.token)
    elif isinstance(auth, BasicAuth):
        held += [auth.user, auth.password]
    elif isinstance(auth, ApiKeyAuth):
        held.append(auth.value)
    elif isinstance(auth, SessionAuth):
        held += [auth.post, *templates_in(auth.body)]
    names = {name for one in held if isinstance(one, Template) for name in one.names}
    return any(name.startswith("tenant.") for name in names)


def plans_of(stream: StreamSpec, tenant: Tenant | None, timeout_s: float) -> tuple[Plan, ...]:
    """The plans of one partition id, changes first."""
    owner = stream.partition_id(tenant.id if tenant else None)
    retention = stream.upstream_retention_s
    found: list[Plan] = []
    changes = stream.changes
    if isinstance(changes, IntervalSpec):
        found.append(
            IntervalPlan(
                changes,
                owner,
                nonce,
                retention_us=None if retention is None else int(retention * US),
                slow_us=int(timeout_s * _SLOW_SHARE * US),
                by_start=says(changes, "start"),
                by_end=says(changes, "end"),
            )
        )
    elif changes is not None:
        found.append(CursorPlan(changes, owner, nonce))
    if stream.snapshot is not None:
        found.append(SnapshotPlan(stream.snapshot, owner, nonce, keep=stream.keep_snapshots))
    return tuple(found)


def nonce() -> str:
    """A text that no earlier pass has carried."""
    return random_secrets.token_hex(6)

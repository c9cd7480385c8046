"""How each credential of each source is asked: one HTTP client, clock, limiter and proof for all who share it.

Built when first needed; what it needs (a secret, a host) may be missing for one tenant alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ingest import metrics
from ingest.auth import Credential
from ingest.budget import Deadline
from ingest.clock import ServerClock
from ingest.decode import parsed
from ingest.exchange import Access
from ingest.http import Fetched, Http
from ingest.limits import Limiter
from ingest.oauth import TokenGrant
from ingest.requests import tenant_values
from ingest.responses import Answer
from ingest.signing import TooLateToSignIn
from schemas.definitions.secrets import Reference, Secrets
from schemas.definitions.source import (
    ApiKeyAuth,
    BasicAuth,
    BearerAuth,
    LimitsSpec,
    OAuth2Auth,
    SessionAuth,
    SourceSpec,
    Tenant,
)
from schemas.definitions.templates import Template, render_base_url, templates_in

_SIGN_IN_S = 5.0
"""Signing in begins only while it may take this long."""
Name = tuple[str, str | None]
"""A source and the tenant whose own the access is; None: all tenants share it."""


@dataclass
class Accesses:
    """All accesses of one process. `folder` is where files of definitions begin. `one_shot`: whoever
    asks looks once.
    """

    folder: Path
    now_us: Callable[[], int]
    deadline: Deadline | None = None
    one_shot: bool = False
    _known: dict[Name, tuple[Tenant | None, Access]] = field(default_factory=dict)
    _retired: list[Access] = field(default_factory=list)
    _leaving: list[Access] = field(default_factory=list)

    def of(self, source: SourceSpec, tenant: Tenant | None) -> Access:
        """Raises SecretUnavailable, RenderError or FetchRefused; then nothing was opened."""
        if source.limits.per != "tenant" and not names_tenant(source):
            tenant = None
        name = (source.name, tenant.id if tenant is not None else None)
        known = self._known.get(name)
        if known is not None and known[0] == tenant:
            return known[1]
        self._retire([name])
        access = _build(source, tenant, self.folder, self.now_us, self.deadline)
        access.one_shot = self.one_shot
        self._known[name] = (tenant, access)
        return access

    async def keep(self, source: str, tenants: Collection[str]) -> None:
        """Only these tenants of a source are polled from now on.

        Connections of the others are closed at the next call: their polls are being ended.
        """
        names = [n for n in self._known if n[0] == source and n[1] is not None]
        self._retire(name for name in names if name[1] not in tenants)
        leaving, self._leaving, self._retired = self._leaving, self._retired, []
        await _closed(leaving)

    async def close(self) -> None:
        """Ends all connections."""
        known = [access for _, access in self._known.values()]
        await _closed([*known, *self._retired, *self._leaving])

    def _retire(self, names: Iterable[Name]) -> None:
        for name in names:
            known = self._known.pop(name, None)
            if known is not None:
                self._retired.append(known[1])
                metrics.forget_concurrency(*name)


async def _closed(accesses: Iterable[Access]) -> None:
    await asyncio.gather(*(access.close() for access in accesses))


def _build(
    source: SourceSpec,
    tenant: Tenant | None,
    folder: Path,
    now_us: Callable[[], int],
    deadline: Deadline | None,
) -> Access:
    secrets = Secrets(folder=folder)

    def values() -> Mapping[str, object]:
        return tenant_values(tenant, secrets.get)

    base = source.base_url
    url = secrets.get(base) if isinstance(base, Reference) else render_base_url(base, values())
    limits = source.limits
    most = limits.body_max_bytes
    http = Http(url, timeout_s=limits.timeout_s, body_max_bytes=most, now_us=now_us)
    owner = tenant.id if tenant is not None else ""
    limiter = Limiter(
        limits.rate_per_s,
        limits.concurrency,
        time.monotonic,
        metrics.CONCURRENCY.labels(source.name, owner).set,
    )

    async def sign_in(path: str, body: object) -> Answer:
        left_s = _left_to_sign_in(limits, deadline)
        fetched = await http.fetch("POST", http.url_of(path), body=body, timeout_s=left_s)
        return Answer(fetched.status, fetched.headers, lambda: parsed(fetched.body))

    grant = None
    if isinstance(source.auth, OAuth2Auth):
        grant = _grant(source, source.auth, secrets, values, url, folder, now_us, deadline)
    credential = Credential(source.auth, secrets, values, sign_in, time.monotonic, now_us, grant)
    return Access(
        source.name,
        http,
        credential,
        limiter,
        ServerClock(),
        secrets,
        limits,
        now_us,
        deadline=deadline,
    )


def _left_to_sign_in(limits: LimitsSpec, deadline: Deadline | None) -> float | None:
    """Seconds that signing in may take; None: as long as any request. Raises TooLateToSignIn rather
    than to begin what could not be waited for: the answer may hold the only good refresh token.
    """
    if deadline is None:
        return None
    left_s = deadline.answer_by_s - time.monotonic()
    if left_s < min(_SIGN_IN_S, limits.timeout_s):
        raise TooLateToSignIn("no time is left to sign in")
    return left_s


def _grant(
    source: SourceSpec,
    spec: OAuth2Auth,
    secrets: Secrets,
    values: Callable[[], Mapping[str, object]],
    base_url: str,
    folder: Path,
    now_us: Callable[[], int],
    deadline: Deadline | None,
) -> TokenGrant:
    """Token requests keep the rules of the HTTP edge, with the token endpoint as their only origin."""
    limits = source.limits
    most = limits.body_max_bytes

    def token_url() -> str:
        at = spec.token_url
        if isinstance(at, Reference):
            url = secrets.get(at)
        else:
            url = render_base_url(at, values()) + "/" * at.text.endswith("/")  # it may matter there
        return base_url.rstrip("/") + url if url.startswith("/") else url

    async def post(form: Mapping[str, str], headers: Mapping[str, str]) -> Fetched:
        url = await asyncio.to_thread(token_url)  # resolving may run a command, which blocks
        # Few and far between: a client of its own, so that no connection waits for hours.
        http = Http(url, timeout_s=limits.timeout_s, body_max_bytes=most, now_us=now_us)
        try:
            left_s = _left_to_sign_in(limits, deadline)
            return await http.fetch("POST", url, form=form, headers=headers, timeout_s=left_s)
        finally:
            await http.close()

    return TokenGrant(
        source.name,
        spec,
        secrets,
        values,
        post,
        now_us=now_us,
        timeout_s=limits.timeout_s,
        folder=folder,
    )


def names_tenant(source: SourceSpec) -> bool:
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
    elif isinstance(auth, OAuth2Auth):
        held += [auth.token_url, auth.client_id, auth.client_secret, auth.refresh_token]
        held += [auth.store, *templates_in(auth.params)]
    names = {name for one in held if isinstance(one, Template) for name in one.names}
    return any(name.startswith("tenant.") for name in names)

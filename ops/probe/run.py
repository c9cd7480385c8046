"""The loop around a trial: asks what it wants to know, within one budget for the whole source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.exchange import Access
from ingest.http import FetchRefused
from ingest.pollers import Pollers, now_us
from ops.probe.asking import Asker
from ops.probe.model import Away, Finding, NotLetIn, Pause, Question, Spent
from ops.probe.trial import MORE, Trial
from schemas.definitions.load import Definitions
from schemas.definitions.secrets import SecretUnavailable
from schemas.definitions.source import SourceSpec, StreamSpec, Tenant
from schemas.definitions.templates import RenderError
from schemas.definitions.tenants import current_tenants
from schemas.failpoints import none
from schemas.settings import Settings

Tell = Callable[[str], None]
"""Progress, for whoever watches."""


def _silent(_: str) -> None:
    """Nobody watches."""


@dataclass(slots=True)
class Budget:
    """Requests that may still be sent, retries and sign-ins included."""

    left: int
    whose: str = ""
    tell: Tell = _silent
    used: int = 0

    def spend(self) -> None:
        """One request; raises Spent if none is left."""
        if self.left <= 0:
            raise Spent(MORE)
        self.left -= 1
        self.used += 1
        self.tell(f"{self.whose}: request {self.used} of {self.used + self.left}")


@dataclass(slots=True)
class Probed:
    """What was found of one stream. `trouble`: why nothing could be asked at all; `unblocked_by`:
    what would help, where the provider refuses who asks.
    """

    stream: StreamSpec
    partition_id: str
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    trouble: str | None = None
    unblocked_by: str | None = None


@dataclass(slots=True)
class Report:
    """All streams of a source, and how many requests it took. `denied`: the credentials were
    refused, and nothing was asked from then on.
    """

    source: str
    requests: int
    streams: list[Probed]
    denied: NotLetIn | None = None


def probe(
    settings: Settings,
    definitions: Definitions,
    source: SourceSpec,
    requests: int,
    tell: Tell = _silent,
) -> Report:
    """Ask the first tenant of a source at most `requests` times. Never raises for what it answers."""
    return asyncio.run(_probe(settings, definitions, source, requests, tell))


async def _probe(
    settings: Settings,
    definitions: Definitions,
    source: SourceSpec,
    requests: int,
    tell: Tell,
) -> Report:
    budget = Budget(requests)
    pollers = Pollers(definitions, settings, none, one_shot=True)
    tenants = current_tenants(source)
    tenant = tenants[0] if tenants else None
    streams = list(source)
    probed = []
    over: Spent | None = None
    try:
        for number, stream in enumerate(streams):
            found = Probed(stream, stream.partition_id(tenant.id if tenant else None))
            probed.append(found)
            if not stream.plans:
                found.trouble = "a program asks here; what it asks is its own affair"
                continue
            if not tenants:
                found.trouble = "no tenant is listed, so nobody is asked for"
                found.unblocked_by = "a tenant in the list of `tenants`"
                continue
            if over is not None:
                found.trouble = over.why if isinstance(over, NotLetIn) else str(over)
                continue
            try:
                access = pollers.access(source, tenant)
            except (SecretUnavailable, RenderError, FetchRefused) as error:
                found.trouble = str(error)
                continue
            share = Budget(budget.left // (len(streams) - number), found.partition_id, tell)
            access.http.before_request = share.spend
            over = await _one(definitions, source, tenant, access, share, found)
            budget.left -= share.used
    finally:
        await pollers.close()
    denied = over if isinstance(over, NotLetIn) else None
    return Report(source.name, requests - budget.left, probed, denied)


async def _one(
    definitions: Definitions,
    source: SourceSpec,
    tenant: Tenant | None,
    access: Access,
    share: Budget,
    found: Probed,
) -> Spent | None:
    """One stream; its findings are in `found`. Returns why the provider is not to be asked on."""
    stream = found.stream
    trial = Trial(stream, now_us(), share.left)
    mappings = definitions.mappings_for(source.name, stream.name)
    asker = Asker(stream, tenant, access, mappings)
    try:
        spent = await _drive(trial, asker)
    finally:
        await asker.close()
    found.findings = trial.findings()
    found.trouble = trial.unanswered
    if not isinstance(spent, NotLetIn):
        return spent if isinstance(spent, Away) else None
    found.unblocked_by = spent.unblocked_by
    if found.trouble is not None:
        found.trouble = spent.why
    return spent if spent.whole else None


async def _drive(trial: Trial, asker: Asker) -> Spent | None:
    """Until the trial wants to know nothing more, or no more may be asked: then why."""
    while (step := trial.next) is not None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            trial.take(None)
            continue
        assert isinstance(step, Question)
        try:
            answer = await asker.ask(step)
        except Spent as spent:
            trial.stop(str(spent))
            return spent
        trial.take(answer)
    return None

"""`run`: the ingest process for a folder of definitions."""

from __future__ import annotations

import time

import structlog

from ingest.budget import Deadline, Tails
from ingest.control import obey
from ingest.memory import prepare
from ingest.metrics import Horizon
from ingest.pollers import Pollers
from ingest.process import REFUSED, Work, run_process
from schemas import keys
from schemas.definitions.load import Definitions
from schemas.definitions.problems import DefinitionError
from schemas.definitions.source import CursorSpec
from schemas.failpoints import Hit, none
from schemas.settings import Settings

_log = structlog.get_logger(__name__)


async def run(
    settings: Settings,
    definitions: Definitions,
    *,
    hit: Hit = none,
    once: bool = False,
    budget_s: float | None = None,
) -> int:
    """Runs until SIGTERM or SIGINT, with `once` until nothing is left or the budget is spent.

    Returns the exit code: 0 done, 1 something is blocked and needs an operator, 2 the budget is
    smaller than the reserve, 3 Kafka does not answer, 4 refused, 5 more to do, 6 busy. Raises
    DefinitionError.
    """
    definitions.check()
    prepare()
    begun_s, tails = time.monotonic(), Tails()
    reserves_s = _reserves_s(definitions)
    deadline = None
    if budget_s is not None:
        deadline = Deadline(begun_s + budget_s, reserves_s, settings.linger_s, tails, budget_s)
    pollers = Pollers(definitions, settings, hit, deadline)
    work = Work(
        pollers_of=pollers.of,
        obey=obey,
        horizon_of=lambda partition_id: horizon_of(definitions, partition_id),
        reserves_s=reserves_s,
        tails=tails,
        roster=pollers,
    )
    try:
        await pollers.tenancy.begin()
    except (DefinitionError, OSError) as error:
        _log.error("refused", reason=f"whose data is to be read is not known: {error}")
        return REFUSED
    if budget_s is not None:
        budget_s -= time.monotonic() - begun_s  # a command that lists tenants takes its time
    try:
        return await run_process(settings, work, hit=hit, once=once, budget_s=budget_s)
    finally:
        await pollers.close()


def _reserves_s(definitions: Definitions) -> tuple[float, ...]:
    return tuple(source.limits.reserve_s for source in definitions.sources.values())


def reserve_s(definitions: Definitions) -> float:
    """Seconds that a budget must be above: the longest reserve of all sources."""
    return max(_reserves_s(definitions), default=0.0)


def horizon_of(definitions: Definitions, partition_id: str) -> Horizon:
    """What the provider of a partition id declares to keep; nothing for one no longer defined."""
    source_name, stream_name, _ = keys.split_partition_id(partition_id)
    source = definitions.sources.get(source_name)
    stream = source.streams.get(stream_name) if source is not None else None
    if stream is None:
        return Horizon()
    changes = stream.changes
    lifetime_s = changes.lifetime_s if isinstance(changes, CursorSpec) else None
    return Horizon(stream.upstream_retention_s, lifetime_s)

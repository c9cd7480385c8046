"""`run`: the ingest process for a folder of definitions."""

from __future__ import annotations

from collections.abc import Callable

from ingest.control import obey
from ingest.metrics import Horizon
from ingest.pollers import Pollers
from ingest.process import Work, run_process
from schemas import keys
from schemas.definitions.load import Definitions
from schemas.definitions.source import CursorSpec
from schemas.failpoints import Hit, none
from schemas.settings import Settings


async def run(
    settings: Settings,
    definitions: Definitions,
    *,
    hit: Hit = none,
    once: bool = False,
    budget_s: float | None = None,
) -> int:
    """Runs until told to stop, with `once` until all that is due is durable; the exit code.

    Raises DefinitionError if the definitions have faults.
    """
    checked = definitions.check()
    pollers = Pollers(checked, settings, hit)
    work = Work(
        pollers_of=pollers.of,
        obey=obey,
        horizon_of=horizons(checked),
        reserves_s=[source.limits.reserve_s for source in checked.sources.values()],
    )
    try:
        return await run_process(settings, work, hit=hit, once=once, budget_s=budget_s)
    finally:
        await pollers.close()


def horizons(definitions: Definitions) -> Callable[[str], Horizon]:
    """How long the provider keeps what a partition id reads, as declared."""

    def horizon_of(partition_id: str) -> Horizon:
        source, stream, _ = keys.split_partition_id(partition_id)
        found = definitions.sources.get(source)
        spec = found.streams.get(stream) if found is not None else None
        if spec is None:
            return Horizon()
        cursor_s = spec.changes.lifetime_s if isinstance(spec.changes, CursorSpec) else None
        return Horizon(spec.upstream_retention_s, cursor_s)

    return horizon_of

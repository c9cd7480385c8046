"""`python -m tests.integration.ingest.child SOURCES [once [BUDGET_S]]`: a real ingest process.

SOURCES is JSON: [{"partition_id": …, "pages": …}]. Settings and failpoints come from the environment.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ingest.metrics import Horizon
from ingest.process import Work, run_process
from ops.failpoints import build
from schemas.routing import route
from schemas.settings import Settings
from tests.integration.ingest.scripted import NumberedPages, Source, obey


def work(settings: Settings, sources: list[Source], reserve_s: float = 0.0) -> Work:
    """Pollers for the sources that are routed to a log partition."""

    def pollers_of(partition: int) -> dict[str, NumberedPages]:
        return {
            source.partition_id: NumberedPages(source)
            for source in sources
            if route(source.partition_id, settings.partitions) == partition
        }

    return Work(pollers_of, obey, lambda _: Horizon(), (reserve_s,))


def main() -> int:
    settings = Settings()
    sources = [Source(**given) for given in json.loads(sys.argv[1])]
    once = len(sys.argv) > 2
    budget_s = float(sys.argv[3]) if len(sys.argv) > 3 else None
    return asyncio.run(
        run_process(
            settings,
            work(settings, sources),
            hit=build(settings.failpoints),
            once=once,
            budget_s=budget_s,
        )
    )


if __name__ == "__main__":
    sys.exit(main())

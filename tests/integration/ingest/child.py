"""`python -m tests.integration.ingest.child SOURCES [once [BUDGET_S]]`: a real ingest process.

SOURCES is JSON: [{"partition_id": …, "pages": …}]. Settings and failpoints come from the environment.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

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
    begun = time.monotonic()
    code = asyncio.run(
        run_process(
            settings,
            work(settings, sources),
            hit=build(settings.failpoints),
            once=once,
            budget_s=budget_s,
        )
    )
    # without the interpreter's own start and end, which a loaded machine stretches
    print(f"ran {time.monotonic() - begun:.2f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

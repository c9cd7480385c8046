"""What a backfill costs one `gapless ingest`: CPU time for each page of 500 records, and memory.

CPU time of all threads from the first durable page to the last, so that waiting for others counts
nothing; the provider is a process of its own. A page has 500 records of about 750 bytes.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from ops.stack import Addresses
from tests.benchmarks.cheap_server import CheapServer
from tests.benchmarks.figures import Samples
from tests.benchmarks.lane import Lane, cpu_s, lane, peak_mb
from tests.benchmarks.reading_log import Checkpoints
from tests.workers import wait_for

DEFINITIONS = Path(__file__).parent / "backfill_definitions"
TENANTS, PAGE_RECORDS = 8, 500
_START = "2024-01-02"
_LIMIT_S = 600


class Backfill:
    """Starts the provider once, measures as often as asked; a context manager."""

    def __init__(self, servers: Addresses, folder: Path, records: int) -> None:
        """`records`: over all tenants; rounded down to whole pages of each."""
        self._servers, self._folder = servers, folder
        self._pages = records // TENANTS // PAGE_RECORDS
        self._server = CheapServer(self._pages * PAGE_RECORDS)
        self._round = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def run(self, samples: Samples) -> None:
        """One process on an empty log, until it has brought everything."""
        self._round += 1
        extra = {"BENCH_URL": self._server.url}
        each = lane(
            self._servers, self._folder, f"bench.backfill{self._round}.", DEFINITIONS, extra=extra
        )
        found = Checkpoints(each.settings)
        worker = each.workers.start("ingest", "ingest")
        try:
            wait_for(
                "the first page is durable",
                lambda: found.read().newest or not worker.alive,
                _LIMIT_S,
                every_s=0.05,
            )
            # what is read by now, a few of thousands of pages, counts as if it had cost nothing
            begun_s = cpu_s(worker.process.pid) if worker.alive else 0.0
            wait_for(
                "every tenant's interval is complete",
                lambda: found.read().complete(_START) == TENANTS or not worker.alive,
                _LIMIT_S,
                every_s=0.5,
            )
            if not worker.alive:
                raise SystemExit(worker.log())
            spent_s, peak = cpu_s(worker.process.pid) - begun_s, peak_mb(worker.process.pid)
            worker.terminate()
        finally:
            worker.kill()
        # pages that were asked twice count once: they make the figure worse, not better
        per_page_ms = spent_s * 1_000 / (self._pages * TENANTS)
        samples.add("ingest.backfill.cpu_ms_per_page", per_page_ms, "ms")
        samples.add("ingest.backfill.rss_mb", peak, "MB")
        _forget(each)


def _forget(each: Lane) -> None:
    """Frees the disk: a log of this size for each run would add up."""
    admin = AdminClient({"bootstrap.servers": each.settings.kafka})
    topics = [each.settings.observations, each.settings.checkpoints]
    for done in admin.delete_topics(topics).values():
        done.result(30)

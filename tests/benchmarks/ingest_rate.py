"""How many pages per second one `gapless ingest` brings from a local HTTP server into the log.

Measured from the log alone: the broker's append times of the pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from ops.stack import Addresses
from schemas import codec, keys
from schemas.log.reader import LogRecord, PartitionReader
from schemas.records import SourceCheckpoint
from schemas.settings import Settings
from tests.benchmarks.figures import Samples
from tests.benchmarks.lane import Lane, lane, peak_mb
from tests.benchmarks.records import PAGE_RECORDS
from tests.upstream import Provider
from tests.workers import wait_for

DEFINITIONS = Path(__file__).parent / "ingest_definitions"
TENANTS = 8
_START = "2026-01-01"
_LIMIT_S = 300


class IngestRate:
    """Starts the provider once, measures as often as asked; a context manager."""

    def __init__(self, servers: Addresses, folder: Path, records: int) -> None:
        """`records`: over all tenants."""
        self._servers, self._folder = servers, folder
        self._pages = records // PAGE_RECORDS
        self._round = 0
        self._provider = Provider.start(
            tenants=TENANTS, accounts=records // TENANTS, record_bytes=800, render=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._provider.stop()

    def run(self, samples: Samples) -> None:
        """One process on an empty log, until it has brought everything."""
        self._round += 1
        extra = {"BENCH_URL": self._provider.url}
        prefix = f"bench.ingest{self._round}."
        each = lane(self._servers, self._folder, prefix, DEFINITIONS, extra=extra)
        worker = each.workers.start("ingest", "ingest")
        try:
            wait_for(
                "every tenant's interval is complete",
                lambda: _complete(each.settings) or not worker.alive,
                _LIMIT_S,
                every_s=0.5,
            )
            if not worker.alive:
                raise SystemExit(worker.log())
            samples.add("ingest.rss_mb", peak_mb(worker.process.pid), "MB")
            worker.terminate()
        finally:
            worker.kill()
        samples.add("ingest.pages_per_s", self._rate(each), "pages/s")

    def _rate(self, each: Lane) -> float:
        """Pages per second, from the first commit's append to the last page's."""
        times_ms = sorted(_appended_ms(each.settings))
        if len(times_ms) < self._pages:
            raise SystemExit(f"{len(times_ms)} pages in the log, {self._pages} at the provider")
        later = [at for at in times_ms if at > times_ms[0]]
        return len(later) * 1000 / (times_ms[-1] - times_ms[0])


def _complete(settings: Settings) -> bool:
    """Whether the newest checkpoints say that every tenant's interval is complete."""
    complete = set()
    for record in _read(settings, settings.checkpoints):
        found = codec.decode(record.value or b"")
        if isinstance(found, SourceCheckpoint):
            before = found.plans["interval"].complete_before
            if before is not None and not before.startswith(_START):
                complete.add(found.partition_id)
    return len(complete) == TENANTS


def _appended_ms(settings: Settings) -> list[int]:
    """Append times of all pages in the log, in milliseconds."""
    return [
        record.timestamp_ms
        for record in _read(settings, settings.observations)
        if isinstance(keys.parse_key(record.key), keys.PageKey)
    ]


def _read(settings: Settings, topic: str) -> Iterator[LogRecord]:
    """Every committed record of a topic, to the ends that stand now."""
    for number in range(settings.partitions):
        with PartitionReader(settings, topic, number, "bench") as reader:
            yield from reader.read(0, reader.stable_end())

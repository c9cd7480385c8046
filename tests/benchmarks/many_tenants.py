"""What 2,000 tenants cost one `gapless ingest` that asks each of them once a minute.

Twenty of them have five new records every time, the others none, so all that is paid for is asking
and saying durably that nothing is missing.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ops.stack import Addresses
from tests.benchmarks.cheap_server import CheapServer
from tests.benchmarks.figures import Samples
from tests.benchmarks.lane import cpu_s, lane, peak_mb
from tests.benchmarks.reading_log import Checkpoints
from tests.workers import Worker, wait_for

SOURCE = Path(__file__).with_name("many_tenants.yaml")
BUSY, IDLE = 20, 1_980
ROUND_S = 60.0
_START = "2024-01-02"
_LIMIT_S = 180


class ManyTenants:
    """One worker, measured over whole rounds of its schedule."""

    def __init__(self, servers: Addresses, folder: Path) -> None:
        self._servers, self._folder = servers, folder

    def run(self, samples: Samples, rounds: int) -> None:
        """One sample for each round behind the first, in which every tenant is new."""
        definitions = _definitions(self._folder / "many")
        with CheapServer(0) as server:
            extra = {"BENCH_URL": server.url}
            each = lane(self._servers, self._folder, "bench.many.", definitions, extra=extra)
            found = Checkpoints(each.settings)
            worker = each.workers.start("ingest", "ingest")
            try:
                wait_for(
                    "every tenant was asked",
                    lambda: found.read().complete(_START) == BUSY + IDLE or not worker.alive,
                    _LIMIT_S,
                    every_s=0.5,
                )
                for _ in range(rounds):
                    _round(worker, samples)
                worker.terminate()
            finally:
                worker.kill()


def _round(worker: Worker, samples: Samples) -> None:
    begun_s, spent_s = time.monotonic(), cpu_s(worker.process.pid)
    time.sleep(ROUND_S)
    if not worker.alive:
        raise SystemExit(worker.log())
    share = (cpu_s(worker.process.pid) - spent_s) / (time.monotonic() - begun_s)
    samples.add("ingest.tenants_2000.cpu_share", share, "of a core")
    samples.add("ingest.tenants_2000.rss_mb", peak_mb(worker.process.pid), "MB")


def _definitions(folder: Path) -> Path:
    (folder / "sources").mkdir(parents=True)
    shutil.copy(SOURCE, folder / "sources" / "shop.yaml")
    names = [f"busy{n}" for n in range(BUSY)] + [f"idle{n}" for n in range(IDLE)]
    (folder / "tenants.yaml").write_text("".join(f"- {{id: {name}}}\n" for name in names))
    return folder

"""Measures how fast and how large the stages are: `python -m tests.benchmarks`, or `make bench`.

Everything side by side in one run on real servers with fsync; prints a table and writes bench.json.
A floor that is missed is shown, and is no failure: these are no timed tests.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from ops.stack import Addresses, Stack
from tests.benchmarks import checkpoint_size
from tests.benchmarks.apply_rate import DAYS, ApplyRate
from tests.benchmarks.audit_rate import AuditRate
from tests.benchmarks.backfill import Backfill
from tests.benchmarks.bench_map import MapRate
from tests.benchmarks.comparison import Comparison
from tests.benchmarks.figures import Samples, table, write
from tests.benchmarks.ingest_rate import IngestRate
from tests.benchmarks.many_tenants import ManyTenants
from tests.benchmarks.records import LEAST
from tests.benchmarks.replay_rate import ReplayRate
from tests.stack import fresh_folder

PARTS = ("map", "ingest", "backfill", "tenants", "apply", "audit", "others", "replay")
_LONG_RUNS = 3
"""Of what takes a minute each."""
FLOORS = {
    "apply.new.ratio_to_copy": (">=", 0.40),
    "apply.update.ratio_to_copy": (">=", 0.40),
    "apply.stale.ratio_to_copy": (">=", 0.40),
    "apply.ratio_to_dlt": (">=", 6.0),
    "apply.ratio_to_dlt_arrow": (">=", 2.5),
    "apply.ratio_to_dlt_at_once": (">=", 6.0),
    "apply.ratio_to_dlt_arrow_at_once": (">=", 2.5),
    "apply.ratio_to_quix": (">=", 3.5),
    "apply.ratio_to_singer": (">=", 3.0),
    "replay.ratio_to_live": (">=", 1.0),
    "ingest.pages_per_s": (">=", 300.0),
    "audit.rss_mb": ("<", 300.0),
    "ingest.rss_mb": ("<", 300.0),
    "ingest.backfill.cpu_ms_per_page": ("<", 3.0),
    "ingest.backfill.rss_mb": ("<", 300.0),
    "ingest.checkpoint_kb": ("<", 64.0),
    "ingest.tenants_2000.rss_mb": ("<", 400.0),
    "ingest.tenants_2000.cpu_share": ("<", 0.20),
    "apply.rss_mb": ("<", 300.0),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each measurement, at least 3")
    parser.add_argument("--records", type=int, default=200_000, help="in each log")
    parser.add_argument("--backfill-records", type=int, default=1_000_000, help="of the backfill")
    parser.add_argument("--only", choices=PARTS, help="measure only this")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    given = parser.parse_args()
    if given.runs < 3 and given.only not in ("audit", "replay"):
        parser.error("--runs is at least 3, so that there is a median")
    given.records -= given.records % LEAST
    return given


def main() -> None:
    """Measure, print, write."""
    given = _arguments()
    samples = Samples()
    stack = Stack(fresh_folder(), tell=print)
    try:
        servers = stack.start()
        with tempfile.TemporaryDirectory(prefix="gapless-bench-") as folder:
            if given.only in (None, "map"):
                _repeat("map", MapRate(), given.runs, samples)
            _ingest(servers, Path(folder), given, samples)
            _apply(servers, Path(folder), given, samples)
    finally:
        stack.remove()
    figures = samples.figures()
    print(table(figures, FLOORS))
    write(figures, given.output)


def _ingest(servers: Addresses, folder: Path, given: argparse.Namespace, samples: Samples) -> None:
    if given.only in (None, "ingest"):
        with IngestRate(servers, folder, given.records) as ingest:
            _repeat("ingest", ingest, given.runs, samples)
    if given.only in (None, "backfill"):
        checkpoint_size.measure(samples)
        with Backfill(servers, folder, given.backfill_records) as backfill:
            _repeat("backfill", backfill, _LONG_RUNS, samples)
    if given.only in (None, "tenants"):
        ManyTenants(servers, folder).run(samples, _LONG_RUNS)


def _apply(servers: Addresses, folder: Path, given: argparse.Namespace, samples: Samples) -> None:
    if given.only not in (None, "apply", "audit", "others", "replay"):
        return
    kinds = ("new",) if given.only in ("audit", "others") else tuple(DAYS)
    if given.only == "replay":
        kinds = ("new", "update")
    apply = ApplyRate(servers, folder, given.records, kinds)
    if given.only in (None, "apply"):
        _repeat("apply", apply, given.runs, samples)
    if given.only in (None, "audit"):
        _repeat("audit", AuditRate(apply), given.runs, samples)
    if given.only in (None, "replay"):
        _repeat("replay", ReplayRate(apply, folder), given.runs, samples)
    if given.only in (None, "others"):
        others = Comparison(servers, folder, apply, given.records)
        _repeat("others", others, given.runs, samples)


def _repeat(
    name: str,
    measured: MapRate | IngestRate | Backfill | ApplyRate | AuditRate | Comparison | ReplayRate,
    runs: int,
    samples: Samples,
) -> None:
    for number in range(1, runs + 1):
        measured.run(samples)
        load = os.getloadavg()[0]
        samples.add("machine.load_average", load, "processes")
        print(f"{name}: run {number} of {runs} done, load average {load:.1f}", flush=True)


if __name__ == "__main__":
    main()

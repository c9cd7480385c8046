"""Measures how fast and how large the stages are: `python -m tests.benchmarks`, or `make bench`.

Everything side by side in one run on real servers with fsync; prints a table and writes bench.json.
A floor that is missed is shown, and is no failure: these are no timed tests.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from ops.stack import Stack
from tests.benchmarks.apply_rate import DAYS, ApplyRate
from tests.benchmarks.audit_rate import AuditRate
from tests.benchmarks.bench_map import MapRate
from tests.benchmarks.comparison import Comparison
from tests.benchmarks.figures import Samples, table, write
from tests.benchmarks.ingest_rate import IngestRate
from tests.stack import fresh_folder

FLOORS = {
    "apply.new.ratio_to_copy": (">=", 0.40),
    "apply.update.ratio_to_copy": (">=", 0.40),
    "apply.stale.ratio_to_copy": (">=", 0.40),
    "apply.ratio_to_dlt": (">=", 6.0),
    "apply.ratio_to_dlt_arrow": (">=", 2.5),
    "apply.ratio_to_quix": (">=", 3.5),
    "apply.ratio_to_singer": (">=", 3.0),
    "ingest.pages_per_s": (">=", 300.0),
    "audit.rss_mb": ("<", 300.0),
    "ingest.rss_mb": ("<", 300.0),
    "apply.rss_mb": ("<", 300.0),
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each measurement, at least 3")
    parser.add_argument("--records", type=int, default=200_000, help="in each log")
    parser.add_argument(
        "--only", choices=["map", "apply", "ingest", "audit", "others"], help="measure only this"
    )
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    given = parser.parse_args()
    if given.runs < 3 and given.only != "audit":
        parser.error("--runs is at least 3, so that there is a median")
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
            if given.only in (None, "ingest"):
                with IngestRate(servers, Path(folder), given.records) as ingest:
                    _repeat("ingest", ingest, given.runs, samples)
            if given.only in (None, "apply", "audit", "others"):
                kinds = ("new",) if given.only in ("audit", "others") else tuple(DAYS)
                apply = ApplyRate(servers, Path(folder), given.records, kinds)
                if given.only in (None, "apply"):
                    _repeat("apply", apply, given.runs, samples)
                if given.only in (None, "audit"):
                    _repeat("audit", AuditRate(apply), given.runs, samples)
                if given.only in (None, "others"):
                    others = Comparison(servers, Path(folder), apply, given.records)
                    _repeat("others", others, given.runs, samples)
    finally:
        stack.remove()
    figures = samples.figures()
    print(table(figures, FLOORS))
    write(figures, given.output)


def _repeat(
    name: str,
    measured: MapRate | IngestRate | ApplyRate | AuditRate | Comparison,
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

"""How many records per second one core decodes and maps; alone: `python -m tests.benchmarks.bench_map`.

Pages of 100 records of about 800 bytes into 13 columns. Prints the best and the median of the runs.
With a Python function in a process of its own the clock on the wall counts.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from apply.functions.outside import Surroundings
from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place
from schemas.definitions.mapping import FunctionSpec, MappingSpec
from schemas.records import Observation
from tests.benchmarks.figures import Samples
from tests.benchmarks.records import PAGE_RECORDS, definitions, page_of, record

PAGES, RUNS = 100, 9


def load_spec() -> MappingSpec:
    """The mapping of this benchmark, through the loader."""
    return definitions().mappings["orders"]


def pages_of(count: int) -> list[Observation]:
    """So many pages, made before the clock runs."""
    dice = random.Random(1)
    return [
        page_of([record(dice, n, 1 + n % 9) for n in range(at, at + PAGE_RECORDS)])
        for at in range(0, count * PAGE_RECORDS, PAGE_RECORDS)
    ]


def rate(
    compiled: CompiledMapping,
    pages: list[Observation],
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Records per second, by default of CPU time, of one pass over the pages."""
    start = clock()
    rows = sum(
        len(compiled.map_page(one, Place(1, 0, n, "t1", None)).rows) for n, one in enumerate(pages)
    )
    elapsed_s = clock() - start
    if rows != sum(len(one.records) for one in pages):
        raise SystemExit("not every record became a row")
    return rows / elapsed_s


class MapRate:
    """Makes its pages once, measures as often as asked."""

    def __init__(self) -> None:
        self._pages = pages_of(PAGES)
        self._compiled = compile_mapping(load_spec(), 1)
        function = FunctionSpec("order_rows", "order", hang_s=10.0, memory_bytes=512 << 20)
        self._outside = Surroundings(Path(__file__).parent)
        self._made = compile_mapping(replace(load_spec(), python=function), 1, self._outside)

    def run(self, samples: Samples) -> None:
        """One pass over all pages."""
        samples.add("map.records_per_s", rate(self._compiled, self._pages), "records/s")
        made = rate(self._made, self._pages, time.perf_counter)
        samples.add("map.function.records_per_s", made, "records/s")


def main() -> None:
    """Measure and print."""
    pages = pages_of(PAGES)
    compiled = compile_mapping(load_spec(), 1)
    rates = [rate(compiled, pages) for _ in range(RUNS)]
    raws = [raw for one in pages for raw in one.records]
    size = sum(map(len, raws)) // len(raws)
    print(
        f"decode and map: {max(rates):,.0f} records/s best, {statistics.median(rates):,.0f} median"
        f" of {RUNS} runs; {size} bytes, {len(load_spec().columns)} columns, one core"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()

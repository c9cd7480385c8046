"""How fast one `gapless apply` turns a log into rows, beside a plain COPY of the same rows.

Three logs on one database: all orders new, all of them changed, all of them older than what is
stored. Each is applied by a process of its own, measured from its first transaction to its last.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

import psycopg

from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place, Row
from apply.outcomes import Outcome
from apply.sql_text import copy_sql
from ops.stack import Addresses
from schemas.records import Observation
from tests.benchmarks.figures import Samples
from tests.benchmarks.lane import Lane, lane, peak_mb, preload
from tests.benchmarks.records import DEFINITIONS, definitions, log_of
from tests.workers import wait_for

# The day that an order's state is of is its revision.
DAYS = {"new": 2, "update": 3, "stale": 1}
_OUTCOMES = {"new": Outcome.APPLIED, "update": Outcome.APPLIED, "stale": Outcome.SUPERSEDED}
_BATCH = 5_000
_LEAST_RATE = 10_000
"""Records per second below which something is wrong."""
_FORGET = (
    "TRUNCATE gapless.position, gapless.page_ledger, gapless.mark, gapless.coverage, "
    "gapless.log_generation"
)


class ApplyRate:
    """Preloads once, measures as often as asked."""

    def __init__(
        self, servers: Addresses, folder: Path, records: int, kinds: Sequence[str] = tuple(DAYS)
    ) -> None:
        """`kinds`: which logs to make; the new orders are always among them."""
        self._records = records
        self._lanes: dict[str, Lane] = {}
        for name, day in ((kind, DAYS[kind]) for kind in kinds):
            self._lanes[name] = lane(servers, folder, f"bench.{name}.", DEFINITIONS)
            preload(self._lanes[name].settings, log_of(records, day))
        self._sink = self._lanes["new"]
        spec = definitions().mappings["orders"]
        self._compiled = compile_mapping(spec, 1)

    @property
    def lane(self) -> Lane:
        """Where the new orders are."""
        return self._sink

    @property
    def environment(self) -> Mapping[str, str]:
        """What a verb needs to find the new orders."""
        return self._sink.workers.environment

    def run(self, samples: Samples) -> None:
        """One round: COPY and each kind of log in turn; a ratio is to the COPYs around it."""
        self._sink.sql(f"TRUNCATE orders; {_FORGET}; CHECKPOINT")
        before = self._copy(samples)
        for name in self._lanes:
            rate = self._apply(name, samples)
            after = self._copy(samples)
            samples.add(f"apply.{name}.records_per_s", rate, "records/s")
            ratio = rate / statistics.mean([before, after])
            samples.add(f"apply.{name}.ratio_to_copy", ratio, "ratio")
            before = after

    def new_rate(self, samples: Samples) -> float:
        """Records per second of the new orders alone, for a comparison beside it."""
        self._sink.sql(f"TRUNCATE orders; {_FORGET}; CHECKPOINT")
        return self._apply("new", samples)

    def update_rate(self, samples: Samples) -> float:
        """Records per second of changes of orders that are there."""
        return self._apply("update", samples)

    def _apply(self, name: str, samples: Samples) -> float:
        each = self._lanes[name]
        each.sql(_FORGET)
        worker = each.workers.start("apply", "apply")
        try:
            wait_for(
                f"all pages of {each.settings.prefix} are applied",
                lambda: self._applied(each) or not worker.alive,
                60 + self._records / _LEAST_RATE,
                every_s=0.5,
            )
            if not worker.alive:
                raise SystemExit(worker.log())
            samples.add("apply.rss_mb", peak_mb(worker.process.pid), "MB")
            worker.terminate()
        finally:
            worker.kill()
        self._check(name)
        return self._rate(each)

    def _check(self, name: str) -> None:
        """That it did what is measured. Raises SystemExit: the figure would mean something else."""
        at = list(Outcome).index(_OUTCOMES[name]) + 1
        lane = self._lanes[name]
        [[so]] = lane.sql(f"SELECT sum(counts[{at}])::bigint FROM gapless.page_ledger")
        [[rows]] = lane.sql("SELECT count(*) FROM orders")
        if so != self._records or rows != self._records:
            outcome = _OUTCOMES[name].name.lower()
            raise SystemExit(
                f"of {self._records} records {so} are {outcome}, and the table has {rows} rows"
            )

    def _applied(self, each: Lane) -> bool:
        [[records]] = each.sql("SELECT coalesce(sum(records), 0)::bigint FROM gapless.page_ledger")
        return int(str(records)) >= self._records

    def _rate(self, each: Lane) -> float:
        """Records per second between the beginnings of the first and the last transaction."""
        found = each.sql(
            "SELECT applied_at, sum(records)::bigint FROM gapless.page_ledger GROUP BY 1 ORDER BY 1"
        )
        times = [at for at, _ in found if isinstance(at, datetime)]
        records = sum(int(str(count)) for _, count in found[:-1])
        return records / (times[-1] - times[0]).total_seconds()

    def _copy(self, samples: Samples) -> float:
        """Rows per second of a plain binary COPY into an empty table of the same shape."""
        rows, spent_s, count = self._rows(), 0.0, 0
        statement = copy_sql(self._compiled, "copied").encode()
        with psycopg.connect(self._sink.settings.postgres, autocommit=True) as connection:
            connection.execute("CREATE TABLE copied (LIKE orders INCLUDING ALL)")
            while batch := list(islice(rows, _BATCH)):
                begun = time.perf_counter()
                with connection.transaction(), connection.cursor().copy(statement) as copy:
                    copy.set_types(self._compiled.type_names)
                    for row in batch:
                        copy.write_row(row)
                spent_s += time.perf_counter() - begun
                count += len(batch)
            connection.execute("DROP TABLE copied")
        samples.add("copy.records_per_s", count / spent_s, "records/s")
        return count / spent_s

    def _rows(self) -> Iterator[Row]:
        return mapped(self._compiled, self._records)


def mapped(compiled: CompiledMapping, records: int) -> Iterator[Row]:
    """The rows of the new orders, in the order of the log."""
    for offset, one in enumerate(log_of(records, DAYS["new"])):
        if isinstance(one, Observation):
            yield from compiled.map_page(one, Place(1, 0, offset, one.partition_id[-2:], None)).rows

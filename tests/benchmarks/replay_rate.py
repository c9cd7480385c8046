"""How fast `gapless replay` goes through a log, in place and beside the live table, against live apply.

On the log of new orders, with nothing else running. `--records 1000000 --only replay --runs 1`
measures one million.
"""

from __future__ import annotations

import shutil
import statistics
from datetime import datetime
from pathlib import Path

from tests.benchmarks.apply_rate import ApplyRate
from tests.benchmarks.figures import Samples
from tests.benchmarks.records import DEFINITIONS

_LIMIT_S = 900
_FORGET = """
DROP TABLE IF EXISTS gapless_beside.orders, gapless_beside.present_orders;
DELETE FROM gapless.position WHERE pipeline <> 'live';
DELETE FROM gapless.page_ledger WHERE mapping_version <> {live};
DELETE FROM gapless.mapping_version WHERE mapping = 'orders' AND version > 1;
UPDATE gapless.mapping_version SET state = 'live' WHERE id = {live}"""


class ReplayRate:
    """Applies the new orders as version 1, then replays them as version 2, each way."""

    def __init__(self, apply: ApplyRate, folder: Path) -> None:
        self._apply, self._lane = apply, apply.lane
        self._definitions = folder / "next"
        shutil.copytree(DEFINITIONS, self._definitions)
        for file in (self._definitions / "mappings").iterdir():
            file.write_text(file.read_text().replace("version: 1\n", "version: 2\n"))
        found = self._lane.sql("SELECT id FROM gapless.mapping_version WHERE mapping = 'orders'")
        self._live = int(str(found[0][0]))

    def run(self, samples: Samples) -> None:
        """One round, like with like: in place every row is changed, as live changes every row;
        beside an empty table is filled, as live fills one. A ratio is to the live rates around it."""
        self._fresh(samples)
        changing = [self._apply.update_rate(samples)]
        self._fresh(samples)
        in_place = self._replay(samples, "replay", "migrate", "replay orders")
        filling = [self._fresh(samples)]
        beside = self._replay(samples, "replay.shadow", "replay orders --shadow")
        filling.append(self._fresh(samples))
        changing.append(self._apply.update_rate(samples))
        samples.add("replay.ratio_to_live", in_place / statistics.mean(changing), "ratio")
        samples.add("replay.shadow.ratio_to_live", beside / statistics.mean(filling), "ratio")

    def _fresh(self, samples: Samples) -> float:
        """The new orders as version 1, and nothing else; the rate of live."""
        self._lane.sql(_FORGET.format(live=self._live))
        return self._apply.new_rate(samples)

    def _replay(self, samples: Samples, name: str, *verbs: str) -> float:
        for verb in verbs:
            line = f"{verb} --definitions {self._definitions}"
            done = self._lane.workers.run(line, timeout_s=_LIMIT_S)
            if done.returncode != 0:
                raise SystemExit(f"gapless {verb}: {done.stdout}{done.stderr}")
        rate = self._rate()
        samples.add(f"{name}.records_per_s", rate, "records/s")
        return rate

    def _rate(self) -> float:
        """Records per second between the beginnings of the first and the last transaction, as of live."""
        found = self._lane.sql(
            "SELECT applied_at, sum(records)::bigint FROM gapless.page_ledger"
            f" WHERE mapping_version <> {self._live} GROUP BY 1 ORDER BY 1"
        )
        times = [at for at, _ in found if isinstance(at, datetime)]
        records = sum(int(str(count)) for _, count in found[:-1])
        return records / (times[-1] - times[0]).total_seconds()

"""How fast and how large `gapless audit` is, on the log and the rows that the apply benchmark left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.benchmarks.apply_rate import ApplyRate
from tests.benchmarks.figures import Samples


class AuditRate:
    """Applies the new orders, then audits them in a process of its own."""

    def __init__(self, apply: ApplyRate) -> None:
        self._apply = apply

    def run(self, samples: Samples) -> None:
        """One round. Raises SystemExit if the audit is not clean, since then it measured nothing."""
        self._apply.new_rate(samples)
        command: list[str | Path] = [Path(sys.executable).with_name("gapless"), "audit", "--json"]
        begun = time.perf_counter()
        with subprocess.Popen(
            command, env={**os.environ, **self._apply.environment}, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            told = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        spent_s = time.perf_counter() - begun
        report = json.loads(told)
        if not report["clean"]:
            raise SystemExit(f"the audit found {report['finding_counts']}")
        samples.add("audit.records_per_s", report["totals"]["records"] / spent_s, "records/s")
        samples.add("audit.rss_mb", used.ru_maxrss * 1024 / 1_000_000, "MB")

"""How fast and how large `gapless audit` is, on the log and the rows that the apply benchmark left."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.apply_rate import ApplyRate
from tests.benchmarks.figures import Samples
from tests.benchmarks.lane import peak_mb

_LOOK_S = 0.05


class AuditRate:
    """Applies the new orders, then audits them in a process of its own."""

    def __init__(self, apply: ApplyRate) -> None:
        self._apply = apply

    def run(self, samples: Samples) -> None:
        """One round. Raises SystemExit if the audit is not clean, since then it measured nothing."""
        self._apply.new_rate(samples)
        command: list[str | Path] = [Path(sys.executable).with_name("gapless"), "audit", "--json"]
        begun, peak = time.perf_counter(), 0.0
        with tempfile.TemporaryFile() as told, subprocess.Popen(
            command, env={**os.environ, **self._apply.environment}, stdout=told
        ) as process:  # fmt: skip
            # what the kernel says at its end would count this process too, which it was forked from
            while process.poll() is None:
                with contextlib.suppress(ValueError):
                    peak = max(peak, peak_mb(process.pid))
                time.sleep(_LOOK_S)
            spent_s = time.perf_counter() - begun
            told.seek(0)
            report = json.load(told)
        if not report["clean"]:
            raise SystemExit(f"the audit found {report['finding_counts']}")
        samples.add("audit.records_per_s", report["totals"]["records"] / spent_s, "records/s")
        samples.add("audit.rss_mb", peak, "MB")

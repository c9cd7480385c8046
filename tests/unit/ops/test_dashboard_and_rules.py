"""The dashboard's JSON is what its code builds; dashboard and alerts speak of metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from ruamel.yaml import YAML

import apply.metrics
import ingest.metrics
import ops.relay.metrics
from ops.dashboards.build import TARGET, build
from ops.monitor.metrics import PER_PARTITION_ID, PER_POLL

REPOSITORY = Path(__file__).parents[3]
RULES = REPOSITORY / "ops/rules/gapless.yml"
IMPORTED = (apply.metrics, ingest.metrics, ops.relay.metrics)  # they register what they serve
MONITOR = {
    *PER_PARTITION_ID, *PER_POLL, "gapless_state", "gapless_blocked", "gapless_server_up",
    "gapless_outbox_unsent_events", "gapless_outbox_dead_events", "gapless_outbox_unsent_copies",
    "gapless_outbox_oldest_event_seconds", "gapless_monitor_healthy",
    "gapless_monitor_read_timestamp_seconds", "gapless_log_open_transaction_seconds",
    "gapless_replay_done_ratio",
    "gapless_open_exceptions", "gapless_open_exceptions_oldest_seconds",
}  # fmt: skip


def known() -> set[str]:
    """Names of all samples that the processes serve."""
    assert all(IMPORTED)
    found = set(MONITOR)
    for metric in prometheus_client.REGISTRY.collect():
        ends = ("", "_total") if metric.type == "counter" else ("", "_bucket", "_sum", "_count")
        found |= {f"{metric.name}{end}" for end in ends}
    return found


def used(expressions: list[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\b(gapless_\w+)", text)}


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TARGET.read_text("utf-8"))
    return found


def rules() -> Iterator[dict[str, Any]]:
    loaded = YAML(typ="safe").load(RULES.read_text("utf-8"))
    for group in loaded["groups"]:
        yield from group["rules"]


def test_the_committed_dashboard_is_what_the_code_builds() -> None:
    assert TARGET.read_text("utf-8") == build(), "run: python -m ops.dashboards.build"


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    expressions = [t["expr"] for panel in dashboard()["panels"] for t in panel["targets"]]
    assert len(expressions) > 15
    assert used(expressions) - known() == set()


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_alerts_ask_for_metrics_that_exist_and_name_a_runbook_that_exists() -> None:
    found = list(rules())
    assert used([rule["expr"] for rule in found]) - known() == set()
    for rule in found:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert (REPOSITORY / rule["annotations"]["runbook"]).is_file(), rule["alert"]
        assert len(str(rule["annotations"])) < 1000


def test_every_alert_is_tested() -> None:
    tested = (RULES.parent / "tests" / RULES.name).read_text("utf-8")
    for rule in rules():
        assert f"alertname: {rule['alert']}\n" in tested, rule["alert"]


def test_alerts_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: the rules' own tests did not run")
    tests = RULES.parent / "tests" / RULES.name
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(tests)]):
        done = subprocess.run([promtool, *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

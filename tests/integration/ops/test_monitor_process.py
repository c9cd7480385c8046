"""`gapless monitor` as a process: page, metrics, JSON and health, also while Postgres is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.stack.folder import free_port
from tests.integration.ops.verbs import REPOSITORY, run
from tests.integration.ops.written import OWNER, Deployment
from tests.waiting import wait_until


def get(url: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def ready(base: str) -> bool:
    try:
        return get(f"{base}/status.json")[0] == 200
    except OSError:
        return False


@contextmanager
def monitor(environment: dict[str, str], folder: Path) -> Iterator[str]:
    port = free_port()
    with (folder / "monitor.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ops.cli.main", "monitor", "--port", str(port), "--every", "1"],
            cwd=REPOSITORY, env={**os.environ, **environment}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or ready(base), 60, "the first status")
        assert process.poll() is None, (folder / "monitor.log").read_text()
        yield base
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_page_metrics_and_health(deployment: Deployment, tmp_path: Path) -> None:
    with monitor(deployment.environment, tmp_path) as base:
        code, text, headers = get(f"{base}/")
        assert code == 200
        assert OWNER in text
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert get(f"{base}/style.css")[2]["Content-Type"].startswith("text/css")
        _, metrics, _ = get(f"{base}/metrics")
        assert f'gapless_lag_apply_records{{partition_id="{OWNER}"}} 0.0' in metrics
        assert f'gapless_horizon_provider_seconds{{partition_id="{OWNER}"}} 2.592e+06' in metrics
        assert f'gapless_quarantined_records{{partition_id="{OWNER}"}} 1.0' in metrics
        assert "process_resident_memory_bytes" in metrics
        found = json.loads(get(f"{base}/status.json")[1])
        assert found["partition_ids"][0]["partition_id"] == OWNER
        code, text, _ = get(f"{base}/healthz")
        assert (code, json.loads(text)) == (
            200, {"healthy": True, "kafka": True, "postgres": True},
        )  # fmt: skip
        assert get(f"{base}/nothing")[0] == 404


def test_postgres_away(deployment: Deployment, tmp_path: Path) -> None:
    environment = {
        **deployment.environment, "GAPLESS_POSTGRES": "postgresql://nobody@127.0.0.1:9/nothing"
    }  # fmt: skip
    with monitor(environment, tmp_path) as base:
        _, text, _ = get(f"{base}/")
        assert "Postgres cannot be asked" in text
        _, metrics, _ = get(f"{base}/metrics")
        assert 'gapless_server_up{server="postgres"} 0.0' in metrics
        assert f'gapless_lag_ingest_seconds{{partition_id="{OWNER}"}}' in metrics


def test_a_port_that_is_taken(deployment: Deployment, tmp_path: Path) -> None:
    with monitor(deployment.environment, tmp_path) as base:
        port = base.rsplit(":", 1)[1]
        done = run(deployment.environment, "monitor", "--port", port)
        assert done.returncode == 3
        assert "Choose another --port" in done.stderr
        assert "Traceback" not in done.stderr

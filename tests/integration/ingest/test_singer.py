"""A tap read by real workers into a real log, some of which are killed in the middle of it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.records import Mark, Observation, SourceCheckpoint
from schemas.settings import Settings
from tests.conftest import Lane
from tests.integration.ingest import log
from tests.integration.ingest.conftest import small_settings, with_topics
from tests.workers import Worker, wait_for, workers

OWNER = "counting/numbers"
RECORDS = 240
TAP = Path(__file__).parents[2] / "fake_tap.py"


def definitions(folder: Path, **config: Any) -> Path:
    """A source with one stream, read by the tap that counts."""
    given = {"records": RECORDS, "state_every": 7, "log": str(folder / "runs"), **config}
    singer = {"command": [sys.executable, str(TAP)], "config": given, "catalog": "discover"}
    stream = {"plan": {"singer": singer}, "schedule": {"every": "1h"}, "deletes": "shown"}
    (folder / "sources").mkdir()
    source = {"gapless": 1, "source": "counting", "streams": {"numbers": stream}}
    (folder / "sources" / "counting.yaml").write_text(json.dumps(source))
    return folder


@dataclass
class Read:
    """What the log holds of the partition id: where each number stands, and all checkpoints."""

    settings: Settings

    def numbers(self) -> dict[int, int]:
        """Number → the first offset at which it stands."""
        found: dict[int, int] = {}
        for seen in log.observations(self.settings):
            if isinstance(seen.content, Observation):
                for record in seen.content.records:
                    found.setdefault(json.loads(record)["id"], seen.offset)
        return found

    def checkpoints(self) -> list[SourceCheckpoint]:
        read = log.read(self.settings, self.settings.checkpoints)
        return [seen.content for seen in read if isinstance(seen.content, SourceCheckpoint)]

    def marks(self) -> list[str]:
        return [
            s.content.kind for s in log.observations(self.settings) if isinstance(s.content, Mark)
        ]

    def claims_ahead(self) -> list[str]:
        """Checkpoints whose STATE covers a number that does not stand at or before what they name."""
        where, faults = self.numbers(), []
        for checkpoint in self.checkpoints():
            claimed = done(checkpoint)
            named = checkpoint.named.offset if checkpoint.named else -1
            if any(where.get(number, named + 1) > named for number in range(claimed)):
                faults.append(f"sequence {checkpoint.sequence} claims {claimed} at {named}")
        return faults


def done(checkpoint: SourceCheckpoint) -> int:
    plan = checkpoint.plans.get("singer")
    return 0 if plan is None or plan.state is None else int(json.loads(plan.state)["done"])


def runs(folder: Path) -> list[dict[str, Any]]:
    path = folder / "runs"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if "from" in line]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_that_are_killed_while_a_tap_runs_lose_no_record(
    lane: Lane, tmp_path: Path
) -> None:
    settings = with_topics(small_settings(lane))
    traces = tmp_path / "traces"
    traces.mkdir()
    # The first tap goes no further than half, however long its worker takes to be killed.
    half = {"faults": {str(RECORDS // 2): "hang"}, "traces": str(traces)}
    folder = definitions(tmp_path, wait_s=0.02, **half)
    environment = {
        **lane.environment,
        "GAPLESS_DEFINITIONS": str(folder),
        "GAPLESS_PARTITIONS": "1",
        "GAPLESS_SESSION_TIMEOUT_MS": "1000",
        "GAPLESS_TRANSACTION_TIMEOUT_MS": "6000",
        "GAPLESS_MESSAGE_TIMEOUT_MS": "3000",
        "GAPLESS_LINGER_S": "0.02",
    }
    read = Read(settings)
    with workers(environment, tmp_path) as group:
        kill(group.start("ingest", "w1"), folder, read, after=1)
        halfway = max(map(done, read.checkpoints()))
        assert 0 < halfway < RECORDS
        # This one dies between the pages and the checkpoint that covers them.
        second = group.start("ingest", "w2", "ingest.after_flush=1*off->1*kill")
        wait_for("the second worker dies at its failpoint", lambda: not second.alive)
        assert read.claims_ahead() == []
        third = group.start("ingest", "w3")
        wait_for("everything is claimed", lambda: finished(read))
        assert third.terminate() == 0
    assert read.claims_ahead() == []
    assert sorted(read.numbers()) == list(range(RECORDS))
    assert read.marks() == ["caught_up"]
    begun = [run["from"] for run in runs(folder)]
    assert begun[0] == 0 and begun[1] == halfway and begun == sorted(begun)
    assert set(begun) <= {0, *map(done, read.checkpoints())}, "only a stored STATE is begun from"
    wait_for("no tap is left", lambda: not any(alive(run["pid"]) for run in runs(folder)), 20)
    assert not [run["folder"] for run in runs(folder) if Path(run["folder"]).exists()]


def kill(worker: Worker, folder: Path, read: Read, after: int) -> None:
    """kill -9 once so many checkpoints claim something; its tap must end, too."""

    def works() -> bool:
        assert worker.alive, worker.log()
        return sum(done(checkpoint) > 0 for checkpoint in read.checkpoints()) >= after

    wait_for("something is claimed", works)
    worker.kill()
    last = runs(folder)[-1]["pid"]
    wait_for("the tap of the killed worker ends", lambda: not alive(last), 20)


def finished(read: Read) -> bool:
    newest = read.checkpoints()[-1].plans["singer"]
    return newest.walk is None and newest.polled_at is not None


def test_a_worker_that_is_stopped_ends_its_tap(lane: Lane, tmp_path: Path) -> None:
    """A stop does not wait for a tap that says nothing."""
    settings = with_topics(small_settings(lane))
    traces = tmp_path / "traces"
    traces.mkdir()
    config = {"faults": {"14": "hang"}, "traces": str(traces), "again": True}
    folder = definitions(tmp_path, **config)
    environment = {
        **lane.environment,
        "GAPLESS_DEFINITIONS": str(folder),
        "GAPLESS_PARTITIONS": "1",
        "GAPLESS_SESSION_TIMEOUT_MS": "1000",
    }
    with workers(environment, tmp_path) as group:
        worker = group.start("ingest", "w1")
        wait_for("the tap hangs", (traces / "hanging").exists)
        assert worker.terminate(timeout_s=15) == 0
    [run] = runs(folder)
    assert not alive(run["pid"])
    assert not Path(run["folder"]).exists()
    read = Read(settings)
    assert read.claims_ahead() == []
    assert all(checkpoint.blocked is None for checkpoint in read.checkpoints())

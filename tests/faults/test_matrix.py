"""Every failpoint × {kill -9, frozen past the lease, exception}, judged by the oracle.

One lane per failpoint: the three deaths follow each other on the same log and tables, so each
also starts from what the one before left behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.failpoints import APPLY, INGEST
from tests.faults.scene import Lane, Scene, scene
from tests.oracle import log
from tests.workers import Worker, wait_for

ACTIONS = ("kill", "stop", "raise")
# These are passed once per take-over, so the first pass must be the one that dies.
AT_TAKE_OVER = {
    "ingest.before_fence",
    "ingest.after_fence",
    "ingest.after_restore",
    "apply.after_claim",
}
# A transaction of its own after a snapshot: rare, so the first one must be the one that dies.
RARE = {"ingest.before_tombstones"}

pytestmark = pytest.mark.timeout(240)


def rule(failpoint: str, action: str) -> str:
    passes = 0 if failpoint in AT_TAKE_OVER | RARE else 3
    return f"{failpoint}={passes}*off->1*{action}" if passes else f"{failpoint}=1*{action}"


def written_by(at: Scene) -> dict[int, str]:
    """Which worker wrote the newest checkpoint of each partition."""
    topic = f"{at.lane.prefix}checkpoints"
    return {r.partition: r.value["worker"] for r in log.read(at.lane.kafka, topic)}


def claimed_by(at: Scene) -> dict[int, str]:
    rows = at.sink.rows("SELECT partition, owner FROM gapless.position WHERE pipeline = 'live'")
    return {row["partition"]: row["owner"] for row in rows}


def owned(at: Scene, stage: str) -> dict[int, str]:
    return written_by(at) if stage == "ingest" else claimed_by(at)


def die(at: Scene, stage: str, failpoint: str, action: str) -> None:
    """One worker meets the failpoint; another one takes over; both checkpoints stay true."""
    victim = at.workers.start(stage, f"{stage}-{action}", rule(failpoint, action))
    wait_for(f"{failpoint} was hit", victim.hits, 60)
    if action == "kill":
        wait_for("the victim is gone", lambda: not victim.alive, 10)
    heir = at.workers.start(stage, f"{stage}-after-{action}")
    wait_for("the heir works", lambda: heir.name in owned(at, stage).values(), 60)
    if action == "stop":
        wait_for("the heir has all", lambda: set(owned(at, stage).values()) == {heir.name}, 60)
        at.judge_live()
        victim.thaw()
        wait_for("the victim works again", lambda: victim.name in owned(at, stage).values(), 60)
    at.judge_live()
    gone(victim)
    wait_for("the heir has all", lambda: set(owned(at, stage).values()) == {heir.name}, 60)
    at.judge_live()
    gone(heir)


def gone(worker: Worker) -> None:
    if worker.alive:
        worker.kill()


def through(at: Scene, stage: str, failpoint: str) -> None:
    other = "apply" if stage == "ingest" else "ingest"
    at.workers.start(other, f"{other}-steady")
    for action in ACTIONS:
        die(at, stage, failpoint, action)
    at.workers.start(stage, f"{stage}-last")
    at.judge_final()


@pytest.mark.parametrize("failpoint", INGEST)
def test_ingest_dies(failpoint: str, lane: Lane, tmp_path: Path) -> None:
    with scene(lane, tmp_path, rate=20) as at:
        through(at, "ingest", failpoint)


@pytest.mark.parametrize("failpoint", [name for name in APPLY if name.startswith("apply.")])
def test_apply_dies(failpoint: str, lane: Lane, tmp_path: Path) -> None:
    with scene(lane, tmp_path, rate=20) as at:
        through(at, "apply", failpoint)

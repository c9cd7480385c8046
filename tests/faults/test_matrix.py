"""Every failpoint × {kill -9, frozen past the lease, exception}, judged by the oracle.

One lane for two failpoints: the six deaths follow each other on the same log and tables, so each
also starts from what the one before left behind.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.failpoints import APPLY, INGEST
from tests.faults.scene import Lane, Scene, scene
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

pytestmark = pytest.mark.timeout(400)


def rule(failpoint: str, action: str) -> str:
    passes = 0 if failpoint in AT_TAKE_OVER | RARE else 3
    return f"{failpoint}={passes}*off->1*{action}" if passes else f"{failpoint}=1*{action}"


def applied_by(at: Scene) -> dict[int, tuple[str, int]]:
    """For each log partition, who holds the claim, and when it last applied (microseconds)."""
    rows = at.sink.rows(
        "SELECT partition, owner, (extract(epoch FROM checkpointed_at) * 1e6)::bigint AS at "
        "FROM gapless.position WHERE pipeline = 'live'"
    )
    return {row["partition"]: (row["owner"], row["at"]) for row in rows}


def working(at: Scene, stage: str, since: int) -> list[str]:
    """Who has made something durable since then, one name for each log partition."""
    found = at.written_by() if stage == "ingest" else applied_by(at)
    return [worker for worker, moment in found.values() if moment > since]


def now_us() -> int:
    return time.time_ns() // 1_000


def die(at: Scene, stage: str, failpoint: str, action: str, heir: Worker) -> None:
    """One worker meets the failpoint; the heir takes over; both checkpoints stay true."""
    name = f"{stage}-{failpoint.partition('.')[2].replace('_', '-')}-{action}"
    victim = at.workers.start(stage, name, rule(failpoint, action))
    wait_for(f"{failpoint} was hit", victim.hits, 60)
    hit_at = now_us()
    if action == "stop":
        wait_for("the heir has all", lambda: working(at, stage, hit_at) == [heir.name] * 2, 60)
        at.judge_live()
        victim.thaw()
        woken_at = now_us()
        wait_for("it works again", lambda: victim.name in working(at, stage, woken_at), 60)
    if action == "raise" and victim.alive:
        wait_for("it goes on", lambda: victim.name in working(at, stage, hit_at), 60)
    at.judge_live()
    victim.kill()
    gone_at = now_us()
    wait_for("the heir has all", lambda: working(at, stage, gone_at) == [heir.name] * 2, 60)
    at.judge_live()


def through(at: Scene, stage: str, failpoints: Sequence[str]) -> None:
    other = "apply" if stage == "ingest" else "ingest"
    at.workers.start(other, f"{other}-steady")
    heir = at.workers.start(stage, f"{stage}-heir")
    for failpoint in failpoints:
        for action in ACTIONS:
            die(at, stage, failpoint, action, heir)
    at.judge_final()


def pairs(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Two by two: to start and to audit a lane takes as long as to die there three times."""
    return [tuple(names[at : at + 2]) for at in range(0, len(names), 2)]


def shown(names: Sequence[str]) -> str:
    return "+".join(name.partition(".")[2] for name in names)


@pytest.mark.parametrize("failpoints", pairs(INGEST), ids=shown)
def test_ingest_dies(failpoints: Sequence[str], lane: Lane, tmp_path: Path) -> None:
    with scene(lane, tmp_path, rate=20) as at:
        through(at, "ingest", failpoints)


@pytest.mark.parametrize("failpoints", pairs(APPLY), ids=shown)
def test_apply_dies(failpoints: Sequence[str], lane: Lane, tmp_path: Path) -> None:
    with scene(lane, tmp_path, rate=20) as at:
        through(at, "apply", failpoints)

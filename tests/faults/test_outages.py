"""Servers that go away and workers that share the work: the stages wait, go on, and skip nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.stack import Stack, running
from tests.faults.scene import Lane, Scene, scene
from tests.workers import Worker, wait_for

pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True)
class OwnLane:
    """The whole of a private stack as a lane."""

    kafka: str
    postgres: str
    prefix: str
    environment: dict[str, str]


def lane_of(stack: Stack) -> OwnLane:
    addresses = running(stack.folder)
    assert addresses is not None
    environment = {
        "GAPLESS_KAFKA": addresses.kafka,
        "GAPLESS_POSTGRES": addresses.postgres,
        "GAPLESS_PREFIX": "own.",
    }
    return OwnLane(addresses.kafka, addresses.postgres, "own.", environment)


def log_end(at: Scene) -> int:
    return sum(at.ends().values())


def started(at: Scene, *names: str) -> list[Worker]:
    return [at.workers.start(name.split("-")[0], name) for name in names]


def test_postgres_is_down_for_a_while(own_stack: Stack, tmp_path: Path) -> None:
    """Ingest needs the source and Kafka only; apply pauses, and sends no record to quarantine."""
    with scene(lane_of(own_stack), tmp_path, rate=20) as at:
        _, apply = started(at, "ingest-1", "apply-1")
        wait_for("rows arrive", lambda: len(at.sink.table("accounts")) > 50, 60)
        own_stack.postgres.kill()
        before = log_end(at)
        wait_for("pages keep landing", lambda: log_end(at) > before + 20, 60)
        assert apply.alive, apply.log()
        status = at.workers.run("status")
        assert "postgres" in (status.stdout + status.stderr).lower()
        own_stack.postgres.start()
        at.judge_final()
        assert apply.alive, apply.log()
        assert not at.sink.rows("SELECT 1 FROM gapless.exception")


def test_kafka_is_killed_and_comes_back(own_stack: Stack, tmp_path: Path) -> None:
    """Workers neither end nor guess: what was unclear is read from the log once it answers."""
    with scene(lane_of(own_stack), tmp_path, rate=20) as at:
        crew = started(at, "ingest-1", "apply-1")
        wait_for("rows arrive", lambda: len(at.sink.table("accounts")) > 50, 60)
        own_stack.kafka.kill()
        at.provider.wait_written(at.provider_written() + 40)
        own_stack.kafka.start()
        at.judge_final(120)
        assert all(worker.alive for worker in crew), at.workers.logs()


def test_two_of_each_and_one_of_each_is_killed(lane: Lane, tmp_path: Path) -> None:
    with scene(lane, tmp_path, rate=20, partitions=4) as at:
        crew = started(at, "ingest-1", "ingest-2", "apply-1", "apply-2")
        wait_for("both apply", lambda: owners(at) == {"apply-1", "apply-2"}, 60)
        wait_for("rows arrive", lambda: len(at.sink.table("accounts")) > 50, 60)
        crew[0].kill()
        crew[2].kill()
        wait_for("the others have it all", lambda: owners(at) == {"apply-2"}, 60)
        at.judge_live()
        at.judge_final()
        assert all(worker.terminate() == 0 for worker in (crew[1], crew[3]))


def owners(at: Scene) -> set[str]:
    rows = at.sink.rows("SELECT owner FROM gapless.position WHERE pipeline = 'live'")
    return {row["owner"] for row in rows}

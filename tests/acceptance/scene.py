"""One lane, one foreign server that is written to, workers that are killed, and the judge."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.writing import Writer
from tests.conftest import Lane
from tests.oracle import log
from tests.oracle.judge import Judge, Upstream, Watched
from tests.oracle.sink import Sink
from tests.workers import Worker, Workers, wait_for, workers

# Where a worker dies by its own hand, so that some deaths surely fall into the middle of a page.
DEATHS = {
    "ingest": ("ingest.between_pages", "ingest.after_flush", "ingest.after_checkpoints"),
    "apply": ("apply.after_first_upsert", "apply.after_ledger", "apply.after_commit"),
}


@dataclass(slots=True)
class Scene:
    """Ready to start workers: topics are there, tables are migrated, revisions are watched."""

    lane: Lane
    upstream: Upstream
    workers: Workers
    sink: Sink
    judge: Judge
    running: dict[str, Worker] = field(default_factory=dict)
    deaths: int = 0

    def start(self, stage: str, failpoints: str = "") -> None:
        """The only worker of its stage."""
        name = f"{stage}-{self.deaths}"
        self.running[stage] = self.workers.start(stage, name, failpoints)

    def kill_again_and_again(
        self, rounds: int, seed: int, deaths: Mapping[str, tuple[str, ...]] = DEATHS
    ) -> None:
        """kill -9 of both stages in turn: at any moment, and at a named one in each second round."""
        chance = random.Random(seed)
        for number in range(rounds):
            for stage, names in deaths.items():
                self.wait_for_work(stage)
                time.sleep(chance.uniform(0, 0.6))
                self.kill(stage)
                name = names[number // 2 % len(names)]
                self.start(stage, f"{name}=2*off->1*kill" if number % 2 == 0 else "")
            for stage in deaths if number % 2 == 0 else ():
                self._wait_for_death(stage)
                self.start(stage)
        for stage in deaths:
            self.wait_for_work(stage)

    def _wait_for_death(self, stage: str) -> None:
        victim = self.running[stage]
        wait_for(f"{victim.name} dies at its failpoint", lambda: not victim.alive, 60)
        assert victim.hits()
        self.kill(stage)

    def kill(self, stage: str) -> None:
        """kill -9; another worker may be started then."""
        self.running[stage].kill()
        self.deaths += 1

    def wait_for_work(self, stage: str) -> None:
        """Until the running worker of a stage has made something durable."""
        worker = self.running[stage]

        def works() -> bool:
            assert worker.alive, f"{worker.name} ended by itself"
            return worker.name in self._owners(stage)

        wait_for(f"{worker.name} works", works, 60)

    def _owners(self, stage: str) -> set[str]:
        if stage == "apply":
            return {row["owner"] for row in self.sink.rows("SELECT owner FROM gapless.position")}
        topic = f"{self.lane.prefix}checkpoints"
        newest = {r.partition: r.value["worker"] for r in log.read(self.lane.kafka, topic)}
        return set(newest.values())

    def judge_final(self, timeout_s: float = 120) -> None:
        """Drain, judge record by record, and let the product audit itself."""
        give_up_at = time.monotonic() + timeout_s
        while not self.judge.drained():
            self._all_alive()
            assert time.monotonic() < give_up_at, "\n".join(self.differences()[:20])
            time.sleep(0.5)
        faults = self.judge.final()
        assert not faults, "\n".join(faults[:20])
        audit = self.workers.run("audit --json")
        assert audit.returncode == 0, audit.stdout + audit.stderr

    def _all_alive(self) -> None:
        for worker in self.running.values():
            assert worker.alive, f"{worker.name} ended by itself"

    def differences(self) -> list[str]:
        return [d for watched in self.judge.watched for d in self.judge.differences(watched)]

    def pages(self, plan: str | None = None) -> list[log.Raw]:
        """All pages of the log, or those that one plan fetched."""
        topic = f"{self.lane.prefix}observations"
        pages = (r for r in log.read(self.lane.kafka, topic) if r.type == "Observation")
        return [page for page in pages if plan in (None, page.value["plan"])]

    def checkpoint(self, partition_id: str) -> dict[str, Any] | None:
        """The newest source checkpoint of a partition id."""
        last = None
        for record in log.read(self.lane.kafka, f"{self.lane.prefix}checkpoints"):
            if record.key == partition_id:
                last = record.value
        return last


@contextmanager
def scene(
    lane: Lane,
    folder: Path,
    upstream: Upstream,
    watched: tuple[Watched, ...],
    definitions: Path,
    **environment: str,
) -> Iterator[Scene]:
    """A scene on a lane; quick time-outs, so that a take-over needs about a second."""
    full = {
        **lane.environment,
        "GAPLESS_DEFINITIONS": str(definitions),
        "GAPLESS_PARTITIONS": "2",
        "GAPLESS_SESSION_TIMEOUT_MS": "1000",
        "GAPLESS_TRANSACTION_TIMEOUT_MS": "6000",
        "GAPLESS_MESSAGE_TIMEOUT_MS": "3000",
        "GAPLESS_LINGER_S": "0.02",
        **environment,
    }
    with workers(full, folder, installed=True) as group:
        for verb in ("topics", "migrate"):
            done = group.run(verb)
            assert done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}"
        sink = Sink(lane.postgres)
        judge = Judge(lane.kafka, lane.prefix, sink, upstream, watched)
        yield Scene(lane, upstream, group, sink, judge)


def definitions_with(folder: Path, here: Path, secrets: Mapping[str, str]) -> Path:
    """A copy of the definitions in `here` that may be changed, with files that hold secrets."""
    copy = folder / "definitions"
    for name in ("sources", "mappings", "tenants"):
        if (here / name).is_dir():
            shutil.copytree(here / name, copy / name)
    (copy / "secrets").mkdir()
    for name, secret in secrets.items():
        (copy / "secrets" / name).write_text(secret + "\n")
    return copy


@contextmanager
def writing(*writers: Writer) -> Iterator[None]:
    """Clients that write meanwhile; afterwards each has written something and met no error."""
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()
    assert all(writer.count for writer in writers)


def differing(pairs: Mapping[str, tuple[object, object]]) -> str | None:
    """The first column whose value in the row is not what the provider has."""
    for name, (stored, wanted) in pairs.items():
        if stored != wanted:
            return f"{name} is {stored!r}, the provider has {wanted!r}"
    return None

"""What a benchmark runs on: real servers with fsync, topics and tables, and the pages in the log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Producer

from ops.stack import Addresses
from schemas import codec, keys
from schemas.log import config
from schemas.records import Mark, Observation
from schemas.routing import route
from schemas.settings import Settings
from tests.workers import Workers

PARTITIONS = 4
_COMMIT_PAGES = 50


@dataclass(frozen=True, slots=True)
class Lane:
    """One prefix of topics on the benchmark's servers, with a database; `folder` is for outputs."""

    settings: Settings
    workers: Workers
    folder: Path

    def sql(self, text: str) -> list[tuple[object, ...]]:
        """Runs one statement of the benchmark itself; rows if it gives some."""
        with psycopg.connect(self.settings.postgres, autocommit=True) as connection:
            done = connection.execute(text.encode())
            return done.fetchall() if done.description else []


def lane(
    servers: Addresses,
    folder: Path,
    prefix: str,
    definitions: Path,
    *,
    extra: Mapping[str, str] | None = None,
) -> Lane:
    """Makes topics and tables with the product's own verbs."""
    environment = {
        "GAPLESS_KAFKA": servers.kafka,
        "GAPLESS_POSTGRES": servers.postgres,
        "GAPLESS_PREFIX": prefix,
        "GAPLESS_PARTITIONS": str(PARTITIONS),
        "GAPLESS_DEFINITIONS": str(definitions),
        **(extra or {}),
    }
    settings = Settings(
        kafka=servers.kafka, postgres=servers.postgres, prefix=prefix, partitions=PARTITIONS,
        definitions=definitions, worker="bench",
    )  # fmt: skip
    workers = Workers(environment, folder, installed=True)
    for verb in ("topics", "migrate"):
        done = workers.run(verb)
        if done.returncode != 0:
            raise SystemExit(f"gapless {verb}: {done.stdout}{done.stderr}")
    return Lane(settings, workers, folder)


def preload(settings: Settings, records: Iterable[Observation | Mark]) -> int:
    """Writes the log as ingest does, in transactions of many pages; how many records of it."""
    producer = Producer(config.transactional(settings, 0))
    producer.init_transactions(30)
    written = 0
    producer.begin_transaction()
    for one in records:
        key = keys.page_key(one) if isinstance(one, Observation) else keys.mark_key(one)
        producer.produce(
            settings.observations, codec.encode(one), key,
            route(one.partition_id, settings.partitions),
        )  # fmt: skip
        written += 1
        if written % _COMMIT_PAGES == 0:
            _commit(producer)
            producer.begin_transaction()
    _commit(producer)
    return written


def _commit(producer: Producer) -> None:
    if producer.flush(60) != 0:
        raise SystemExit("the log did not take the pages within 60 s")
    producer.commit_transaction(60)


def peak_mb(pid: int) -> float:
    """The largest resident memory that a process ever had, in 10⁶ bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1_000_000
    raise ValueError(f"no peak of process {pid}")


def cpu_s(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

"""One lane with a provider, topics, tables, workers and the judge: what every fault test needs.

Everything is real: processes, Kafka, Postgres, HTTP. The judge imports no product code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.oracle import log
from tests.oracle.judge import Judge, Watched
from tests.oracle.sink import Row, Sink
from tests.upstream import Provider
from tests.workers import Workers, wait_for, workers

DEFINITIONS = Path(__file__).parent / "definitions"
TENANTS = ("north", "south")


class Lane(Protocol):
    """A topic prefix and a database of one's own."""

    @property
    def kafka(self) -> str: ...
    @property
    def postgres(self) -> str: ...
    @property
    def prefix(self) -> str: ...
    @property
    def environment(self) -> dict[str, str]: ...


def account(record: dict[str, Any]) -> tuple[str, Any]:
    return record["id"], record["version"]


def event(record: dict[str, Any]) -> tuple[str, Any]:
    return record["event_id"], record["received_at"]


def same_account(record: dict[str, Any], row: Row) -> str | None:
    if row["source_revision"] != record["version"]:
        return f"revision {row['source_revision']}, the provider has {record['version']}"
    for name in ("external_id", "lifecycle", "plan", "email"):
        if row[name] != record[name]:
            return f"{name} {row[name]!r}, the provider has {record[name]!r}"
    if str(row["balance"]) != record["balance"]:
        return f"balance {row['balance']}, the provider has {record['balance']}"
    return None


def watched_streams(tenants: tuple[str, ...] = TENANTS) -> tuple[Watched, ...]:
    accounts = [
        Watched(
            partition_id=f"crm/{stream}/{tenant}",
            tenant=tenant,
            collection="accounts",
            table=stream,
            entity=account,
            row_id=lambda row: str(row["id"]),
            settle_s=0.5,
            deletes=True,
            compare=same_account,
        )
        for tenant in tenants
        for stream in ("accounts", "feed")
    ]
    events = [
        Watched(
            partition_id=f"crm/events/{tenant}",
            tenant=tenant,
            collection="events",
            table="events",
            entity=event,
            row_id=lambda row: str(row["event_id"]),
            settle_s=0.5,
        )
        for tenant in tenants
    ]
    return (*accounts, *events)


@dataclass(slots=True)
class Scene:
    """Ready to start workers: topics are there, tables are migrated, revisions are watched."""

    lane: Lane
    provider: Provider
    workers: Workers
    sink: Sink
    judge: Judge
    checkpoints: log.Tail
    _written: dict[int, tuple[str, int]] = field(default_factory=dict)

    def written_by(self) -> dict[int, tuple[str, int]]:
        """For each log partition, who wrote the newest checkpoint, and when (microseconds)."""
        for record in self.checkpoints.news():
            if record.value:
                found = (record.value["worker"], record.value["written_at"])
                self._written[record.partition] = found
        return self._written

    def judge_live(self) -> None:
        faults = self.judge.live()
        assert not faults, "\n".join(faults[:20])

    def settle(self, timeout_s: float = 60) -> None:
        """Stop the traffic and wait until everything that was written has become rows."""
        self.provider.traffic(0)
        wait_for(
            "every fact of the provider has become a row",
            self.judge.drained,
            timeout_s,
            every_s=0.4,
        )

    def judge_final(self, timeout_s: float = 60) -> None:
        """Drain, judge by the provider's ledger, and let the product audit itself."""
        self.settle(timeout_s)
        faults = self.judge.final()
        assert not faults, "\n".join(faults[:20])
        audit = self.workers.run("audit --json")
        assert audit.returncode == 0, audit.stdout + audit.stderr + self.log_shown()

    def log_shown(self) -> str:
        """Every record of the observation topic by its key, and whether readers see it: evidence."""
        topic = f"{self.lane.prefix}observations"
        seen = {(r.partition, r.offset) for r in log.read(self.lane.kafka, topic)}
        return "\n".join(
            f"{r.partition}/{r.offset} {r.key} {r.type or 'tombstone'}"
            + ("" if (r.partition, r.offset) in seen else " (not committed)")
            for r in log.read(self.lane.kafka, topic, committed=False)
        )

    def ends(self) -> dict[int, int]:
        """The last committed offset of each partition of the observation topic, plus one."""
        found: dict[int, int] = {}
        for record in log.read(self.lane.kafka, f"{self.lane.prefix}observations"):
            found[record.partition] = record.offset + 1
        return found

    def pages(self, partition_id: str) -> list[log.Raw]:
        return [
            record
            for record in log.read(self.lane.kafka, f"{self.lane.prefix}observations")
            if record.type == "Observation" and record.value["partition_id"] == partition_id
        ]

    def checkpoint(self, partition_id: str) -> dict[str, Any] | None:
        last = None
        for record in log.read(self.lane.kafka, f"{self.lane.prefix}checkpoints"):
            if record.key == partition_id:
                last = record.value
        return last

    def provider_written(self) -> int:
        """Writes of the provider's traffic so far."""
        return int(self.provider.traffic(20)["written"])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.workers.run("status --json").stdout)
        return found


@contextmanager
def scene(
    lane: Lane,
    folder: Path,
    *,
    accounts: int = 120,
    events: int = 60,
    rate: float = 0.0,
    partitions: int = 2,
    definitions: Path = DEFINITIONS,
    tables: tuple[str, ...] = ("accounts", "feed", "events"),
    watched: tuple[Watched, ...] | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[Scene]:
    """A scene on a lane; quick time-outs, so that a take-over needs about a second."""
    with Provider.start(
        tenants=2, accounts=accounts, events=events, rate=rate, history_s=6 * 3600
    ) as provider:
        environment = {
            **lane.environment,
            "CRM_URL": provider.url,
            "GAPLESS_DEFINITIONS": str(definitions),
            "GAPLESS_PARTITIONS": str(partitions),
            "GAPLESS_SESSION_TIMEOUT_MS": "1000",
            "GAPLESS_TRANSACTION_TIMEOUT_MS": "6000",
            "GAPLESS_MESSAGE_TIMEOUT_MS": "3000",
            "GAPLESS_LINGER_S": "0.02",
            **(extra or {}),
        }
        with workers(environment, folder) as group:
            for verb in ("topics", "migrate"):
                done = group.run(verb)
                assert done.returncode == 0, f"{verb}: {done.stdout}{done.stderr}"
            sink = Sink(lane.postgres)
            for table in tables:
                sink.watch_revisions(table)
            judge = Judge(lane.kafka, lane.prefix, sink, provider, watched or watched_streams())
            tail = log.Tail(lane.kafka, f"{lane.prefix}checkpoints")
            with closing(tail):
                yield Scene(lane, provider, group, sink, judge, tail)

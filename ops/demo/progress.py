"""How far both stages are, read from the log and from Postgres while they work.

Reads only what is durable: it would say the same if every worker were dead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from psycopg import sql

from schemas import codec
from schemas.keys import PageKey, parse_key
from schemas.log import config
from schemas.records import SourceCheckpoint
from schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class Progress:
    """One look. Offsets are sums over partitions; `lag_s` in seconds, None before there is any."""

    pages: int
    log_end: int
    complete_before: str | None
    checkpoints: int
    next_to_apply: int
    applied_pages: int
    records: int
    rows: int
    lag_s: float | None


@dataclass
class Tail:
    """Follows both log topics on a thread: counts pages, keeps the newest checkpoints."""

    settings: Settings
    pages: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    checkpoints: dict[str, SourceCheckpoint] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _follow(self) -> None:
        consumer = Consumer(
            {**config.reader(self.settings, "demo"), "auto.offset.reset": "earliest"}
        )
        topics = (self.settings.observations, self.settings.checkpoints)
        consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in topics
                for partition in range(self.settings.partitions)
            ]
        )
        while not self._stop.is_set():
            for message in consumer.consume(500, 0.2):
                key, value, offset = message.key(), message.value(), message.offset()
                if message.error() is not None or not isinstance(key, bytes) or offset is None:
                    continue
                if message.topic() == self.settings.observations:
                    self._page(message.partition() or 0, offset, key.decode())
                elif isinstance(value, bytes):
                    self._checkpoint(value)
        consumer.close()

    def _page(self, partition: int, offset: int, key: str) -> None:
        self.ends[partition] = offset + 1
        if isinstance(parse_key(key), PageKey):
            self.pages += 1

    def _checkpoint(self, value: bytes) -> None:
        record = codec.decode(value)
        if isinstance(record, SourceCheckpoint):
            self.checkpoints[record.partition_id] = record


def look(tail: Tail, postgres: str, tables: tuple[str, ...], now: datetime) -> Progress:
    """The figures of this moment; Postgres must answer."""
    with psycopg.connect(postgres) as connection:
        applied = connection.execute(
            "SELECT coalesce(sum(next_offset_to_apply), 0)::bigint FROM gapless.position "
            "WHERE pipeline = 'live'"
        ).fetchone()
        ledger = connection.execute(
            'SELECT count(DISTINCT (partition, "offset")), coalesce(sum(records), 0)::bigint '
            "FROM gapless.page_ledger"
        ).fetchone()
        rows = 0
        for table in tables:
            found = connection.execute(
                sql.SQL("SELECT count(*) FROM {} WHERE NOT _deleted").format(sql.Identifier(table))
            ).fetchone()
            rows += found[0] if found else 0
    assert applied is not None
    assert ledger is not None
    oldest = oldest_claim(list(tail.checkpoints.values()))
    return Progress(
        pages=tail.pages,
        log_end=sum(tail.ends.values()),
        complete_before=oldest,
        checkpoints=len(tail.checkpoints),
        next_to_apply=applied[0],
        applied_pages=ledger[0],
        records=ledger[1],
        rows=rows,
        lag_s=(now - datetime.fromisoformat(oldest)).total_seconds() if oldest else None,
    )


def oldest_claim(checkpoints: list[SourceCheckpoint]) -> str | None:
    """The smallest `complete_before` of all: up to there every interval plan is complete."""
    claims = [
        plan.complete_before
        for checkpoint in checkpoints
        for plan in checkpoint.plans.values()
        if plan.complete_before is not None
    ]
    return min(claims, default=None)


def utc_now() -> datetime:
    return datetime.now(UTC)

"""Settings of every process, from `GAPLESS_*` environment variables; the command line overrides.

Holds addresses and limits of this deployment; what is asked of an API stands in definitions.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One deployment. Durations in seconds or milliseconds as their names say, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="GAPLESS_", extra="ignore", frozen=True)

    kafka: str = Field("localhost:9092", description="bootstrap servers, host:port[,host:port]")
    kafka_config: Path | None = Field(
        None,
        description="file of librdkafka properties for security, `name=value` lines",
    )
    postgres: str = Field(
        "postgresql://localhost:5432/gapless",
        description="connection string; a password may stand in PGPASSWORD",
    )
    prefix: str = Field(
        "gapless.",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="of topics, groups and transactional ids",
    )
    partitions: int = Field(
        8, ge=1, le=1024, description="of the two log topics; fixed at creation"
    )
    replication: int = Field(
        0,
        ge=0,
        description="replicas of topics; 0: three where there are three brokers or more, else the "
        "broker's default. With three, two must hold a record before it counts",
    )
    record_max_bytes: int = Field(1_000_000, ge=10_000, description="largest record of the log")
    definitions: Path = Field(Path(), description="folder that holds sources/ and mappings/")
    worker: str = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    group_instance: str | None = Field(None, description="static group membership of this worker")
    session_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        description="a worker that is silent this long loses its partitions",
    )
    transaction_timeout_ms: int = Field(60_000, ge=5_000)
    message_timeout_ms: int = Field(
        30_000, ge=2_000, description="how long Kafka, or a receiver of events, may take"
    )
    accept_unverified_transactions: bool = Field(
        False,
        description="risk: brokers that do not verify transactions may publish pages of a dead worker",
    )
    linger_s: float = Field(0.05, ge=0, description="how long a committer waits for more pages")
    pages_in_flight: int = Field(
        8, ge=1, description="per partition id, fetched and not yet durable"
    )
    buffer_bytes: int = Field(
        48_000_000, ge=1_000_000, description="pages in memory, whole process"
    )
    tick_s: float = Field(8 * 3600, gt=0, description="interval of tick records per log partition")
    batch_records: int = Field(5_000, ge=1, description="records per transaction of apply")
    quarantine_copies: bool = Field(
        True, description="quarantined records are copied to a topic, once gapless relay runs"
    )
    outbox_keep_s: float = Field(
        7 * 86_400, ge=0, description="how long a sent event stays in the outbox; 0: for ever"
    )
    metrics_port: int = Field(
        0, ge=0, le=65_535, description="of Prometheus metrics; 0 turns them off"
    )
    log_json: bool = Field(False, description="structured logs as JSON lines")
    failpoints: str = Field("", description="for tests: name=action;…")
    mark_deadline_s: float = Field(
        900, gt=0, description="a mark pending longer is a suspected gap"
    )
    warn_share: float = Field(0.7, gt=0, le=1, description="share of a horizon at which it warns")

    @property
    def observations(self) -> str:
        return f"{self.prefix}observations"

    @property
    def checkpoints(self) -> str:
        return f"{self.prefix}checkpoints"

    @property
    def control(self) -> str:
        return f"{self.prefix}control"

    @property
    def events(self) -> str:
        return f"{self.prefix}events"

    @property
    def quarantine(self) -> str:
        return f"{self.prefix}quarantine"

    @property
    def ingest_group(self) -> str:
        return f"{self.prefix}ingest"

    @property
    def apply_group(self) -> str:
        return f"{self.prefix}apply"

    def transactional_id(self, partition: int) -> str:
        """The fence of one log partition: whoever initialised it last is its only writer."""
        return f"{self.prefix}ingest.{partition}"

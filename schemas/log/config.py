"""librdkafka properties of every client of the deployment, built in one place.

Security comes from one properties file; what the protocol's safety rests on cannot be overridden.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from schemas.log.client_log import CLIENT_LOG, ClientLog
from schemas.settings import Settings

Properties = dict[str, str | int | float | bool | ClientLog]
AdminProperties = dict[str, str | int | float | bool]
_CRITICAL = 2
"""Of syslog. A client that is not polled keeps what it says in memory, and a lost broker is told
every second: so it says only what ends it. Its calls raise the rest."""


class BadKafkaConfig(ValueError):
    """The properties file cannot be used; the message names file and line."""


_PROTECTED = frozenset(
    {
        "transactional.id",
        "isolation.level",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.idempotence",
        "acks",
        "group.id",
    }
)


def read_properties(file: Path) -> Properties:
    """`name=value` lines; `#` begins a comment line."""
    found: Properties = {}
    try:
        content = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKafkaConfig(f"{file}: cannot be read: {error}") from error
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator:
            raise BadKafkaConfig(
                f"{file}:{number}: expected name=value, as in sasl.mechanism=PLAIN"
            )
        if name in _PROTECTED:
            raise BadKafkaConfig(f"{file}:{number}: {name} is set by Gapless and cannot be changed")
        found[name] = value.strip()
    return found


def client(settings: Settings, role: str) -> Properties:
    """What every client has; `role` shows in the broker's logs as the client id.

    It must be polled: that is when its own log lines come out.
    """
    extra = read_properties(settings.kafka_config) if settings.kafka_config else {}
    return {
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2_000,
        "socket.timeout.ms": 10_000,
        "allow.auto.create.topics": False,
        "log.connection.close": False,
        "logger": CLIENT_LOG,
        **extra,
        "bootstrap.servers": settings.kafka,
        "client.id": f"{settings.prefix}{role}.{settings.worker}",
    }


def admin(settings: Settings, role: str) -> AdminProperties:
    """A client that is asked and never polled; what goes wrong comes as an exception."""
    properties = {**client(settings, role), "log_level": _CRITICAL}
    return cast(AdminProperties, properties)  # its type does not name the logger, its parser does


def transactional(settings: Settings, partition: int) -> Properties:
    """The one producer of log partition `partition`.

    The broker's transaction time-out exceeds the delivery and socket time-outs, or a transaction
    could be timed out while its last records are still being retried.
    """
    message_ms = min(settings.message_timeout_ms, settings.transaction_timeout_ms // 2)
    return {
        **client(settings, f"ingest-{partition}"),
        "log_level": _CRITICAL,  # while it is idle nobody polls it
        "transactional.id": settings.transactional_id(partition),
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "message.timeout.ms": message_ms,
        "socket.timeout.ms": min(10_000, message_ms // 2),
        "linger.ms": 5,
        "compression.type": "lz4",
        "message.max.bytes": settings.record_max_bytes + 100_000,
        "queue.buffering.max.kbytes": 65_536,
        "partitioner": "murmur2",
    }


def reader(settings: Settings, role: str) -> Properties:
    """A consumer assigned by hand: committed records only, and never a guessed position."""
    return {
        **client(settings, role),
        "group.id": f"{settings.prefix}unsubscribed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": False,
        "fetch.queue.backoff.ms": 10,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        # An answer is unpacked as a whole, to many times its size: together these bound the memory.
        "queued.max.messages.kbytes": 16_384,
        "fetch.max.bytes": 4_000_000,
        "fetch.message.max.bytes": 1_000_000,
    }


def member(settings: Settings, group: str, role: str) -> Properties:
    """Membership only: this consumer stays paused for ever and never decides a position."""
    found: Properties = {
        **client(settings, role),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": settings.session_timeout_ms,
        "heartbeat.interval.ms": max(100, settings.session_timeout_ms // 5),
        "max.poll.interval.ms": max(300_000, settings.session_timeout_ms),
        "queued.max.messages.kbytes": 1_024,
        "queued.min.messages": 1,
    }
    if settings.group_instance is not None:
        found["group.instance.id"] = settings.group_instance
    return found

"""Whether the log still holds what a position stands on: asked before a partition is read.

Never moves a position. That a record is absent proves nothing (compaction); another record in its
place, an end below the position, or another topic id prove that the log was cut or made anew.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import structlog
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from apply.claim import Position
from apply.inbox import CheckFailed, Inbox, LogChecked, LogFault, ReaderFailed
from schemas.log import config
from schemas.log.reader import LogUnavailable, OffsetGone, PartitionReader
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_TIMEOUT_S = 10.0
_SETTLE_S = 5.0
"""A new leader may show an end that is too low for a moment; only one that stays is believed."""


def topic_id(
    settings: Settings, timeout_s: float = _TIMEOUT_S, admin: AdminClient | None = None
) -> str:
    """The id that Kafka gave the observation topic; another one is another topic.

    Raises LogUnavailable, also while the topic does not exist.
    """
    admin = admin or AdminClient(config.admin(settings, "apply-topic"))
    asked = TopicCollection([settings.observations])
    try:
        future = admin.describe_topics(asked, request_timeout=timeout_s)[settings.observations]
        return str(future.result(timeout_s + 1).topic_id)
    except (KafkaException, TimeoutError) as error:
        raise LogUnavailable(f"topic {settings.observations}: {error}") from error


def check(
    settings: Settings,
    position: Position,
    known_topic_id: str | None,
    found_topic_id: str,
) -> LogChecked | LogFault:
    """What the log says about one position. `known_topic_id` None: nothing was ever applied.

    Raises LogUnavailable.
    """

    def fault(cause: str, detail: str, first_lost: int, first_kept: int) -> LogFault:
        return LogFault(position.partition, position.claim, cause, detail, first_lost, first_kept)

    if known_topic_id is not None and known_topic_id != found_topic_id:
        return fault(
            "topic_recreated",
            f"topic id was {known_topic_id}, is {found_topic_id}",
            position.next_offset,
            0,
        )
    with PartitionReader(
        settings, settings.observations, position.partition, "apply-check"
    ) as reader:
        low, end = reader.low(), _settled_end(reader, position.next_offset)
        if end < position.next_offset:
            detail = f"the log ends at {end}, applied is up to {position.next_offset}"
            return fault("truncated", detail, end, position.next_offset)
        if position.next_offset < low:
            detail = f"offset {position.next_offset} is wanted, the first one kept is {low}"
            return fault("deleted_by_retention", detail, position.next_offset, low)
        other = _other_key(reader, position, low, end)
    if other is not None:
        detail = (
            f"at offset {position.last_offset} stands {other!r}, applied was {position.last_key!r}"
        )
        return fault("truncated", detail, position.last_offset or 0, position.next_offset)
    return LogChecked(
        position.partition,
        position.claim,
        position.next_offset,
        position.generation,
        found_topic_id,
        end,
    )


def _settled_end(reader: PartitionReader, wanted: int) -> int:
    deadline = time.monotonic() + _SETTLE_S
    while True:
        end = reader.stable_end(_TIMEOUT_S)
        if end >= wanted or time.monotonic() > deadline:
            return end
        time.sleep(0.25)


def _other_key(reader: PartitionReader, position: Position, low: int, end: int) -> str | None:
    """The key that stands where the last applied record stood, if it is another one."""
    at = position.last_offset
    if at is None or position.last_key is None or not low <= at < end:
        return None
    try:
        for record in reader.read(at, at + 1, idle_timeout_s=_TIMEOUT_S):
            if record.offset == at and record.key != position.last_key:
                return record.key
    except OffsetGone as error:
        raise LogUnavailable(f"offset {at} went away while it was asked for: {error}") from error
    return None


class Checks:
    """Runs checks beside the writer, which must not wait for Kafka; answers go to the inbox."""

    def __init__(self, settings: Settings, inbox: Inbox) -> None:
        self._settings, self._inbox = settings, inbox
        self._pool = ThreadPoolExecutor(4, "apply-check")
        self._admin = AdminClient(config.admin(settings, "apply-topic"))

    def submit(self, position: Position, known_topic_id: str | None) -> None:
        """Exactly one LogChecked, LogFault or CheckFailed will come for this claim."""
        self._pool.submit(self._run, position, known_topic_id)

    def _run(self, position: Position, known: str | None) -> None:
        try:
            found = topic_id(self._settings, admin=self._admin)
            self._inbox.put_event(check(self._settings, position, known, found))
        except Exception as error:
            _log.warning("log not checked", partition=position.partition, error=str(error))
            self._inbox.put_event(CheckFailed(position, str(error)))

    def look(self, known: frozenset[str]) -> None:
        """A ReaderFailed comes if the topic is another one than those that are read."""
        self._pool.submit(self._look, known)

    def _look(self, known: frozenset[str]) -> None:
        try:
            found = topic_id(self._settings, admin=self._admin)
        except Exception as error:
            _log.debug("topic not looked at", error=str(error))  # the next look may tell
            return
        if known != {found}:
            self._inbox.put_event(ReaderFailed(f"the topic's id is {found} now"))

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

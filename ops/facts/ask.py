"""Ask both sides, and keep the reason where one of them does not answer."""

from __future__ import annotations

from datetime import timedelta

import psycopg
from confluent_kafka import KafkaException
from psycopg import errors

from ops import problems
from ops.facts.deployment import LogFacts, LogWatcher
from ops.facts.log import KafkaUnreachable, TopicsMissing
from ops.facts.sink import SinkFacts, read_sink
from schemas.log.reader import LogUnavailable, OffsetGone
from schemas.settings import Settings

_DAY = timedelta(hours=24)


class Unprepared(str):
    """Why a side that did answer has no facts yet: what it lacks, and the verb that makes it."""

    __slots__ = ()


class Asking:
    """Asks again and again; of the checkpoints only what is new is read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._watcher = LogWatcher(settings)

    def ask(self, *, outcomes: bool) -> tuple[LogFacts | str, SinkFacts | str]:
        """Facts of the log and of Postgres, or in their place why they could not be had: Unprepared
        where that side answered.

        `outcomes`: also count the outcomes of the last 24 hours, which reads the whole ledger.
        Postgres is asked first, so that no applied offset is ahead of the ends.
        """
        sink: SinkFacts | str
        applied: dict[int, int] | None = None
        try:
            sink = read_sink(self._settings.postgres, _DAY if outcomes else None)
        except psycopg.Error as error:
            sink = self._why(error)
        else:
            applied = {
                row["partition"]: int(row["next_offset_to_apply"])
                for row in sink.positions
                if row["pipeline"] == "live"
            }
        try:
            return self._watcher.read(applied), sink
        except (
            KafkaUnreachable,
            TopicsMissing,
            LogUnavailable,
            OffsetGone,
            KafkaException,
        ) as error:
            return self._why(error), sink

    def _why(self, error: Exception) -> str:
        if isinstance(error, TopicsMissing):
            return Unprepared(f"The topics are missing: `gapless topics`.\n{error}")
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            return Unprepared("The tables are missing: `gapless migrate`.")
        if isinstance(error, errors.UndefinedColumn):
            return Unprepared("The tables are of an older version: `gapless migrate`.")
        found = problems.explain(error, self._settings)
        return found.message if found else str(error)

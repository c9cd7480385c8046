"""Numbers of partition ids: looked up once, given out by Postgres, never reused.

Has a connection of its own, opened when an unknown partition id turns up: the reading thread must
not use the writer's. While Postgres is away it waits, as the writer does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import psycopg
import structlog

from apply.faults import sink_fault
from apply.inbox import Stopped
from apply.queries import load
from apply.sink import connect
from schemas.keys import split_partition_id

_log = structlog.get_logger(__name__)
_SQL = load("identities")
_WAIT_S = 1.0


class Identities:
    """Text and log partition of a partition id → its number. Safe between threads."""

    def __init__(self, dsn: str, stop: threading.Event) -> None:
        self._dsn, self._stop = dsn, stop
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def number(self, text: str, partition: int) -> int:
        """The number of a partition id that lives in `partition`. Waits; raises Stopped."""
        found = self._numbers.get(text)
        if found is not None:
            return found
        source, stream, tenant = split_partition_id(text)
        values = {
            "text": text, "source": source, "stream": stream, "tenant": tenant,
            "partition": partition,
        }  # fmt: skip
        while not self._stop.is_set():
            try:
                return self._ask(values)
            except psycopg.Error as error:
                _log.warning("waiting for a partition id", fault=str(sink_fault(error)))
                self._stop.wait(_WAIT_S)
        raise Stopped

    def known(self) -> list[str]:
        """The partition ids that were met."""
        return list(self._numbers)

    def _ask(self, values: Mapping[str, object]) -> int:
        with self._lock, connect(self._dsn, "identities") as connection:
            if not self._numbers:
                self._numbers.update(dict(connection.execute(_SQL["all"]).fetchall()))
            row = connection.execute(_SQL["number"], values).fetchone()
            assert row is not None
            self._numbers[str(values["text"])] = int(row[0])
            return int(row[0])

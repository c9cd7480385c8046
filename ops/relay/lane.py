"""The loop of one way out: lock heads, publish them, mark them, commit. One thread, one connection.

A lane that cannot publish or cannot reach Postgres pauses and says why; it never holds up another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol, cast

import psycopg
import structlog

from apply.link import Link
from apply.sink import Connection
from ops.relay import metrics, outbox
from ops.relay.answers import ReceiverAway, Result
from ops.relay.event import Event
from ops.relay.schedule import Later, Marks, Turn, most, settle
from schemas import failpoints
from schemas.failpoints import Hit

_log = structlog.get_logger(__name__)
_SCAN = 500
_IDLE_S = 0.5
_CONTENDED_S = 0.05
_TROUBLE_S = 2.0


class Way(Protocol):
    """A way out. `mapping`: whose posts it takes; None: all that goes to topics."""

    batch: int

    @property
    def mapping(self) -> str | None: ...
    def prepare(self) -> Result | None: ...
    def publish(self, events: Sequence[Event]) -> dict[int, Result]: ...
    def idle(self) -> None: ...
    def close(self) -> None: ...


class Lane:
    """Publishes round after round. `hold_s`: how long a silent relay may keep keys to itself."""

    def __init__(self, dsn: str, way: Way, *, hold_s: float, hit: Hit = failpoints.none) -> None:
        self._dsn, self._way, self._hold_s, self._hit = dsn, way, hold_s, hit
        self._turn = Turn()
        self._away = 0
        self._link = Link(dsn)
        self._connection: outbox.Connection | None = None
        self._silent_since: float | None = None  # None: it waits for its time, not for Postgres
        self.name = "topics" if way.mapping is None else way.mapping

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Publish until told to stop; `once`: until nothing is eligible, and trouble is raised."""
        while not stop.is_set():
            try:
                with closing(outbox.connect(self._dsn, self._hold_s)) as connection:
                    self._connection = connection
                    self._drain(connection, stop, once=once)
                    if once:
                        return
            except psycopg.Error as error:
                if once or not _passes(error):
                    raise
                self._said(f"Postgres: {str(error).strip()}")
                self._silent_since = None
                stop.wait(_TROUBLE_S)

    def watch(self) -> None:
        """From another thread, now and then: give up a link to Postgres that is dead at both ends."""
        since = self._silent_since
        if since is None or time.monotonic() - since <= self._hold_s:
            self._link.answered()
        # the two kinds of rows are one to whoever only asks for the backend
        elif self._link.cut_if_dead(cast("Connection | None", self._connection)):
            _log.warning("the link to Postgres is dead at both living ends", lane=self.name)

    def _drain(self, connection: outbox.Connection, stop: threading.Event, *, once: bool) -> None:
        while not stop.is_set():
            marks, wait_s = self.round(connection)
            self._silent_since = None
            if marks.pause_s is not None:
                if once and marks.away:
                    raise ReceiverAway(f"{self.name}: {marks.why}")
                self._said(marks.why)
                wait_s = marks.pause_s
            elif wait_s == _IDLE_S and once:
                return
            if wait_s:
                self._way.idle()
                stop.wait(wait_s)

    def round(self, connection: outbox.Connection) -> tuple[Marks, float]:
        """One stretch of keys in one transaction; what it came to, and how long to wait. Raises
        psycopg.Error: then nothing is marked, and what was published is published again."""
        turn, way = self._turn, self._way
        before = way.prepare()
        self._silent_since = time.monotonic()
        with connection.transaction():
            heads = outbox.heads(connection, way.mapping, turn.after, _SCAN)
            ids = turn.choose(heads, _SCAN, most(self._away, way.batch))
            events = outbox.lock(connection, ids) if ids else []
            marks = self._tried(events, before) if events else Marks()
            outbox.mark(connection, marks)
            if events:
                self._hit("relay.after_mark")
        if events:
            self._hit("relay.after_commit")
            self._away = self._away + 1 if marks.away else 0
        self._count(events, marks)
        if turn.quiet(len(events)):
            return marks, _CONTENDED_S if ids and not events else _IDLE_S
        return marks, 0.0

    def _tried(self, events: Sequence[Event], before: Result | None) -> Marks:
        if before is not None:
            return settle(events, {event.id: before for event in events}, self._away)
        self._hit("relay.after_select")
        self._silent_since = None
        with metrics.ROUND.labels(self.name).time():
            results = self._way.publish(events)
        self._silent_since = time.monotonic()
        self._hit("relay.after_publish")
        return settle(events, results, self._away)

    def _count(self, events: Sequence[Event], marks: Marks) -> None:
        metrics.SENT.labels(self.name).inc(len(marks.sent))
        metrics.PAUSED.labels(self.name).set(float(marks.pause_s is not None))
        attempts = {event.id: event.attempts for event in events}
        for one in marks.later:
            if one.attempts > attempts[one.id]:
                self._failed(one)

    def _failed(self, one: Later) -> None:
        metrics.FAILED.labels(self.name).inc()
        _log.warning(
            "event not published", lane=self.name, number=one.id, error=one.error,
            attempts=one.attempts, dead=one.state == "dead",
        )  # fmt: skip

    def _said(self, why: str) -> None:
        _log.warning("relay pauses", lane=self.name, error=why)
        metrics.TROUBLE.labels(self.name).inc()
        metrics.PAUSED.labels(self.name).set(1)


def _passes(error: psycopg.Error) -> bool:
    """Whether it is of the connection or the server, so that another one may help."""
    return isinstance(
        error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError
    )

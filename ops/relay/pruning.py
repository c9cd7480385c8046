"""Removes events from the outbox that were sent long ago, a few at a time, while the relay runs.

Only what was sent: never what waits, is dead, or was skipped by name. The newest rows stay whatever
their age, since apply reads from them which sequence it may issue next (apply/sql/outbox.sql).
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass

import psycopg
import structlog

from ops.relay import metrics, outbox

_log = structlog.get_logger(__name__)
BATCH = 1_000
NEWEST_KEPT = 1_000
_EVERY_S = 60.0
_REST_S = 0.05
# One relay at a time does it: two would only wait for each other's rows. Along the ids and never by
# state, so that no index of what was sent has to be kept; what was written since is not old enough.
_PRUNE = """
WITH floor AS (
  SELECT id FROM gapless.outbox ORDER BY id DESC OFFSET %(newest)s - 1 LIMIT 1
), seen AS (
  SELECT o.id, o.created_at FROM gapless.outbox o, floor
  WHERE o.id > %(after)s AND o.id < floor.id ORDER BY o.id LIMIT %(most)s
), gone AS (
  DELETE FROM gapless.outbox o USING seen WHERE o.id = seen.id AND o.state = 'sent'
    AND o.sent_at < now() - make_interval(secs => %(keep_s)s) RETURNING o.id
)
SELECT (SELECT max(id) FROM seen) AS seen_to, (SELECT count(*) FROM gone) AS pruned,
  (SELECT count(*) FROM seen) = %(most)s AND (SELECT created_at FROM seen ORDER BY id DESC LIMIT 1)
    < now() - make_interval(secs => %(keep_s)s) AS more"""
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('gapless.outbox pruning', 0)) AS alone"


@dataclass(frozen=True, slots=True)
class Step:
    """How many went, and whether older ones may follow."""

    pruned: int
    more: bool


class Pruning:
    """`keep_s`: seconds that a sent event stays; 0: for ever. Used by one thread."""

    def __init__(self, dsn: str, keep_s: float, *, hold_s: float) -> None:
        self._dsn, self._keep_s, self._hold_s = dsn, keep_s, hold_s
        self._after = 0

    def run(self, stop: threading.Event) -> None:
        """Now and then until told to stop; trouble of Postgres is waited out."""
        while self._keep_s and not stop.is_set():
            try:
                self.all(stop)
            except psycopg.Error as error:
                _log.warning("sent events not pruned", error=str(error).strip())
            stop.wait(_EVERY_S)

    def all(self, stop: threading.Event) -> None:
        """Everything that is old enough, with a rest after each batch. Raises psycopg.Error."""
        if not self._keep_s:
            return
        with closing(outbox.connect(self._dsn, self._hold_s)) as connection:
            while not stop.is_set() and self.step(connection).more:
                stop.wait(_REST_S)

    def step(self, connection: outbox.Connection) -> Step:
        """One batch in a transaction of its own. Raises psycopg.Error."""
        with connection.transaction():
            alone = connection.execute(_ALONE).fetchone()
            if alone is None or not alone["alone"]:
                return Step(0, more=False)
            asked = {
                "after": self._after, "most": BATCH, "newest": NEWEST_KEPT, "keep_s": self._keep_s,
            }  # fmt: skip
            found = connection.execute(_PRUNE, asked).fetchone()
        assert found is not None
        step = Step(int(found["pruned"]), more=bool(found["more"]))
        # what stays is not looked at again until this has come to the end once
        self._after = int(found["seen_to"]) if step.more else 0
        metrics.PRUNED.inc(step.pruned)
        return step

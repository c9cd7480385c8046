"""Tells how a replay gets on and lets it rest so that live apply keeps its lag.

A thread of its own asks Postgres and Kafka about live once a second; who cannot answer is no reason
to go faster or slower. Decides by `apply.pace`, which is pure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import structlog

from apply.log_bounds import LogBounds
from apply.pace import Lag, Rate, Throttle
from apply.queries import load
from apply.replay_report import Progress, ReplayReport
from apply.sink import Connection, connect
from schemas.log.reader import LogUnavailable
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_SQL = load("replay")
_LOOK_S = 1.0
_ASK_S = 2.0
_STOP_S = 5.0
Tell = Callable[[Progress], None]


class Pacing:
    """Used by the replay's thread; `close` when done."""

    def __init__(self, settings: Settings, tell: Tell, throttle: Throttle) -> None:
        self._settings, self._tell, self._throttle = settings, tell, throttle
        self._rate, self._lag = Rate(), Lag()
        self._lag_s: float | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None

    def close(self) -> None:
        """Ask no longer."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def batch_done(
        self, report: ReplayReport, total: int, phase: str, *, rest: bool = True
    ) -> None:
        """After every batch: tell, and rest as long as live needs, unless live waits for us."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="replay-lag", daemon=True)
            self._thread.start()
        now = time.monotonic()
        self._rate.add(now, report.offsets)
        rest_s = self._throttle.rest_s if rest else 0.0
        self._tell(
            Progress(
                done=report.offsets, total=total, pages=report.pages,
                outcomes=tuple(report.outcomes), phase=phase, rate_per_s=self._rate.per_s(),
                left_s=self._rate.left_s(total), rest_s=rest_s, lag_s=self._lag_s,
            )
        )  # fmt: skip
        until = now + rest_s
        while (left := until - time.monotonic()) > 0 and self._throttle.rest_s > 0:
            time.sleep(min(left, 0.2))

    def _watch(self) -> None:
        with LogBounds(self._settings) as bounds:
            try:
                while not self._stop.is_set():
                    self._look(bounds)
                    self._stop.wait(_LOOK_S)
            finally:
                self._forget()

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, bounds: LogBounds) -> None:
        try:
            if self._connection is None:
                self._connection = connect(self._settings.postgres, "replay-lag")
            nexts: dict[int, int] = dict(self._connection.execute(_SQL["lag"]).fetchall())
            ends = {number: bounds.of(number, _ASK_S)[1] for number in nexts}
        except (psycopg.Error, LogUnavailable) as error:
            _log.debug("live could not be asked", error=str(error))
            self._forget()
            return
        self._lag_s = self._lag.seconds(time.monotonic(), ends, nexts) if nexts else None
        before = self._throttle.rest_s
        rest_s = self._throttle.heard(self._lag_s or 0.0)
        if (rest_s > 0) != (before > 0):
            _log.info("rests for live" if rest_s else "no longer rests", lag_s=self._lag_s)

"""Reads the status again and again on a thread of its own; whoever serves takes the last one."""

from __future__ import annotations

import threading
import time

import structlog

from ops.facts.ask import Asking
from ops.status import Status, assemble
from ops.status.expected import Expected, expected
from schemas.definitions.load import load_folder
from schemas.definitions.problems import Problem
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_STALE_READS = 4
_OUTCOMES_S = 60.0
_EXPECTED_S = 60.0


class Watch:
    """The last status. `every_s`: how often it is read; outcomes are counted once a minute.

    A read that fails altogether keeps the last status and is told by `healthy`.
    """

    def __init__(self, settings: Settings, every_s: float) -> None:
        self._settings, self._every_s = settings, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._status: Status | None = None
        self._read_at = 0.0
        self._problems: tuple[Problem, ...] = ()
        self._started_at = time.monotonic()
        self.read_s = 0.0

    @property
    def status(self) -> Status | None:
        """The last status; None before the first."""
        return self._status

    @property
    def healthy(self) -> bool:
        """Whether it was read lately: not whether what it says is good."""
        since = self._read_at or self._started_at
        return time.monotonic() - since < self.stale_after_s

    @property
    def stale_after_s(self) -> float:
        """How old the last read may become; reads themselves may wait for a broker."""
        return self._every_s * _STALE_READS + 30.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after the read that is under way."""
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        asking, known = Asking(self._settings), self._expected()
        counted_at, counts = -_OUTCOMES_S, {}
        expected_at = time.monotonic()
        while not self._stop.is_set():
            began = time.monotonic()
            if began - expected_at >= _EXPECTED_S:
                expected_at, known = began, self._expected()  # tenants come and go
            count = began - counted_at >= _OUTCOMES_S
            try:
                log, sink = asking.ask(outcomes=count)
                if not isinstance(sink, str):
                    if count:
                        counted_at, counts = began, sink.outcomes
                    sink.outcomes = counts
                now_us = time.time_ns() // 1000
                self._status = assemble(self._settings, now_us, log, sink, known)
                self._read_at = time.monotonic()
            except Exception:
                # a fault of this reader must not end it: /healthz tells once it goes on too long
                _log.exception("status not read")
            self.read_s = time.monotonic() - began
            self._stop.wait(max(0.0, self._every_s - self.read_s))

    def _expected(self) -> Expected:
        loaded = load_folder(self._settings.definitions)
        if loaded.errors != self._problems:  # once, not every minute
            self._problems = loaded.errors
            for problem in loaded.errors:
                _log.warning("definition not used", problem=str(problem))
        return expected(loaded)

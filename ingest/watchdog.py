"""Ends the process when a blocking call of a client library never returns.

A stuck thread cannot be stopped and its partition cannot be given up safely; a dead process can be
replaced. Time during which the whole process was stopped does not count.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EXIT_CODE = 70
_CHECK_S = 0.5


def end_process(message: str) -> None:
    """Says why and ends this process at once, without waiting for any thread."""
    sys.stderr.write(f"watchdog: {message}\n")
    sys.stderr.flush()
    os._exit(EXIT_CODE)


@dataclass(slots=True)
class Watch:
    """One guarded call. `beat` says that it still moves."""

    doing: str
    bound_s: float
    left_s: float

    def beat(self) -> None:
        self.left_s = self.bound_s


class Watchdog:
    """One thread that watches all guarded calls of the process; `stop` ends it."""

    def __init__(
        self, on_expired: Callable[[str], None] = end_process, check_s: float = _CHECK_S
    ) -> None:
        self._on_expired, self._check_s = on_expired, check_s
        self._watches: dict[int, Watch] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def guard(self, doing: str, bound_s: float) -> Iterator[Watch]:
        """Bounds the calls of this block: without a `beat` for `bound_s` seconds the process ends."""
        watch = Watch(doing, bound_s, bound_s)
        with self._lock:
            self._watches[id(watch)] = watch
        try:
            yield watch
        finally:
            with self._lock:
                del self._watches[id(watch)]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(self._check_s):
            now = time.monotonic()
            # a process that was stopped (SIGSTOP, a suspended machine) has made no call wait
            passed_s, before = min(now - before, 2 * self._check_s), now
            with self._lock:
                watches = list(self._watches.values())
            for watch in watches:
                watch.left_s -= passed_s
                if watch.left_s <= 0:
                    self._on_expired(
                        f"{watch.doing} has not returned for {watch.bound_s:.0f} s; "
                        "ending this process so that another worker can take over"
                    )

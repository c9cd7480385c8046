"""One daemon thread that makes the blocking calls of one log partition, one after the other.

A daemon, unlike an executor's threads: a call that is stuck in a client library never keeps the
process from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


class LogThread:
    """`end` lets the thread return after what was called before."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def call(self, work: Callable[[], _T]) -> _T:
        """What `work` returns or raises. Cancelling this does not stop a call that began."""
        result: Future[_T] = Future()

        def act() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        self._calls.put(act)
        return await asyncio.wrap_future(result)

    def post(self, work: Callable[[], None]) -> None:
        """Does `work` after the calls before it; nobody waits. It must not raise."""
        self._calls.put(work)

    def end(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (act := self._calls.get()) is not None:
            act()

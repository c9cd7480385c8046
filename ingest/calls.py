"""Calls of code that others wrote: each on a daemon thread of its own, with a time limit.

A call that hangs costs its thread and nothing else: the event loop goes on, and so do the other
partition ids. A thread cannot be stopped, so few may hang for one owner at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_AT_ONCE = 8
_HUNG_MAX = 3


class Overrun(Exception):
    """A call did not return in time, and its thread still runs; or too many such threads do."""


class Strange(Exception):
    """A call raised what no coroutine may raise or what would end this process; it is the cause."""


class Calls:
    """The calls of all owners of a process, `at_once` at a time. Use from one event loop."""

    def __init__(self, at_once: int = _AT_ONCE, hung_max: int = _HUNG_MAX) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._hung_max = hung_max
        self._hung: dict[str, list[Future[Any]]] = {}

    async def call(self, owner: str, work: Callable[[], T], limit_s: float) -> T:
        """What `work` returns or raises. Raises Overrun after `limit_s` seconds, or Strange.

        A call that is cancelled or overruns goes on in its thread; its result is thrown away.
        """
        async with self._turns:
            hung = self._still_hung(owner)
            if hung >= self._hung_max:
                raise Overrun(f"{hung} earlier calls have not returned yet; restart this worker")
            ended: Future[tuple[T | None, BaseException | None]] = Future()
            ended.set_running_or_notify_cancel()  # done only when `work` has returned
            threading.Thread(
                target=_run, args=(work, ended), name=f"call {owner}", daemon=True
            ).start()
            try:
                async with asyncio.timeout(limit_s):
                    found, error = await asyncio.wrap_future(ended)
            except BaseException as left:
                self._hung.setdefault(owner, []).append(ended)
                if isinstance(left, TimeoutError):
                    raise Overrun(f"no return within {limit_s:g} s") from None
                raise
        if error is None:
            return found  # type: ignore[return-value]
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise error
        raise Strange(type(error).__name__) from error

    def _still_hung(self, owner: str) -> int:
        hung = [one for one in self._hung.pop(owner, ()) if not one.done()]
        if hung:
            self._hung[owner] = hung
        return len(hung)


def _run(work: Callable[[], T], ended: Future[tuple[T | None, BaseException | None]]) -> None:
    try:
        found = work()
    except BaseException as error:
        ended.set_result((None, error))
    else:
        ended.set_result((found, None))

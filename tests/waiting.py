"""Waiting for a condition with a deadline, instead of sleeping and hoping; on a thread or a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Returns as soon as the condition holds. Raises TimeoutError that says what was awaited."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


async def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """The same on the event loop, which goes on meanwhile."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - a condition of the code under test has no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_s} s: {what}") from None

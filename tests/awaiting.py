"""Waiting on the event loop for a condition with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Returns as soon as the condition holds. Raises TimeoutError that says what was awaited."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - a condition of the code under test has no event
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"not within {timeout_s} s: {what}") from None

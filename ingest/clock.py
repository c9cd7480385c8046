"""What the provider's clock says, estimated from the `Date` of its answers. Pure: times are passed in.

An estimate is never ahead of the provider's clock: an interval that ended in its future would be
called complete before its last rows exist.
"""

from __future__ import annotations

from collections import deque

from ingest.plans.protocol import Now

SECOND_US = 1_000_000
SLACK_US = 5 * SECOND_US
"""How far the local clock may be off while no answer has been seen."""
SAMPLES = 16
"""Only so many answers count, so that a clock that was set right is believed again."""
FAR_US = 60 * SECOND_US
"""Clocks that are kept right differ by less."""


class ServerClock:
    """One provider's clock. Times are microseconds since the epoch."""

    def __init__(self, slack_us: int = SLACK_US) -> None:
        self._slack_us = slack_us
        self._low: deque[int] = deque(maxlen=SAMPLES)
        self._high: deque[int] = deque(maxlen=SAMPLES)

    @property
    def known(self) -> bool:
        """Whether any answer has told the time."""
        return bool(self._low)

    def far_off(self) -> bool:
        """Whether the estimate is far from the local clock."""
        return bool(self._low) and abs(min(self._low)) > FAR_US

    @property
    def offset_us(self) -> int | None:
        """How far the estimate is ahead of the local clock; None: nothing has told the time."""
        return min(self._low) if self._low else None

    def agrees(self) -> bool:
        """Whether the newest answer says about what the estimate does."""
        return bool(self._low) and self._low[-1] - min(self._low) <= FAR_US

    def observe(self, requested_at: int, received_at: int, server_time: int) -> None:
        """An answer asked and received at these local times said `server_time` (`Date` less `Age`).

        `Date` shows whole seconds, cut off, and was made between request and receipt.
        """
        self._low.append(server_time - received_at)
        self._high.append(server_time + SECOND_US - requested_at)

    def now(self, local: int) -> Now:
        """This moment: the smallest offset seen, and the largest."""
        if not self._low:
            return Now(local, local - self._slack_us, local + self._slack_us)
        return Now(local, local + min(self._low), local + max(self._high))

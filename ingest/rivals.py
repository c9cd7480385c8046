"""Who else writes a log partition, and how long to stay away from it. Pure: `now` is passed in.

Being fenced once is how a take-over looks. Again and again, while the group keeps assigning us the
partition, means that somebody outside this group writes it: another deployment on the same prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

LAST_WAIT_S = 60.0
QUIET_S = 600.0
"""Owned this long without being fenced, an earlier fence no longer counts."""


@dataclass(slots=True)
class Rivals:
    """What one owner knows of others. `us`: this worker; `first_wait_s`: one session time-out."""

    us: str
    prefix: str
    first_wait_s: float
    count: int = 0
    """Fences in a row."""
    _other: str | None = None
    _fenced_at_s: float | None = None

    def found(self, worker: str | None) -> None:
        """After a restore: who wrote the newest checkpoint of the partition, if anybody did."""
        if worker is not None and worker != self.us:
            self._other = worker

    def fenced(self, now_s: float) -> float:
        """We were fenced; returns how many seconds to wait before the next take-over.

        At least one session time-out, so that two owners never chase each other; doubled with
        every fence in a row, up to a minute.
        """
        if self._fenced_at_s is not None and now_s - self._fenced_at_s > QUIET_S:
            self.count = 0
        self._fenced_at_s = now_s
        self.count += 1
        doubled_s: float = self.first_wait_s * 2 ** min(self.count - 1, 16)
        return max(self.first_wait_s, min(LAST_WAIT_S, doubled_s))

    @property
    def lasting(self) -> bool:
        """Whether this is more than a take-over."""
        return self.count > 1

    def hint(self) -> str:
        """What it means and what to do."""
        if not self.lasting:
            return (
                "another worker took this partition over, or the broker timed our transaction out; "
                "it is tried again"
            )
        who = f"the worker {self._other}" if self._other else "a worker that is not known yet"
        return (
            f"fenced {self.count} times in a row: another deployment uses the prefix {self.prefix} "
            f"too, and {who} writes the same log partition. Stop one of the two, or give it a "
            "GAPLESS_PREFIX of its own (then `gapless topics`). If the broker times transactions "
            "out instead, raise GAPLESS_TRANSACTION_TIMEOUT_MS"
        )

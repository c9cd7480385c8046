"""How far an audit is: share, rate and time left, from offsets passed. Pure; `now_s` is given."""

from __future__ import annotations

from collections.abc import Mapping

from ops.status.words import duration

_FIRST_S = 2.0
"""Before this a rate says nothing."""


class Progress:
    """`stretches`: partition → (first offset, end) of what is still to be read."""

    def __init__(self, stretches: Mapping[int, tuple[int, int]], now_s: float) -> None:
        self._stretches = dict(stretches)
        self._total = sum(end - low for low, end in stretches.values())
        self._passed = 0
        self._began_s = now_s

    def finished(self, partition: int) -> None:
        """A partition was read to its end."""
        low, end = self._stretches.pop(partition)
        self._passed += end - low

    def text(self, partition: int, offset: int, now_s: float) -> str:
        """One line: where the reading is, the share of all, the rate and the time left."""
        low, end = self._stretches.get(partition, (0, 0))
        passed = self._passed + max(0, min(offset, end) - low)
        share = passed / self._total if self._total else 1.0
        line = f"partition {partition}, offset {offset:,} of {end:,}: {share:.0%} of the log"
        spent_s = now_s - self._began_s
        if spent_s < _FIRST_S or not passed:
            return line
        rate = passed / spent_s
        left = duration((self._total - passed) / rate)
        return f"{line}, {rate:,.0f} offsets/s, {left} left"

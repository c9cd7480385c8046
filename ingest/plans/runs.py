"""Runs: the source's time is cut at the occurrences of a schedule, and each stretch has a run's name.

Names follow from the stretch alone, so every worker and every later reading of it names it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingest.plans.protocol import Value
from ingest.plans.ranges import Range
from schemas.definitions.cron import Occurrences


@dataclass(frozen=True, slots=True)
class Runs:
    """`named` gives the run that ends at an occurrence (microseconds) its name."""

    occurrences: Occurrences
    named: Callable[[int], str]

    def upto(self, end: int) -> int:
        """The end of the last run that is over at `end`."""
        return self.occurrences.upto(end)

    def cut(self, at: int) -> int:
        """Where the run that `at` lies in ends."""
        return self.occurrences.after(at)

    def values(self, stretch: Range) -> dict[str, Value]:
        """What requests may say of the run that the stretch lies in; `date` is in its zone."""
        name, end = self.of(stretch), self.cut(stretch[0])
        if name is None:
            return {}
        return {
            "run.id": name,
            "run.start": self.occurrences.upto(stretch[0]),
            "run.end": end,
            "run.date": self.occurrences.date(end).isoformat(),
        }

    def of(self, stretch: Range) -> str | None:
        """The run that the whole stretch lies in; None if it lies in several."""
        end = self.cut(stretch[0])
        return self.named(end) if stretch[1] <= end else None

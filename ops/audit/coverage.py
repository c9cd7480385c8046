"""Is `coverage` what the applied marks say? Pure: both sides come grouped and sorted by start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from ops.audit.findings import Findings
from ops.audit.spans import differences


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one plan of one partition id that was fully searched."""

    partition_id: str
    plan: str
    start: str
    end: str


def judge_coverage(
    marks: Iterable[Stretch], coverage: Iterable[Stretch], findings: Findings
) -> int:
    """Compare; both sorted by (partition id, plan, start). Returns the stretches of coverage."""
    number = 0
    for (partition_id, plan), mine, other in _paired(marks, coverage):
        number += len(other)
        for side, (start, end) in differences(mine, other):
            says = (
                "marks say it was searched, coverage does not"
                if side == "left"
                else "coverage says it was searched, no mark does"
            )
            findings.add(
                "coverage_differs", f"plan {plan}, {start} to {end}: {says}",
                partition_id=partition_id,
            )  # fmt: skip
    return number


Pairs = list[tuple[str, str]]


def _paired(
    left: Iterable[Stretch], right: Iterable[Stretch]
) -> Iterator[tuple[tuple[str, str], Pairs, Pairs]]:
    a, b = _grouped(left), _grouped(right)
    mine, other = next(a, None), next(b, None)
    while mine is not None or other is not None:
        if other is None or (mine is not None and mine[0] < other[0]):
            assert mine is not None
            yield mine[0], mine[1], []
            mine = next(a, None)
        elif mine is None or other[0] < mine[0]:
            yield other[0], [], other[1]
            other = next(b, None)
        else:
            yield mine[0], mine[1], other[1]
            mine, other = next(a, None), next(b, None)


def _grouped(stretches: Iterable[Stretch]) -> Iterator[tuple[tuple[str, str], Pairs]]:
    for key, group in groupby(stretches, lambda s: (s.partition_id, s.plan)):
        yield key, [(s.start, s.end) for s in group]

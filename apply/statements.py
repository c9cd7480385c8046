"""What the marks of one batch change in coverage: read what is near, add, write the difference.

Runs inside the batch's transaction. The rules of merging are `coverage`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from apply.coverage import State, Stretch, add
from apply.ledger import moment
from apply.queries import load
from apply.sink import Connection
from schemas.records import Mark

_SQL = load("marks")
Line = tuple[int, str]
"""A partition id's number and a plan: what coverage is kept for."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the ledger holds of the pages that a mark names."""

    pages: int
    records: int
    errors: int


@dataclass(slots=True)
class Statements:
    """Collects stretches in the order of the log and writes them at once."""

    _new: list[tuple[Line, Mark, State, Held]] = field(default_factory=list)

    def state(self, partition_id_no: int, mark: Mark, state: State, held: Held) -> None:
        """One mark's word on its stretch."""
        self._new.append(((partition_id_no, mark.plan), mark, state, held))

    def write(self, connection: Connection) -> None:
        """Merge all that was said into the table."""
        if not self._new:
            return
        spans = self._spans(connection)
        known = _near(connection, [line for line, _, _, _ in self._new], spans)
        final = {line: list(stretches) for line, stretches in known.items()}
        for (line, mark, state, held), (start, end) in zip(self._new, spans, strict=True):
            stretch = Stretch(
                start, end, state, mark.run, mark.reason if state in ("failed", "gap") else None,
                held.pages, held.records, held.errors, moment(mark.at),
            )  # fmt: skip
            searched = mark.kind != "caught_up"
            final[line] = add(final.get(line, []), stretch, searched=searched)
        _write(connection, known, final)

    def _spans(self, connection: Connection) -> list[tuple[datetime, datetime]]:
        """Where each stretch lies. Plans without intervals go on from where they ended."""
        lines = sorted({line for line, mark, _, _ in self._new if interval(mark) is None})
        last: dict[Line, datetime] = {}
        if lines:
            asked = {"partition_ids": [n for n, _ in lines], "plans": [p for _, p in lines]}
            for number, plan, end in connection.execute(_SQL["coverage_last"], asked):
                last[number, plan] = end
        spans = []
        for line, mark, _, _ in self._new:
            span = interval(mark)
            if span is None:
                at = moment(mark.at)
                span = (min(last.get(line, at - timedelta(microseconds=1)), at), at)
                last[line] = at
            spans.append(span)
        return spans


def interval(mark: Mark) -> tuple[datetime, datetime] | None:
    """The interval of a mark, if its bounds are times; None for cursors and listings."""
    if mark.start is None or mark.end is None:
        return None
    return span_of(mark.start, mark.end)


def span_of(start: str, end: str) -> tuple[datetime, datetime] | None:
    """Two texts of the log as times with zone; None if they are none."""
    try:
        found = datetime.fromisoformat(start), datetime.fromisoformat(end)
    except ValueError:
        return None
    return found if all(one.tzinfo is not None for one in found) else None


def _near(
    connection: Connection,
    lines: Sequence[Line],
    spans: Sequence[tuple[datetime, datetime]],
) -> dict[Line, list[Stretch]]:
    """The stretches that any of the new ones overlaps or touches, by line."""
    widest: dict[Line, tuple[datetime, datetime]] = {}
    for line, (start, end) in zip(lines, spans, strict=True):
        first, last = widest.get(line, (start, end))
        widest[line] = (min(first, start), max(last, end))
    found: dict[Line, list[Stretch]] = {line: [] for line in widest}
    asked = {
        "partition_ids": [number for number, _ in widest],
        "plans": [plan for _, plan in widest],
        "starts": [start for start, _ in widest.values()],
        "ends": [end for _, end in widest.values()],
    }
    for number, plan, *rest in connection.execute(_SQL["coverage_near"], asked):
        found[number, plan].append(Stretch(*rest))
    return found


def _write(
    connection: Connection, known: dict[Line, list[Stretch]], final: dict[Line, list[Stretch]]
) -> None:
    removed: list[tuple[Line, Stretch]] = []
    added: list[tuple[Line, Stretch]] = []
    for line, stretches in final.items():
        before = known.get(line, [])
        removed += [(line, one) for one in before if one not in stretches]
        added += [(line, one) for one in stretches if one not in before]
    if removed:
        connection.execute(
            _SQL["coverage_remove"],
            {
                "partition_ids": [number for (number, _), _ in removed],
                "plans": [plan for (_, plan), _ in removed],
                "starts": [one.start for _, one in removed],
            },
        )
    with connection.cursor() as cursor:
        cursor.executemany(_SQL["coverage_insert"], [_row(line, one) for line, one in added])


def _row(line: Line, one: Stretch) -> dict[str, Any]:
    return {
        "partition_id": line[0],
        "plan": line[1],
        "start": one.start,
        "end": one.end,
        "state": one.state,
        "run": one.run,
        "reason": one.reason,
        "pages": one.pages,
        "records": one.records,
        "errors": one.errors,
        "completed_at": one.completed_at,
    }

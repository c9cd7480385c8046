"""Marks of the log: pending until the ledger holds every page they name, then coverage and sweeps.

Runs inside the batch's transaction, after the ledger was written. A mark never speaks of pages that
stand behind it, but pages that an erasure rewrote may arrive after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import structlog

from apply.batch import Batch, MarkWork
from apply.changes import Change
from apply.coverage import State
from apply.ledger import moment
from apply.queries import load
from apply.sink import Connection
from apply.snapshots import Snapshots
from apply.statements import Held, Statements
from schemas.records import Mark

_log = structlog.get_logger(__name__)
_SQL = load("marks")
_LEDGER = load("ledger")
_POSITION = load("position")
_WAITING = ("interval_complete", "snapshot_complete")


@dataclass(slots=True)
class _Open:
    """A mark on its way; `stored`: it is a row of an earlier batch."""

    work: MarkWork
    stored: bool
    state: str


class Marks:
    """Reads the marks of a batch. Used by one thread."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def write(self, connection: Connection, batch: Batch) -> list[Change]:
        """Everything the batch's marks state, and what earlier ones waited for.

        Returns the changes of rows that sweeps made.
        """
        new = [_Open(work, False, "pending") for work in batch.marks()]
        waiting = self._waiting(connection, batch)
        every = sorted([*waiting, *new], key=_place)
        if not every:
            return []
        held = _held(connection, every)
        statements, changes = Statements(), list[Change]()
        for at, one in enumerate(every):
            changes += self._take(connection, one, held.get(at), statements)
        statements.write(connection)
        _insert(connection, new)
        _settle(connection, [one for one in waiting if one.state != "pending"])
        return changes

    def _waiting(self, connection: Connection, batch: Batch) -> list[_Open]:
        """Stored marks whose partition ids got pages now."""
        numbers = sorted({page.partition_id_no for page in batch.pages()})
        if not numbers:
            return []
        found = connection.execute(_SQL["pending"], {"partition_ids": numbers})
        return [
            _Open(MarkWork(offset, generation, partition, number, _mark(body)), True, "pending")
            for partition, generation, offset, number, body in found
        ]

    def _take(
        self, connection: Connection, one: _Open, held: Held | None, statements: Statements
    ) -> list[Change]:
        work, kind = one.work, one.work.mark.kind
        if kind == "snapshot_complete" and not one.stored:
            if not self._snapshots.reached_end(connection, work):
                one.state = "dropped"
                return []
        if kind in _WAITING and held is None:
            return []
        one.state = "done"
        if kind == "snapshot_complete":
            changes = self._snapshots.complete(connection, work)
            one.state = "dropped" if changes is None else "done"
            return changes or []
        if kind == "snapshot_begin":
            self._snapshots.begin(connection, work)
        elif kind == "gap":
            _gap(connection, work)
        state = _STATES.get(kind)
        if state is not None:
            if held is not None and held.errors:
                state = "complete_with_errors"
            statements.state(work.partition_id_no, work.mark, state, held or Held(0, 0, 0))
        return []


_STATES: Mapping[str, State] = {
    "interval_complete": "complete",
    "caught_up": "complete",
    "interval_failed": "failed",
    "gap": "gap",
}


def _place(one: _Open) -> tuple[int, int, int]:
    return (one.work.partition, one.work.generation, one.work.offset)


def _mark(body: Any) -> Mark:
    return msgspec.convert(body, Mark)


def _held(connection: Connection, every: Sequence[_Open]) -> dict[int, Held]:
    """Position in `every` → what the ledger holds, for the marks whose pages are all there."""
    ranges = [
        (at, one.work.partition_id_no, wanted)
        for at, one in enumerate(every)
        if one.work.mark.kind in _WAITING
        for wanted in one.work.mark.passes
    ]
    counted: dict[int, tuple[int, int, int]] = {}
    if ranges:
        asked = {
            "n": list(range(len(ranges))),
            "partition_ids": [number for _, number, _ in ranges],
            "passes": [wanted.pass_ for _, _, wanted in ranges],
            "firsts": [wanted.first for _, _, wanted in ranges],
            "lasts": [wanted.last for _, _, wanted in ranges],
        }
        for n, *counts in connection.execute(_LEDGER["pages_held"], asked):
            counted[n] = (counts[0], counts[1], counts[2])
    found = {at: Held(0, 0, 0) for at, one in enumerate(every) if one.work.mark.kind in _WAITING}
    for n, (at, _, wanted) in enumerate(ranges):
        parts, records, errors = counted.get(n, (0, 0, 0))
        if parts < wanted.parts or records < wanted.records:
            found.pop(at, None)
        elif at in found:
            before = found[at]
            pages = before.pages + wanted.last - wanted.first + 1
            found[at] = Held(pages, before.records + records, before.errors + errors)
    return found


def _insert(connection: Connection, marks: Sequence[_Open]) -> None:
    if not marks:
        return
    works = [one.work for one in marks]
    connection.execute(
        _SQL["insert_marks"],
        {
            "partitions": [work.partition for work in works],
            "generations": [work.generation for work in works],
            "offsets": [work.offset for work in works],
            "partition_ids": [work.partition_id_no for work in works],
            "kinds": [work.mark.kind for work in works],
            "plans": [work.mark.plan for work in works],
            "scopes": [work.mark.scope for work in works],
            "bodies": [msgspec.json.encode(work.mark).decode() for work in works],
            "states": [one.state for one in marks],
            "ats": [moment(work.mark.at) for work in works],
        },
    )


def _settle(connection: Connection, marks: Sequence[_Open]) -> None:
    if not marks:
        return
    connection.execute(
        _SQL["settle"],
        {
            "partitions": [one.work.partition for one in marks],
            "generations": [one.work.generation for one in marks],
            "offsets": [one.work.offset for one in marks],
            "states": [one.state for one in marks],
        },
    )


def _gap(connection: Connection, work: MarkWork) -> None:
    """What the provider no longer has: a row that stays, and an error in the log of the process."""
    mark = work.mark
    _log.error("gap", partition_id=mark.partition_id, start=mark.start, end=mark.end)
    connection.execute(
        _POSITION["gap"],
        {
            "partition": work.partition,
            "generation": work.generation,
            "offset": work.offset,
            "partition_id": work.partition_id_no,
            "from_text": mark.start,
            "to_text": mark.end,
            "cause": mark.reason or "gap",
        },
    )


def overdue(
    connection: Connection, partitions: Iterable[int], before: datetime
) -> list[tuple[Any, ...]]:
    """Marks that have waited since `before` for pages they name, which may be lost.

    (partition, offset, kind, plan, scope, partition id, since), oldest first.
    """
    asked = {"partitions": list(partitions), "before": before}
    return connection.execute(_SQL["overdue"], asked).fetchall()


def waiting(connection: Connection, partitions: Iterable[int]) -> dict[int, int]:
    """How many marks wait for pages, per partition of the log."""
    return dict(connection.execute(_SQL["waiting"], {"partitions": list(partitions)}).fetchall())

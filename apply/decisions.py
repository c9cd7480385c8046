"""What a later decision on one record changes beside its exception: ledger byte and coverage."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from apply.outcomes import Outcome
from apply.queries import load
from apply.sink import Connection
from apply.statements import span_of

_LEDGER = load("ledger")
_RETRY = load("retry")
_MARKS = load("marks")


@dataclass(frozen=True, slots=True)
class Judged:
    """One observation under one mapping version: a row of the ledger."""

    mapping_version: int
    partition: int
    generation: int
    offset: int


def first_index(connection: Connection, page: Judged) -> int:
    """Index, within the whole page, of the first record of this part."""
    row = connection.execute(_RETRY["first_index"], asdict(page)).fetchone()
    return int(row[0]) if row else 0


def set_outcome(
    connection: Connection, page: Judged, index: int, outcome: Outcome, first: int | None = None
) -> None:
    """Change the byte and the counts of one record; `index` counts within the whole page."""
    at = index - (first_index(connection, page) if first is None else first)
    values = {**asdict(page), "at": at, "outcome": int(outcome)}
    connection.execute(_LEDGER["set_outcome"], values)


def heal_coverage(connection: Connection, partition_id_no: int, plan: str, scope: str) -> None:
    """An exception of this interval ended well: its stretch has one error less."""
    start, _, end = scope.partition("~")
    span = span_of(start, end)
    if span is not None:
        values = {
            "partition_id": partition_id_no, "plan": plan, "start": span[0], "end": span[1],
        }  # fmt: skip
        connection.execute(_MARKS["coverage_healed"], values)

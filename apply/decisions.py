"""What a later decision on one record changes beside its exception: ledger byte and coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from apply.outcomes import Outcome
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection
from apply.statements import span_of

_LEDGER = load("ledger")
_MARKS = load("marks")


def set_outcomes(connection: Connection, places: Sequence[Where], outcome: Outcome) -> None:
    """Change the bytes of these records and the counts of their pages."""
    if places:
        values = [{**asdict(one), "outcome": int(outcome)} for one in places]
        connection.cursor().executemany(_LEDGER["set_outcome"], values)


def heal_coverage(connection: Connection, where: Where, scope: str) -> None:
    """An exception of this interval ended well: its stretch has one error less, if it counted it."""
    start, _, end = scope.partition("~")
    span = span_of(start, end)
    if span is not None:
        values = {**asdict(where), "start": span[0], "end": span[1]}
        connection.execute(_MARKS["coverage_healed"], values)

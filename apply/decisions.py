"""What a later decision on one record changes beside its exception: ledger byte and coverage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from apply.outcomes import Outcome, counts
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection
from apply.statements import span_of

_LEDGER = load("ledger")
_MARKS = load("marks")


def set_outcomes(connection: Connection, places: Sequence[Where], outcome: Outcome) -> None:
    """Change the bytes of these records and the counts of their pages."""
    by_page: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for one in places:
        page = (one.mapping_version, one.partition, one.generation, one.offset)
        by_page[page].append(one.index)
    if not by_page:
        return
    names = ("mapping_versions", "partitions", "generations", "offsets")
    asked = {
        name: list(column) for name, column in zip(names, zip(*by_page, strict=True), strict=True)
    }
    changed = []
    for version, partition, generation, offset, stored, first in connection.execute(
        _LEDGER["outcomes_of"], asked
    ):
        outcomes = bytearray(stored)
        for index in by_page[version, partition, generation, offset]:
            outcomes[index - first] = outcome
        if outcomes != stored:
            changed.append(
                {
                    "mapping_version": version, "partition": partition, "generation": generation,
                    "offset": offset, "outcomes": bytes(outcomes), "counts": counts(outcomes),
                }
            )  # fmt: skip
    if changed:
        connection.cursor().executemany(_LEDGER["set_outcomes"], changed)


def heal_coverage(connection: Connection, where: Where, scope: str) -> None:
    """An exception of this interval ended well: its stretch has one error less, if it counted it."""
    _coverage(connection, "coverage_healed", where, scope)


def hurt_coverage(connection: Connection, where: Where, scope: str) -> None:
    """An exception of this interval counts again: its stretch has one error more."""
    _coverage(connection, "coverage_hurt", where, scope)


def _coverage(connection: Connection, name: str, where: Where, scope: str) -> None:
    start, _, end = scope.partition("~")
    span = span_of(start, end)
    if span is not None:
        values = {**asdict(where), "start": span[0], "end": span[1]}
        connection.execute(_MARKS[name], values)

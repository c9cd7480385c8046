"""A position of a keyset, asked by itself: what stands behind a record. Pure.

What stood behind it on its page must stand there again, those of its own time too. A record that
moved meanwhile is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ops.probe.evidence import Behind, Evidence
from ops.probe.model import Question, Refused, Row, Sight, Steps, ask
from ops.probe.walking import Scope, Walked
from schemas.definitions.source import Turn

_PLACES_MAX = 3


@dataclass(frozen=True, slots=True)
class _Place:
    """The record `at` a page, and the question that showed the page."""

    question: Question
    sight: Sight
    at: int

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.sight.rows

    @property
    def tied(self) -> bool:
        """Whether the next record shares its time."""
        return self.rows[self.at].time == self.rows[self.at + 1].time

    @property
    def behind(self) -> Question:
        """What is asked to go on from here, as the walk asks it behind a page."""
        time, id_ = self.sight.page.positions[self.at]
        assert time is not None and id_ is not None
        return replace(
            self.question, values={**self.question.values, "after.time": time, "after.id": id_}
        )


def behind(scope: Scope, evidence: Evidence) -> Steps[None]:
    """Asks behind a few records, first where the next one shares their time."""
    if scope.turn is not Turn.KEYSET or not evidence.sample.rows:
        return
    found = evidence.behind = Behind()
    for place in _places(evidence.sample):
        answer = yield from ask(place.behind)
        if isinstance(answer, Refused):
            found.refused = answer.why
            return
        still = yield from ask(place.question)
        if isinstance(still, Refused):
            return
        _note(found, place, _steady(place.rows, still.rows), answer.rows)


def _places(sample: Walked) -> list[_Place]:
    """Some that share their time with the next, and some in the middle of pages."""
    ties, others = [], []
    for question, sight in sample.pages:
        places = list(_askable(question, sight))
        ties += [place for place in places if place.tied]
        middle = [place for place in places if not place.tied]
        others += middle[len(middle) // 2 :][:_PLACES_MAX]
    return [*ties[: _PLACES_MAX - 1], *others][:_PLACES_MAX]


def _askable(question: Question, sight: Sight) -> Iterator[_Place]:
    for at, position in enumerate(sight.page.positions[:-1]):
        if None not in position:
            yield _Place(question, sight, at)


def _steady(before: Sequence[Row], after: Sequence[Row]) -> set[tuple[str, int | None]]:
    """The rows that stand where they stood."""
    return _keys(before) & _keys(after)


def _keys(rows: Sequence[Row]) -> set[tuple[str, int | None]]:
    return {(row.id, row.time) for row in rows}


def _note(
    found: Behind, place: _Place, steady: set[tuple[str, int | None]], shown: Sequence[Row]
) -> None:
    here = place.rows[place.at]
    if (here.id, here.time) not in steady:
        return
    rows = [row for row in place.rows if (row.id, row.time) in steady]
    at = [row.id for row in rows].index(here.id)
    got = _keys(shown)
    before = [row for row in rows[: at + 1] if (row.id, row.time) in got]
    found.told += 1
    found.again += len(before)
    if any(row.time != here.time for row in before):
        found.begins_again = True
        return
    # What comes again takes the place of as many at the end of the page.
    wanted = rows[at + 1 :][: len(shown) - len(before)] if before else rows[at + 1 :]
    missed = [row for row in wanted if (row.id, row.time) not in got]
    found.ties += any(row.time == here.time for row in rows[at + 1 :])
    found.passed_ties += sum(row.time == here.time for row in missed)
    found.passed += len(missed)

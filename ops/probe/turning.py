"""Pages, tokens and cursors: how large, how steady, how often of use. Pure: generators of questions."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ingest.plans.protocol import Value
from ops.probe.evidence import Cap, Cursor, Evidence, Listing, Token
from ops.probe.model import Question, Refused, Sight, Steps, ask, pause
from ops.probe.sampling import times_of
from ops.probe.walking import Scope, Walked, cursor_after, start_of_feed, walk
from schemas.definitions.source import CursorSpec, Turn

_SIZE_MAX = 10_000
_LATER_S = 3.0


def _first_values(scope: Scope, evidence: Evidence) -> dict[str, Value]:
    """What the sample asked, without what turned its pages."""
    return scope.window(*scope.asked(evidence.sample.pages[0][0].values))


def _begin(scope: Scope, evidence: Evidence) -> dict[str, Value]:
    spec = scope.spec
    first = start_of_feed(spec) if isinstance(spec, CursorSpec) else {}
    return {**_first_values(scope, evidence), **first}


def cap(scope: Scope, evidence: Evidence) -> Steps[None]:
    """How many records a page really holds. A page is full if one with further records follows."""
    if scope.turn is None or not evidence.sample.rows:
        return
    found = evidence.cap = Cap(asked=scope.size)
    pages = [sight for _, sight in evidence.sample.pages]
    found.largest = max(len(sight.rows) for sight in pages)
    found.sizes = _full(pages)
    if not scope.by_size or scope.size is None or not found.sizes:
        return
    given = found.sizes[0]
    if given >= scope.size:
        found.more_asked = min(10 * scope.size, max(_SIZE_MAX, scope.size))
        walked = yield from walk(scope, _begin(scope, evidence), pages_max=2, size=found.more_asked)
        if walked.pages:
            found.more_given = len(walked.pages[0][1].rows)
            found.more_full = bool(_full([sight for _, sight in walked.pages]))
        elif walked.refused is not None:
            found.refused = walked.refused.why
    elif scope.turn is Turn.PAGE:
        yield from _skips(scope, evidence, found, given)


def _full(pages: list[Sight]) -> list[int]:
    """The sizes of the pages that another page with further records follows."""
    return [
        len(one.rows)
        for one, after in itertools.pairwise(pages)
        if {(row.id, row.content) for row in after.rows}
        - {(row.id, row.content) for row in one.rows}
    ]


def _skips(scope: Scope, evidence: Evidence, found: Cap, given: int) -> Steps[None]:
    """Whether page 2 of the asked size begins where page 1 of the given size ended."""
    question, second = evidence.sample.pages[1]
    exact = replace(question, values={**question.values, "size": given})
    answer = yield from ask(exact)
    if not isinstance(answer, Refused) and answer.rows and second.rows and scope.size:
        # Most of them, since rows of one time may stand in any order.
        passed_over = {row.id for row in answer.rows[: scope.size - given]}
        shown = passed_over & {row.id for row in second.rows}
        found.skips = 2 * len(shown) < len(passed_over)


def walks(scope: Scope, evidence: Evidence, times: int) -> Steps[None]:
    """The same walk several times, with pages small enough that there are several."""
    sample = evidence.sample
    if not sample.rows or (not _full([sight for _, sight in sample.pages]) and not scope.by_size):
        return
    size = None
    if scope.by_size and scope.size is not None:
        here = len(sample.pages[0][1].rows)
        size = max(1, min(scope.size, here if len(sample.pages) > 2 else here // 3 + 1))
    for _ in range(times):
        again = Walked()
        evidence.walks.append(again)
        yield from walk(scope, _begin(scope, evidence), pages_max=3, size=size, into=again)
        if again.refused is not None:
            return


def _second_page(evidence: Evidence) -> tuple[Question, Sight] | None:
    """A question that was asked with a token, and what it showed."""
    for walked in (*evidence.walks[:1], evidence.sample):
        if len(walked.pages) > 1 and walked.pages[1][1].rows:
            return walked.pages[1]
    return None


def token(scope: Scope, evidence: Evidence) -> Steps[None]:
    """The token of a second page: again, from elsewhere, with another window."""
    if scope.turn not in (Turn.TOKEN, Turn.LINK):
        return
    second = _second_page(evidence)
    if second is None:
        return
    question, sight = second
    found = evidence.token = Token(first=sight)
    found.again = yield from ask(question)
    found.apart = yield from ask(replace(question, apart=True))
    start = question.values.get("start")
    times = times_of(evidence)
    if scope.turn is Turn.TOKEN and scope.by_start and isinstance(start, int) and times:
        middle = sorted(times)[len(times) // 2]
        other = max(start + scope.unit, middle - middle % scope.unit)
        found.other = yield from ask(replace(question, values={**question.values, "start": other}))


def token_at_last(evidence: Evidence) -> Steps[None]:
    """The same token once more, when everything else was asked."""
    found, second = evidence.token, _second_page(evidence)
    if found is None or found.first is None or second is None:
        return
    found.last = yield from ask(second[0])
    if not isinstance(found.last, Refused):
        found.age_us = found.last.received - found.first.sent


def goes_on(scope: Scope, evidence: Evidence) -> Steps[None]:
    """A feed that is asked behind what was seen must not begin again."""
    reached = cursor_after(scope, evidence.sample)
    if reached is None or not evidence.sample.rows:
        return
    found = evidence.cursor = Cursor()
    question = Question(scope.spec.plan, {**evidence.sample.pages[0][0].values, "cursor": reached})
    answer = yield from ask(question)
    if isinstance(answer, Refused):
        found.refused = answer.why
        return
    found.first = answer
    known = {(row.id, row.content) for row in evidence.sample.rows}
    found.known_again = sum((row.id, row.content) in known for row in answer.rows)
    first = {(row.id, row.content) for row in evidence.sample.pages[0][1].rows}
    found.all_again = len(first) > 1 and first <= {(r.id, r.content) for r in answer.rows}
    found.again = yield from ask(question)
    found.apart = yield from ask(replace(question, apart=True))


def lists_all(evidence: Evidence, changes: Evidence | None) -> Steps[None]:
    """Whether a whole listing has what the changes show: what it lacks would count as deleted."""
    if not evidence.sample.ended or changes is None or not changes.sample.pages:
        return
    question, sight = changes.sample.pages[0]
    known = {row.id for row in sight.rows if not row.gone}
    listed = {row.id for row in evidence.sample.rows}
    lacking = known - listed
    if not known & listed:
        return  # nothing to compare: changes and listing speak of their records by other ids
    if lacking:
        answer = yield from ask(question)
        if isinstance(answer, Refused):
            return
        lacking &= {row.id for row in answer.rows if not row.gone}
    evidence.listing = Listing(len(known), len(lacking))


def feed_at_last(scope: Scope, evidence: Evidence) -> Steps[None]:
    """What a feed shows behind its cursor of before: perhaps the first deletes."""
    reached = cursor_after(scope, evidence.sample)
    if evidence.cursor is None or evidence.cursor.first is None or reached is None:
        return
    values = {**evidence.sample.pages[0][0].values, "cursor": reached}
    yield from pause(_LATER_S)
    answer = yield from ask(Question(scope.spec.plan, values))
    if not isinstance(answer, Refused):
        evidence.looked.append(answer)

"""Some records of a plan, and whether its window is obeyed. Pure: generators of questions."""

from __future__ import annotations

from collections.abc import Mapping

from ingest.plans.protocol import Value
from ops.probe.ends import Ends, Seen, choose, find_ends
from ops.probe.evidence import Evidence, Filtered
from ops.probe.model import Row, Steps
from ops.probe.servers import Beliefs
from ops.probe.walking import Scope, Walked, finer_units, walk

S = 1_000_000
DAY = 86_400 * S
_PAGES = 3
_SPAN_US = 3 * DAY
_LONG_AGO_US = 3_650 * DAY
"""Before whatever other field a server may filter by, so that only an ignored end finds anything."""
_NARROWER = (30 * DAY, DAY, 3_600 * S, 60 * S)


def _past(scope: Scope) -> dict[str, Value]:
    """From the declared start until soon."""
    unit = scope.unit
    start = scope.interval.start_us
    if start is None:
        start = scope.now - 30 * DAY
    end = scope.now + DAY
    return scope.window(start - start % unit, end - end % unit)


def sample_interval(scope: Scope, evidence: Evidence) -> Steps[None]:
    """Some records, by ever narrower windows if the provider refuses; then without any window."""
    past = _past(scope)
    yield from walk(scope, past, pages_max=_PAGES, into=evidence.sample)
    for width in _NARROWER:
        if evidence.sample.refused is None or not scope.by_start:
            break
        evidence.why_not.setdefault("walks", f"wider windows: {evidence.sample.refused.why}")
        start = scope.now - width
        narrower = scope.window(start - start % scope.unit, scope.asked(past)[1])
        evidence.sample = Walked()
        yield from walk(scope, narrower, pages_max=_PAGES, into=evidence.sample)
    if evidence.sample.rows or evidence.sample.refused is not None:
        return
    unfiltered = yield from walk(scope, {}, pages_max=1)
    evidence.unfiltered = bool(unfiltered.rows)
    evidence.empty = not unfiltered.rows
    if evidence.unfiltered:
        yield from _reversed(scope, evidence, past)


def _reversed(scope: Scope, evidence: Evidence, past: Mapping[str, Value]) -> Steps[None]:
    """Nothing was found in a window that must hold records: perhaps its ends are exchanged."""
    found = Filtered(why="the window of all of the past finds nothing, though records are there")
    evidence.filtered = found
    start, end = scope.asked(past)
    exchanged: dict[str, Value] = {}
    if scope.by_start and scope.by_end:
        exchanged = scope.window(end, start)
    elif scope.by_start:
        exchanged = scope.window(scope.now + DAY - (scope.now + DAY) % scope.unit, None)
    elif end is not None:
        exchanged = scope.window(None, end - _LONG_AGO_US)
    walked = yield from walk(scope, exchanged, pages_max=1)
    found.reversed = bool(walked.rows)


def sample_feed(scope: Scope, evidence: Evidence, first: Mapping[str, Value]) -> Steps[None]:
    """Some records of a feed or a listing, from its beginning."""
    yield from walk(scope, first, pages_max=_PAGES, into=evidence.sample)
    evidence.empty = not evidence.sample.rows and evidence.sample.refused is None


def _seen(evidence: Evidence) -> list[Seen]:
    """The records of the first page, which can be asked for again without a token."""
    found: dict[str, Seen] = {}
    for question, sight in evidence.sample.pages:
        for row in sight.rows:
            found.setdefault(row.id, Seen(row, question))
        if found:
            break
    return list(found.values())


def times_of(evidence: Evidence) -> list[int]:
    return [row.time for row in evidence.sample.rows if row.time is not None]


def filter_works(scope: Scope, evidence: Evidence) -> Steps[None]:
    """Windows wholly behind and wholly before everything known must hold none of it."""
    times = times_of(evidence)
    if evidence.filtered is not None or not times:
        return
    found = evidence.filtered = Filtered()
    unit, newest = scope.unit, max(*times, scope.now)
    if scope.by_start:
        after = newest + _SPAN_US - (newest + _SPAN_US) % unit
        found.start_ignored = yield from _finds(
            scope, evidence, scope.window(after, after + DAY), found
        )
    if scope.by_end:
        first, _ = scope.asked(evidence.sample.pages[0][0].values)
        before = min(times) - _LONG_AGO_US if first is None else first
        if before + unit > max(times) - 2 * DAY:
            before = min(times) - _LONG_AGO_US
        before -= before % unit
        found.end_ignored = yield from _finds(
            scope, evidence, scope.window(before, before + unit), found
        )


def _finds(
    scope: Scope, evidence: Evidence, values: Mapping[str, Value], found: Filtered
) -> Steps[bool | None]:
    """Whether a window that must hold nothing holds what is known."""
    walked = yield from walk(scope, values, pages_max=1)
    if walked.refused is not None:
        found.why = walked.refused.why
        return None
    known = {(row.id, row.time) for row in evidence.sample.rows}
    newest = max(times_of(evidence))
    _, end = scope.asked(values)
    return any(
        (row.id, row.time) in known
        and (end is None or end > newest or (row.time or 0) > end + 2 * DAY)
        for row in walked.rows
    )


def ascending(rows: list[Row]) -> bool:
    """Whether times never fall."""
    times = [row.time for row in rows if row.time is not None]
    return len(set(times)) > 1 and times == sorted(times)


def descending(rows: list[Row]) -> bool:
    """Whether times never rise."""
    return ascending(rows[::-1])


def ends(scope: Scope, evidence: Evidence, most: int) -> Steps[None]:
    """Which ends are included, in which steps."""
    found = evidence.filtered
    if found is None or found.start_ignored or found.end_ignored or not times_of(evidence):
        return
    if not (scope.by_start or scope.by_end):
        return
    rows = evidence.sample.rows
    up, down = ascending(rows), descending(rows)
    exact = evidence.behind is not None and evidence.behind.exact
    finer = not exact and any(row.unit > 1 for row in rows)
    evidence.ends = Ends(Beliefs.all(scope.unit, finer=finer))
    evidence.ends.fine_refused = not finer_units(scope.interval.format)
    yield from find_ends(scope, choose(scope, _seen(evidence), up, down), up, most, evidence.ends)

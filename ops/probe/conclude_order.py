"""From evidence to findings about order: times, ties, positions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.plans.positions import out_of_order
from ops.probe.conclude_time import needs_of
from ops.probe.evidence import Evidence
from ops.probe.model import NOTHING, Finding, Row, unknown
from ops.probe.sampling import ascending, descending
from ops.probe.walking import Scope
from schemas.definitions.source import End, KeysetSpec, Order

_TIMES_MIN = 5
_TIES = "rows of one time at the edge of two pages"


def order_finding(scope: Scope, evidence: Evidence) -> Finding:
    """The order by time within a walk. Only an order that is not just that of the ids is proven."""
    name, declared = "order", scope.interval.order
    walks = [rows for rows in _walks(evidence) if len(rows) > 1]
    times = {row.time for rows in walks for row in rows if row.time is not None}
    if len(times) < 2:
        return unknown(name, declared, f"records of several times; {needs_of(evidence, 'sample')}")
    seen = Order.NONE
    if all(map(ascending, walks)):
        seen = Order.ASC
    elif all(map(descending, walks)):
        seen = Order.DESC
    if declared is not Order.NONE and seen is not declared:
        return Finding(name, declared, seen, _disorder(scope))
    if seen is Order.NONE or declared is seen:
        return Finding(name, declared, seen)
    if len(times) < _TIMES_MIN or not _crosses_ids(walks):
        return Finding(
            name,
            declared,
            f"{seen}, as the ids",
            needs="records that were changed after later ones were made",
        )
    return Finding(name, declared, seen, write={("order",): seen.value})


def _walks(evidence: Evidence) -> list[list[Row]]:
    """The rows of each walk; of each page where a position is ignored, and pages begin again."""
    walks = [evidence.sample, *evidence.walks]
    if evidence.behind is not None and evidence.behind.begins_again:
        return [list(sight.rows) for walked in walks for _, sight in walked.pages]
    return [walked.rows for walked in walks]


def _disorder(scope: Scope) -> str:
    """What an order that is not kept loses; a walk that relies on it stalls where it sees that."""
    if isinstance(scope.spec, KeysetSpec):
        return "rows behind the last one of a page; the stream stalls"
    if scope.by_start and scope.by_end:
        return NOTHING
    return "rows behind the page on which a walk stops; the stream stalls"


def _crosses_ids(walks: Sequence[Sequence[Row]]) -> bool:
    """Whether ids neither rise nor fall with the listing: then time alone explains the order."""
    for rows in walks:
        ids = [_as_number(row.id) for row in rows]
        if ids in (sorted(ids), sorted(ids, reverse=True)):
            return False
    return True


def _as_number(text: str) -> tuple[int, int, str]:
    digits = text.removeprefix("json:")
    return (0, int(digits), "") if digits.isdecimal() else (1, 0, text)


def ties_finding(scope: Scope, evidence: Evidence) -> Finding:
    """How records of one time follow each other; a keyset goes on by their ids."""
    by_position = isinstance(scope.spec, KeysetSpec)
    name, declared = "order of ties", "by id" if by_position else "any"
    groups = [_ties(walked.rows) for walked in (evidence.sample, *evidence.walks)]
    ties = [tie for group in groups for tie in group.values()]
    if not ties:
        wanted = "records that share a time"
        return unknown(
            name, declared, wanted if evidence.sample.rows else needs_of(evidence, "walks")
        )
    if _differ(groups):
        return Finding(name, declared, "changes", _TIES if scope.stable else NOTHING)
    if all(tie == sorted(tie, key=_as_number) for tie in ties):
        return Finding(name, declared, "by id")
    loses = f"{_TIES}; the stream stalls" if by_position and _disordered(evidence) else NOTHING
    if all(tie == sorted(tie, key=_as_number, reverse=True) for tie in ties):
        return Finding(name, declared, "by id, falling", loses)
    return Finding(name, declared, f"the same, {len(groups)} of {len(groups)}", loses)


def _ties(rows: Sequence[Row]) -> dict[int, list[str]]:
    """The ids of records that share a time, in order of appearance, each once."""
    by_time: dict[int, dict[str, None]] = {}
    for row in rows:
        if row.time is not None:
            by_time.setdefault(row.time, {})[row.id] = None
    return {time: list(ids) for time, ids in by_time.items() if len(ids) > 1}


def _differ(groups: Sequence[dict[int, list[str]]]) -> bool:
    """Whether two walks order the ids that both show under one time differently."""
    for number, one in enumerate(groups):
        for other in groups[number + 1 :]:
            for time in one.keys() & other.keys():
                shared = set(one[time]) & set(other[time])
                if [i for i in one[time] if i in shared] != [i for i in other[time] if i in shared]:
                    return True
    return False


def _disordered(evidence: Evidence) -> bool:
    """Whether ingest would find a page that it must not go on behind."""
    return any(
        out_of_order(sight.page.positions, sight.page.times, (None, None), None) is not None
        for sight in evidence.sights()
    )


def position_finding(scope: Scope, evidence: Evidence) -> Finding:
    """Whether a keyset goes on behind the time and the id of the record that was read last."""
    name, declared, found = "position", "goes on", evidence.behind
    if found is not None and found.refused is not None:
        return Finding(name, declared, "refused", "nothing, but it stalls", found.refused)
    if found is None or not found.told:
        return unknown(name, declared, needs_of(evidence, "behind"))
    if found.begins_again:
        costs = "nothing, but its pages go in a circle"
        return Finding(name, declared, "begins again", costs)
    if found.passed:
        ties = found.passed == found.passed_ties
        lost = f"passes over {found.passed} {'ties' if ties else 'rows'}"
        return Finding(name, declared, lost, _TIES if ties else "rows at the edge of two pages")
    observed = declared if not found.again else f"goes on, {found.again} again"
    if not found.ties:
        wanted = "records that share a time"
        return Finding(name, declared, f"{observed}, no ties seen", needs=wanted)
    return Finding(name, declared, observed, _circle(scope) if found.again else NOTHING)


def _circle(scope: Scope) -> str:
    """What a position costs that includes its own record: a last page that never ends."""
    pages = scope.spec.request.pages
    ends = pages is not None and pages.end is End.NOTHING_NEW
    return NOTHING if ends else "nothing, but its pages go in a circle"

"""From evidence to findings about time: filter, bounds, granularity, lateness. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ops.probe.evidence import Evidence, Look, clock_of
from ops.probe.losses import any_edge_is_missed, late_rows_are_lost
from ops.probe.model import NOTHING, UNKNOWN, Finding, unknown
from ops.probe.servers import Server
from ops.probe.walking import Scope
from schemas.definitions.durations import format_duration
from schemas.definitions.source import Bounds, KeysetSpec

S = 1_000_000
EMPTY = "records: the collection has none that could be asked for"
_WRITTEN = "a collection that is written to while it is probed"
_ALL_OF_THE_NEWEST = (
    "looks that certainly show all of the newest records: newest first, or a window that starts with "
    "`{start}` and leaves room on its first page"
)
_OWN_TIME = "the field that the server filters by as `time`, and its `zone`"


def filter_finding(scope: Scope, evidence: Evidence) -> Finding:
    """Whether the window is obeyed, in the right direction, and by the declared field."""
    name, declared = "filter, direction", "works"
    found, ends = evidence.filtered, evidence.ends
    if not (scope.by_start or scope.by_end):
        return Finding(name, "none", "none is sent")
    if evidence.unfiltered:
        if found is not None and found.reversed:
            return Finding(name, declared, "reversed", "everything: each window finds nothing")
        return Finding(
            name, declared, "finds nothing", "everything: the window of all of the past is empty"
        )
    if found is None:
        return unknown(name, declared, needs_of(evidence, "filter"))
    ignored = [
        f"{{{end}}}"
        for end, is_ignored in zip(
            scope.ends, (found.start_ignored, found.end_ignored), strict=True
        )
        if is_ignored
    ]
    if ignored:
        circle = found.start_ignored and isinstance(scope.spec, KeysetSpec)
        costs = "nothing, but its pages go in a circle" if circle else NOTHING
        return Finding(name, declared, f"{' and '.join(ignored)} ignored", costs)
    if ends is not None and ends.strayed:
        lost = f"changes: {ends.strayed} of {ends.strayed + ends.told} records are not in a window"
        return Finding(
            name, declared, "by another field or zone", f"{lost} around their own time", _OWN_TIME
        )
    if ends is not None and ends.told:
        return Finding(name, declared, "works")
    asked = [found.start_ignored] * scope.by_start + [found.end_ignored] * scope.by_end
    if None in asked:
        return unknown(name, declared, found.why or needs_of(evidence, "filter"))
    # By which field it filters has not been seen.
    return Finding(name, declared, "obeyed", UNKNOWN, needs_of(evidence, "ends"))


def bounds_finding(scope: Scope, evidence: Evidence) -> Finding:
    """Which ends the server includes."""
    name, declared = "bounds", scope.interval.bounds.value
    servers = _servers(evidence)
    if not (scope.by_start or scope.by_end):
        return Finding(name, declared, "no window is sent")
    if servers is None:
        return unknown(name, declared, needs_of(evidence, "ends"))
    observed = _bounds_text(scope, servers)
    loses = _edge_loss(scope, servers, _unit(scope))
    proven = _bounds(scope, servers)
    if proven is None:
        needs = "a record stamped exactly at a time that can be asked"
        if any(server.finer for server in servers):
            needs += "; stamps may be stored finer than they are shown"
        return Finding(name, declared, observed, loses, needs)
    write: dict[tuple[str, ...], str | int] = {}
    if proven is not scope.interval.bounds and not any_edge_is_missed(
        servers, proven, _safe_unit(scope, servers), by_start=scope.by_start, by_end=scope.by_end
    ):
        write[("bounds",)] = proven.value
    return Finding(name, declared, observed, loses, write=write)


def granularity_finding(scope: Scope, evidence: Evidence) -> Finding:
    """The step in which the server compares, the one it shows, the one it stores."""
    name, declared = "granularity", format_duration(scope.interval.granularity_us)
    shown = {row.unit for row in evidence.rows() if row.time is not None}
    servers = _servers(evidence)
    if not shown:
        return unknown(name, declared, needs_of(evidence, "sample"))
    unit = format_duration(min(shown))
    if servers is None:
        return Finding(name, declared, f"shown {unit}", UNKNOWN, needs=needs_of(evidence, "ends"))
    steps = {max(server.step, scope.unit) for server in servers}
    step = format_duration(next(iter(steps))) if len(steps) == 1 else UNKNOWN
    stored = _stored(servers, unit)
    write: dict[tuple[str, ...], str | int] = {}
    if len(steps) == 1 and max(steps) > scope.interval.granularity_us:
        write[("granularity",)] = step
    open_ends = [s for s in servers if not s.start_closed and not s.end_closed]
    wide = [s for s in open_ends if s.step > _unit(scope)]
    loses = _edge_loss(scope, wide, _unit(scope)) if wide else NOTHING
    if loses != NOTHING and len(wide) < len(servers):
        loses = f"perhaps {loses.removeprefix('perhaps ')}"
    return Finding(name, declared, f"{step}, {stored}", loses, write=write)


def _stored(servers: Sequence[Server], unit: str) -> str:
    if all(not server.finer for server in servers):
        return f"stored {unit}"
    if all(server.finer for server in servers):
        return f"shown {unit}, stored finer"
    return f"shown {unit}"


def late_finding(scope: Scope, evidence: Evidence) -> Finding:
    """How long after its stamp a row can be found."""
    spec = scope.interval
    settle, lookback = spec.settle_us, spec.lookback_us
    name = "visible after"
    declared = f"settle {'none' if settle is None else format_duration(settle)}"
    clock = clock_of(evidence.sights())
    if len(evidence.looks) < 2 or clock is None:
        return unknown(name, declared, needs_of(evidence, "looks"))
    fresh, late = _arrivals(evidence.looks, clock.earliest, clock.latest)
    if not fresh and not late:
        told = any(look.floor is not None for look in evidence.looks[:-1])
        return unknown(name, declared, _WRITTEN if told else _ALL_OF_THE_NEWEST)
    if not late:
        seen = f"at once, {len(fresh)} new {'row' if len(fresh) == 1 else 'rows'}"
        return Finding(name, declared, seen)
    least, most = max(low for low, _ in late), max(high for _, high in late)
    observed = f"up to {_seconds(most)}"
    if late_rows_are_lost(least, settle, lookback):
        return Finding(name, declared, observed, "rows that show later than `settle`")
    if least > (settle or 0):
        return Finding(name, declared, observed, "nothing: `lookback` finds them again")
    return Finding(name, declared, observed)


def _arrivals(
    looks: Sequence[Look], earliest: Callable[[int], int], latest: Callable[[int], int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """New rows that came in time, and the lag of those that came late: at least, at most."""
    fresh: list[int] = []
    late: list[tuple[int, int]] = []
    known = {(row.id, row.time) for row in looks[0].rows}
    for before, look in itertools.pairwise(looks):
        for row in look.rows:
            if (row.id, row.time) in known or row.time is None:
                continue
            known.add((row.id, row.time))
            if before.floor is None or row.time <= before.floor:
                continue
            least = earliest(before.sent) - row.time - row.unit
            if least > 0:
                late.append((least, latest(look.received) - row.time))
            else:
                fresh.append(row.time)
    return fresh, late


def why_not(evidence: Evidence, experiment: str) -> str | None:
    """Why an experiment was given up; also one that had too little of the sample to begin with."""
    return evidence.why_not.get(experiment) or evidence.why_not.get("sample")


def needs_of(evidence: Evidence, experiment: str) -> str:
    """Why an experiment told nothing, and what it would need."""
    if known := why_not(evidence, experiment):
        return known
    if evidence.empty:
        return EMPTY
    if evidence.sample.refused is not None:
        return f"an answer: {evidence.sample.refused.why}"
    if evidence.filtered is not None and (
        evidence.filtered.start_ignored or evidence.filtered.end_ignored
    ):
        return "a filter that is obeyed"
    if not any(row.time is not None for row in evidence.sample.rows):
        return "records with a readable time"
    return "records that do not change while they are asked for"


def _servers(evidence: Evidence) -> tuple[Server, ...] | None:
    ends = evidence.ends
    if ends is None or not ends.told or not ends.beliefs.held:
        return None
    return ends.beliefs.servers


def _bounds(scope: Scope, servers: Sequence[Server]) -> Bounds | None:
    """The bounds, if they are certain; an end that is not sent counts as excluded."""
    starts = {server.start_closed for server in servers} if scope.by_start else {True}
    ends = {server.end_closed for server in servers} if scope.by_end else {False}
    if len(starts) > 1 or len(ends) > 1:
        return None
    return Bounds(("[" if starts.pop() else "(") + ("]" if ends.pop() else ")"))


def _bounds_text(scope: Scope, servers: Sequence[Server]) -> str:
    """`[)`, with `?` at an end that is not certain and `·` at one that is not asked."""
    starts = {server.start_closed for server in servers}
    ends = {server.end_closed for server in servers}
    left = "?" if len(starts) > 1 else "[" if starts.pop() else "("
    right = "?" if len(ends) > 1 else "]" if ends.pop() else ")"
    return (left if scope.by_start else "·") + (right if scope.by_end else "·")


def _unit(scope: Scope) -> int:
    """The step by which ends are widened."""
    return max(scope.interval.granularity_us, scope.unit)


def _safe_unit(scope: Scope, servers: Sequence[Server]) -> int:
    """The same once a proven granularity is written, too."""
    steps = {max(server.step, scope.unit) for server in servers}
    return max(_unit(scope), *steps) if len(steps) == 1 else _unit(scope)


def _edge_loss(scope: Scope, servers: Sequence[Server], unit: int) -> str:
    declared = scope.interval.bounds
    given = {"by_start": scope.by_start, "by_end": scope.by_end}
    if not any_edge_is_missed(servers, declared, unit, **given):
        return NOTHING
    certain = all(any_edge_is_missed([one], declared, unit, **given) for one in servers)
    step = max(server.step for server in servers)
    rows = "rows stamped exactly" if step <= unit else f"rows of the {format_duration(step)}"
    return f"{'' if certain else 'perhaps '}{rows} where two windows meet"


def _seconds(us: int) -> str:
    return f"{us / S:.1f} s" if us < 10 * S else f"{us // S} s"

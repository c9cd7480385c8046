"""The whole probe of one stream: the next question, the evidence of the answers, the findings.

Pure: whoever drives it asks, waits, and says when no more may be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ops.probe.conclude_order import order_finding, position_finding, ties_finding
from ops.probe.conclude_pages import (
    cap_finding,
    cursor_findings,
    deletes_finding,
    listing_finding,
    token_findings,
    walks_finding,
)
from ops.probe.conclude_time import (
    bounds_finding,
    filter_finding,
    granularity_finding,
    late_finding,
)
from ops.probe.evidence import Evidence
from ops.probe.experiments import changes_experiments, snapshot_experiments
from ops.probe.model import Answer, Finding, Pause, Question, Refused, Spent, Steps
from ops.probe.walking import Scope
from schemas.definitions.source import CursorSpec, IntervalSpec, KeysetSpec, StreamSpec

MORE = "a larger --requests"
_FOR_SNAPSHOT = 12


@dataclass(slots=True)
class _Part:
    """One plan of the stream: its experiments in order, and how many questions it may ask."""

    scope: Scope
    evidence: Evidence
    experiments: list[tuple[str, Steps[None]]]
    budget: int


class Trial:
    """`now_us`: local clock; `budget`: questions for all plans of the stream."""

    def __init__(self, stream: StreamSpec, now_us: int, budget: int) -> None:
        self._stream = stream
        self._parts = list(_parts(stream, now_us, budget))
        self._left = list(self._parts)
        self._step: Question | Pause | None = None
        self._stopped: str | None = None
        self._on()

    @property
    def next(self) -> Question | Pause | None:
        """What to do now; None: the probe is over."""
        return self._step

    def take(self, answer: Answer | None) -> None:
        """The answer to the question; None after a pause."""
        part = self._left[0]
        if isinstance(self._step, Question):
            part.budget -= 1
        self._on(answer, begun=True)

    def stop(self, why: str) -> None:
        """No more may be asked: what is open stays unknown, for this reason."""
        self._stopped = why
        for part in self._left:
            for name, _ in part.experiments:
                part.evidence.why_not.setdefault(name, why)
        self._left.clear()
        self._step = None

    @property
    def unanswered(self) -> str | None:
        """Why not a single record or empty page was seen; None if there was one."""
        if any(part.evidence.sample.pages for part in self._parts):
            return None
        refused = [part.evidence.sample.refused for part in self._parts]
        why = next((one.why for one in refused if isinstance(one, Refused)), MORE)
        return self._stopped or why

    def findings(self) -> list[tuple[str, Finding]]:
        """All findings, each with the plan that it is about."""
        return [
            (part.scope.spec.plan, finding)
            for part in self._parts
            for finding in _findings(self._stream, part.scope, part.evidence)
        ]

    def _on(self, answer: Answer | None = None, *, begun: bool = False) -> None:
        """Goes on to the next question that may be asked, of this or a later experiment."""
        while self._left:
            part = self._left[0]
            if not part.experiments:
                spared = self._left.pop(0).budget
                if self._left:
                    self._left[0].budget += max(0, spared)
                continue
            name, steps = part.experiments[0]
            try:
                step = steps.send(answer) if begun else next(steps)
                if part.budget <= 0 and isinstance(step, Question):
                    steps.throw(Spent(MORE))
            except StopIteration:
                part.experiments.pop(0)
            except Spent as spent:
                part.evidence.why_not.setdefault(name, str(spent))
                part.experiments.pop(0)
            else:
                self._step = step
                return
            answer, begun = None, False
        self._step = None


def _parts(stream: StreamSpec, now_us: int, budget: int) -> Iterator[_Part]:
    changes, snapshot = stream.changes, stream.snapshot
    kept, shown = 0, None
    if changes is not None and snapshot is not None:
        kept = min(_FOR_SNAPSHOT, budget // 4)
    if changes is not None:
        scope, evidence = Scope(changes, now_us), Evidence()
        mine, shown = budget - kept, evidence
        yield _Part(scope, evidence, changes_experiments(scope, evidence, mine), mine)
    if snapshot is not None:
        scope, evidence = Scope(snapshot, now_us), Evidence()
        mine = budget if changes is None else kept
        yield _Part(scope, evidence, snapshot_experiments(scope, evidence, shown), mine)


def _findings(stream: StreamSpec, scope: Scope, evidence: Evidence) -> Iterator[Finding]:
    if isinstance(scope.spec, IntervalSpec):
        yield filter_finding(scope, evidence)
        yield bounds_finding(scope, evidence)
        yield granularity_finding(scope, evidence)
        yield order_finding(scope, evidence)
        yield ties_finding(scope, evidence)
        if isinstance(scope.spec, KeysetSpec):
            yield position_finding(scope, evidence)
    elif isinstance(scope.spec, CursorSpec):
        yield from cursor_findings(scope, evidence)
    if scope.spec is stream.snapshot and stream.changes is not None:
        yield listing_finding(evidence)
    for finding in (cap_finding(scope, evidence), walks_finding(scope, evidence)):
        if finding is not None:
            yield finding
    yield from token_findings(scope, evidence)
    if isinstance(scope.spec, IntervalSpec):
        yield late_finding(scope, evidence)
    if scope.spec is stream.changes:
        yield deletes_finding(stream, evidence)

"""The experiments on one plan, in the order of what they can lose. Pure.

Each is bounded; together they stay within the budget that the driver enforces.
"""

from __future__ import annotations

from ops.probe.behind import behind
from ops.probe.evidence import Evidence
from ops.probe.looking import looks
from ops.probe.model import Steps
from ops.probe.sampling import ends, filter_works, sample_feed, sample_interval
from ops.probe.turning import cap, feed_at_last, goes_on, lists_all, token, token_at_last, walks
from ops.probe.walking import Scope, start_of_feed
from schemas.definitions.source import CursorSpec, IntervalSpec

_ENDS_SHARE = 0.4
_ROOMY = 40
"""From so many requests on, a walk is made three times."""


def changes_experiments(
    scope: Scope, evidence: Evidence, budget: int
) -> list[tuple[str, Steps[None]]]:
    """What is asked of the plan for changes; `budget`: requests for the whole stream."""
    if not isinstance(scope.spec, IntervalSpec):
        return _feed_experiments(scope, evidence, budget)
    most = max(6, int(budget * _ENDS_SHARE))
    return [
        ("sample", sample_interval(scope, evidence)),
        ("filter", filter_works(scope, evidence)),
        ("behind", behind(scope, evidence)),
        ("ends", ends(scope, evidence, most)),
        ("cap", cap(scope, evidence)),
        ("walks", walks(scope, evidence, 3 if budget >= _ROOMY else 2)),
        ("token", token(scope, evidence)),
        ("looks", looks(scope, evidence)),
        ("token", token_at_last(evidence)),
    ]


def _feed_experiments(
    scope: Scope, evidence: Evidence, budget: int
) -> list[tuple[str, Steps[None]]]:
    first = start_of_feed(scope.spec) if isinstance(scope.spec, CursorSpec) else {}
    return [
        ("sample", sample_feed(scope, evidence, first)),
        ("cursor", goes_on(scope, evidence)),
        ("cap", cap(scope, evidence)),
        ("walks", walks(scope, evidence, 3 if budget >= _ROOMY else 2)),
        ("token", token(scope, evidence)),
        ("token", token_at_last(evidence)),
        ("deletes", feed_at_last(scope, evidence)),
    ]


def snapshot_experiments(
    scope: Scope, evidence: Evidence, changes: Evidence | None
) -> list[tuple[str, Steps[None]]]:
    """What is asked of the full listing; `changes`: what the changes of the stream have shown."""
    return [
        ("sample", sample_feed(scope, evidence, {})),
        ("listing", lists_all(evidence, changes)),
        ("cap", cap(scope, evidence)),
        ("walks", walks(scope, evidence, 2)),
        ("token", token(scope, evidence)),
        ("token", token_at_last(evidence)),
    ]

"""The first question of a stream, as it would be asked, with secrets as references. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode

from ingest.plans.protocol import Ask, Now, Plan, Step
from ingest.pollers import plans_of
from ingest.requests import placeholder_values, request_for
from schemas.definitions.secrets import Reference
from schemas.definitions.source import Bounds, IntervalSpec, PlanSpec, StreamSpec, Tenant
from schemas.definitions.templates import RenderError
from schemas.records import PlanState

_TIMEOUT_S = 30.0
_STEPS_MAX = 12
_READABLE = ":,{} ()<>='|"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked first of one plan. `scope`: an interval as `start~end`, or a walk's name."""

    partition_id: str
    plan: str
    scope: str
    request: str
    notes: tuple[str, ...]


def first_question(stream: StreamSpec, tenant: Tenant | None, now_us: int) -> Question | str:
    """The first question at this time, or why none can be asked."""
    plan = plans_of(stream, tenant, _TIMEOUT_S)[0]
    now = Now(now_us, now_us, now_us)
    ask = next_ask(plan, plan.begin(plan.adopt(None), now), now)
    if ask is None:
        return "nothing is to be asked: the stream's past has not begun"
    spec = stream.asked(plan.name, listing=ask.listing)
    try:
        request = written(ask, spec, tenant)
    except (RenderError, ValueError) as error:
        return str(error)
    return Question(
        partition_id=stream.partition_id(tenant.id if tenant else None),
        plan=plan.name,
        scope=ask.scope,
        request=request,
        notes=tuple(_notes(spec, ask, stream)),
    )


def next_ask(plan: Plan, state: PlanState, now: Now) -> Ask | None:
    """The plan's next question; steps that need no answer, such as a mark, are taken on the way."""
    for _ in range(_STEPS_MAX):
        found = plan.next(state, now)
        if not isinstance(found, Step):
            return found
        state = found.state
    return None


def written(ask: Ask, spec: PlanSpec, tenant: Tenant | None) -> str:
    """A question as people read it, with secrets as references.

    Raises RenderError or ValueError for a value that cannot be asked for.
    """
    values = placeholder_values(ask, spec, tenant, _as_reference)
    request = request_for(ask, spec, values, _as_reference)
    query = f"?{urlencode(request.params, safe=_READABLE)}" if request.params else ""
    body = f"  {json.dumps(request.body, ensure_ascii=False)}" if request.body is not None else ""
    path = request.path.replace("%7B", "{").replace("%7D", "}")
    return f"{request.method} {request.link or path}{query}{body}"


def _as_reference(reference: Reference) -> str:
    target = reference.target
    return f"{{{reference.kind}: {target if isinstance(target, str) else ' '.join(target)}}}"


def _notes(spec: PlanSpec, ask: Ask, stream: StreamSpec) -> list[str]:
    found = []
    if ask.listing and stream.parent is not None:
        found.append(f"The listing of {stream.parent.stream}; then once per record of it.")
    elif isinstance(spec, IntervalSpec) and spec.bounds is Bounds.UNKNOWN:
        found.append("One step wider at both ends: `bounds` is not declared.")
    if ask.run is not None:
        found.append(f"The run {ask.run}.")
    return found

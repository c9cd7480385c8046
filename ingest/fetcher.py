"""One owned partition id: asks what its plans want, in order, and emits what became of it.

One request at a time. The state moves only when an emission was taken; whatever interrupts a poll,
the plans begin again from that state with fresh passes.
"""

from __future__ import annotations

from dataclasses import replace

import structlog
from msgspec.structs import replace as changed

from ingest.control import is_paused
from ingest.emission import Emission, Emit, StreamState
from ingest.exchange import Access, Exchange, Got, WaitUntil, learn_clock
from ingest.http import FetchRefused, parsed
from ingest.observe import Origin, cut, observations
from ingest.plans.cursor import CursorPlan
from ingest.plans.opaque import keep
from ingest.plans.protocol import Ask, Now, Page, Plan, Refusal, Stall, Step
from ingest.reading import Read, empty_page, next_of, page_of
from ingest.requests import Request, placeholder_values, request_for
from ingest.responses import Answer
from ingest.schedule import US, Schedule, changes_due, due_at, snapshot_due
from ingest.split import NoRecords, Split, Unsplittable, split
from schemas.definitions.paths import MISSING
from schemas.definitions.source import CursorSpec, PlanSpec, StreamSpec, Tenant, Turn
from schemas.definitions.templates import RenderError
from schemas.failpoints import Hit
from schemas.records import Blocked, Observation, PlanState

_log = structlog.get_logger(__name__)
_REST_S = 1.0
"""A plan that stalled is asked again at the next schedule, and not sooner than this."""
_STATE_BYTES = 2_000


class PartitionPoller:
    """The fetch side of one partition id. `plans`: changes first. `now_us`: the wall clock."""

    def __init__(
        self,
        stream: StreamSpec,
        tenant: Tenant | None,
        access: Access,
        plans: tuple[Plan, ...],
        *,
        record_max_bytes: int,
        hit: Hit,
    ) -> None:
        self.partition_id = stream.partition_id(tenant.id if tenant else None)
        self._stream, self._tenant, self._access, self._hit = stream, tenant, access, hit
        self._plans = {plan.name: plan for plan in plans}
        self._record_max_bytes = record_max_bytes
        changes = stream.changes.plan if stream.changes else None
        self._schedule = Schedule(
            changes,
            int(stream.schedule.every_s * US),
            int(stream.snapshot.every_s * US) if stream.snapshot else None,
        )
        self._state = StreamState()
        self._held: dict[str, int] = {}
        self._blocked: dict[str, Blocked] = {}
        self._begun: set[str] = set()
        self._fresh = False

    @property
    def due_at(self) -> int:
        return due_at(self._state, self._schedule, self._held, self._access.now_us())

    def restore(self, state: StreamState | None) -> None:
        """Go on from what is durable; what was in flight never happened."""
        self._state = state or StreamState()
        self._held.clear()
        self._blocked.clear()
        if self._state.blocked is not None and not is_paused(self._state):
            self._blocked["restored"] = self._state.blocked
        self._fresh = False

    async def poll(self, emit: Emit) -> None:
        try:
            await self._poll(emit)
        except BaseException:
            self._fresh = False  # what was asked may not be part of the state
            raise

    async def _poll(self, emit: Emit) -> None:
        self._refresh()
        await learn_clock(self._access)
        while (plan := self._choose()) is not None:
            if plan.name not in self._begun:
                self._begun.add(plan.name)
                self._keep(plan, plan.begin(self._state.plans[plan.name], self._now()))
            if not await self._step(plan, emit):
                return

    def _refresh(self) -> None:
        """The plans' memory begins anew whenever it may know more than the state."""
        if self._fresh:
            return
        self._begun.clear()
        adopted = {n: p.adopt(self._state.plans.get(n)) for n, p in self._plans.items()}
        self._state = replace(self._state, plans={**self._state.plans, **adopted})
        self._fresh = True

    def _choose(self) -> Plan | None:
        """Changes when they are due or begun, else the snapshot; None: nothing is due."""
        now, schedule = self._access.now_us(), self._schedule
        if is_paused(self._state) or (self._state.not_before or 0) > now:
            return None
        name = schedule.changes
        if name is not None and self._held.get(name, 0) <= now:
            if name in self._begun or changes_due(self._state, schedule, now) <= now:
                return self._plans[name]
        if self._held.get("snapshot", 0) <= now and "snapshot" in self._plans:
            if snapshot_due(self._state, schedule, now) <= now:
                return self._plans["snapshot"]
        return None

    async def _step(self, plan: Plan, emit: Emit) -> bool:
        """One question or one step without; whether the poll goes on."""
        asked = plan.next(self._state.plans[plan.name], self._now())
        if asked is None:
            self._rest(plan)
            return True
        if isinstance(asked, Step):
            return await self._take(plan, asked, (), emit)
        spec = self._stream.plan(plan.name)
        assert spec is not None
        try:
            values = placeholder_values(asked, spec, self._tenant, self._access.secrets.get)
            request = request_for(asked, spec, values, self._access.secrets.get)
        except (RenderError, ValueError) as error:
            return await self._stall(plan, Stall(str(error), "correct the request"), emit)
        splittable = plan.can_split(asked)
        outcome = await Exchange(
            self._access, request, spec.request.errors, can_split=splittable
        ).run()
        if isinstance(outcome, WaitUntil):
            return await self._wait(outcome, emit)
        if isinstance(outcome, Stall):
            return await self._stall(plan, outcome, emit)
        if isinstance(outcome, Refusal):
            return await self._take(plan, plan.refuse(asked, outcome, self._now()), (), emit)
        return await self._got(plan, spec, asked, request, outcome, emit)

    async def _got(
        self, plan: Plan, spec: PlanSpec, ask: Ask, request: Request, got: Got, emit: Emit
    ) -> bool:
        self._hit("ingest.after_fetch")
        at = self._access.clock.now(got.fetched.received_at)
        if ask.probe:
            return await self._take(plan, self._identified(plan, spec, ask, got, at), (), emit)
        if got.empty:
            step = plan.take(ask, empty_page(at, got.fetched.elapsed_us))
            return await self._take(plan, step, (), emit)
        try:
            cut_out = split(got.fetched.body, _steps(spec), spec.request.read_as)
            step, logged = self._page(plan, spec, ask, request, got, cut_out, at)
        except (NoRecords, Unsplittable) as error:
            why = f"the answer ({got.answer.status}) is not a page: {error}"
            hint = "correct `records`; or say in `errors` what such an answer means"
            return await self._stall(plan, Stall(why, hint), emit)
        except FetchRefused as error:
            return await self._stall(plan, Stall(str(error), "correct `pages.next`"), emit)
        return await self._take(plan, step, logged if step.log else (), emit)

    def _page(
        self,
        plan: Plan,
        spec: PlanSpec,
        ask: Ask,
        request: Request,
        got: Got,
        cut_out: Split,
        at: Now,
    ) -> tuple[Step, tuple[Observation, ...]]:
        answer = got.answer
        if answer.body is None:
            answer = Answer(answer.status, answer.headers, parsed(cut_out.envelope))
        origin = Origin(
            self.partition_id,
            spec.definition_hash,
            self._record_max_bytes,
            self._access.secrets.scrubber,
        )
        page = cut(origin, got, request, cut_out)
        following = self._following(spec, answer, got)
        read = Read(answer, cut_out, at, len(page.parts), got.fetched.elapsed_us)
        seen: Page = page_of(read, ask, spec, following)
        step = plan.take(ask, seen)
        as_of = self._access.clock.now(got.fetched.requested_at).server
        logged = observations(
            origin,
            ask,
            got,
            page,
            method=request.method,
            source_epoch=self._state.source_epoch,
            next_token=following,
            as_of=as_of,
        )
        return step, logged

    def _following(self, spec: PlanSpec, answer: Answer, got: Got) -> str | None:
        """The next token, or the next link made absolute and held to the origin."""
        found = next_of(answer, spec)
        pages = spec.request.pages
        if found is None or pages is None or pages.turn is not Turn.LINK:
            return found
        return self._access.http.within(found, got.url)

    def _identified(self, plan: Plan, spec: PlanSpec, ask: Ask, got: Got, at: Now) -> Step:
        assert isinstance(plan, CursorPlan)
        assert isinstance(spec, CursorSpec)
        assert spec.identity is not None
        value = got.answer.value(spec.identity.value)
        head = MISSING if spec.identity.head is None else got.answer.value(spec.identity.head)
        if value is MISSING or value is None:
            why = "the identity probe's answer has no value at `identity.value`"
            return Step(ask.state, stall=Stall(why, "correct `plan.cursor.identity`"))
        return plan.identified(
            ask, keep(value), None if head is MISSING or head is None else keep(head), at
        )

    # What becomes of the state

    async def _take(
        self, plan: Plan, step: Step, logged: tuple[Observation, ...], emit: Emit
    ) -> bool:
        if step.stall is not None and not step.marks and not logged:
            return await self._stall(plan, step.stall, emit, step)
        now = self._access.now_us()
        if step.stall is None:
            self._blocked.pop(plan.name, None)
            self._blocked.pop("restored", None)
        else:
            self._block(plan, step.stall, now)
        state = self._after(plan, step)
        if logged or step.marks or step.tombstones or state.blocked != self._state.blocked:
            marks = tuple(changed(mark, source_epoch=state.source_epoch) for mark in step.marks)
            size = _STATE_BYTES + sum(_size(one) for one in logged)
            await emit(Emission(self.partition_id, logged, marks, state, size, step.tombstones))
        self._state = state
        if plan.name == "snapshot" and step.state.walk is None:
            self._begun.discard(plan.name)  # over; the next one is wanted anew
        return step.stall is None

    def _rest(self, plan: Plan) -> None:
        """The poll of this plan is over; one that had nothing to ask waits for its next schedule."""
        self._begun.discard(plan.name)
        now = self._access.now_us()
        due = snapshot_due if plan.name == "snapshot" else changes_due
        if due(self._state, self._schedule, now) <= now:
            self._held[plan.name] = now + self._schedule.changes_every_us

    def _after(self, plan: Plan, step: Step) -> StreamState:
        plans = {**self._state.plans, plan.name: step.state}
        if step.lost and "snapshot" in plans and plan.name != "snapshot":
            plans["snapshot"] = changed(plans["snapshot"], polled_at=None)
        return replace(
            self._state,
            plans=plans,
            source_epoch=self._state.source_epoch + int(step.recreated),
            not_before=None,
            blocked=self._first_blocked(),
        )

    async def _stall(self, plan: Plan, stall: Stall, emit: Emit, step: Step | None = None) -> bool:
        """Visible, durable, and tried again at the next schedule."""
        now = self._access.now_us()
        self._block(plan, stall, now)
        state = self._after(plan, step or Step(self._state.plans[plan.name]))
        if state.blocked != self._state.blocked:
            _log.warning(
                "blocked", partition_id=self.partition_id, plan=plan.name, reason=stall.reason
            )
            await emit(Emission(self.partition_id, (), (), state, _STATE_BYTES))
        self._state = state
        self._begun.discard(plan.name)
        return True

    def _block(self, plan: Plan, stall: Stall, now: int) -> None:
        """The same reason keeps its `since`; a stalled plan is left alone until its next schedule."""
        reason = self._access.secrets.scrubber.text(f"{plan.name}: {stall.reason}")
        before = self._blocked.get(plan.name) or self._state.blocked
        since = before.since if before is not None and before.reason == reason else now
        self._blocked.pop("restored", None)
        self._blocked[plan.name] = Blocked(reason, since, stall.unblocked_by)
        self._held[plan.name] = now + max(self._schedule.changes_every_us, int(_REST_S * US))
        self._begun.discard(plan.name)

    async def _wait(self, wait: WaitUntil, emit: Emit) -> bool:
        _log.info("waiting", partition_id=self.partition_id, why=wait.why, until_us=wait.at)
        state = replace(self._state, not_before=wait.at)
        await emit(Emission(self.partition_id, (), (), state, _STATE_BYTES))
        self._state = state
        return False

    def _first_blocked(self) -> Blocked | None:
        return next(iter(self._blocked.values()), None)

    def _keep(self, plan: Plan, state: PlanState) -> None:
        self._state = replace(self._state, plans={**self._state.plans, plan.name: state})

    def _now(self) -> Now:
        return self._access.clock.now(self._access.now_us())


def _steps(spec: PlanSpec) -> tuple[str | int, ...]:
    return tuple(step for step in spec.request.records.steps if isinstance(step, str | int))


def _size(observation: Observation) -> int:
    return len(observation.envelope) + sum(map(len, observation.records))

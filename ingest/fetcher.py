"""One owned partition id: asks what its plans want, in order, and emits what became of it.

One request at a time. The state moves only when an emission was taken; whatever interrupts a poll,
the plans begin again from that state with fresh passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog
from msgspec.structs import replace as changed

from ingest.answers import Asked, Reader, Stale
from ingest.bounds import SMALLER, TooMany
from ingest.control import is_paused
from ingest.emission import Emission, Emit, StreamState
from ingest.exchange import Access, Exchange, Got, Outcome, WaitUntil, doubt_clock, learn_clock
from ingest.http import FetchRefused
from ingest.plans.protocol import Ask, Now, Plan, Refusal, Stall, Step
from ingest.requests import Request, placeholder_values, request_for
from ingest.retry import backoff_s
from ingest.schedule import US, Schedule, changes_due, due_at, snapshot_due
from ingest.split import NoRecords, Unsplittable
from schemas.definitions.secrets import SecretUnavailable
from schemas.definitions.source import IntervalSpec, PlanSpec, StreamSpec, Tenant
from schemas.definitions.templates import RenderError
from schemas.failpoints import Hit
from schemas.records import BY_TIME, Blocked, Observation, PlanState

_log = structlog.get_logger(__name__)
_REST_S = 1.0
"""A plan that stalled is asked again at the next schedule, and not sooner than this."""
_SOON_S = 300.0
"""What time alone may cure is tried again after this, should the schedule be slower."""
_UNREADABLE_MAX = 3
"""Times that an answer which is no page is asked for again before it counts."""
_STATE_BYTES = 2_000


class PartitionPoller:
    """The fetch side of one partition id. `plans`: changes first. `now_us`: the wall clock.

    `access_of` may fail for want of a secret: that blocks this partition id and no other.
    """

    def __init__(
        self,
        stream: StreamSpec,
        tenant: Tenant | None,
        access_of: Callable[[], Access],
        plans: tuple[Plan, ...],
        *,
        record_max_bytes: int,
        now_us: Callable[[], int],
        hit: Hit,
    ) -> None:
        self.partition_id = stream.partition_id(tenant.id if tenant else None)
        self._stream, self._tenant, self._hit = stream, tenant, hit
        self._access_of, self._now_us = access_of, now_us
        self._plans = {plan.name: plan for plan in plans}
        self._record_max_bytes = record_max_bytes
        changes = stream.changes or stream.program
        self._schedule = Schedule(
            changes.plan if changes else None,
            int(stream.schedule.every_s * US),
            int(stream.snapshot.every_s * US) if stream.snapshot else None,
            stream.schedule.occurrences,
            stream.changes.settle_us or 0 if isinstance(stream.changes, IntervalSpec) else 0,
        )
        self._state = StreamState()
        self._held: dict[str, int] = {}
        self._blocked: dict[str, Blocked] = {}
        self._begun: set[str] = set()
        self._unreadable = 0
        self._fresh = False
        self._asked = False
        self._answer_s = 0.0
        self._scrubbed: Callable[[str], str] = str

    @property
    def due_at(self) -> int:
        return due_at(self._state, self._schedule, self._held, self._now_us())

    def restore(self, state: StreamState | None) -> None:
        """Go on from what is durable; what was in flight never happened."""
        self._state = state or StreamState()
        self._held.clear()
        self._blocked.clear()
        blocked = self._state.blocked
        if blocked is not None and not is_paused(self._state):
            # It stays visible until the plan that it is about goes on.
            self._blocked[_plan_of(blocked, self._plans)] = blocked
        self._fresh = False

    async def poll(self, emit: Emit) -> None:
        try:
            await self._poll(emit)
        except BaseException:
            self._fresh = False  # what was asked may not be part of the state
            raise

    async def _poll(self, emit: Emit) -> None:
        self._refresh()
        if self._choose() is None:
            return
        try:
            access = self._access_of()
        except (SecretUnavailable, RenderError, FetchRefused) as error:
            await self._stall_all(Stall(str(error), "set what the reference names"), emit)
            return
        self._scrubbed = access.secrets.scrubber.text
        await learn_clock(access)
        reader = Reader(self.partition_id, access, self._record_max_bytes)
        self._asked, held = False, dict(self._held)
        await self._ask_all(access, reader, emit)
        if not self._asked and await doubt_clock(access):
            self._held = held
            await self._ask_all(access, reader, emit)

    async def _ask_all(self, access: Access, reader: Reader, emit: Emit) -> None:
        while (plan := self._choose()) is not None:
            if plan.name not in self._begun:
                self._begun.add(plan.name)
                begun = plan.begin(self._state.plans[plan.name], self._now(access))
                self._state = self._with_plan(plan, begun)
            if not await self._step(plan, access, reader, emit):
                return

    def _refresh(self) -> None:
        """The plans' memory begins anew whenever it may know more than the state."""
        if self._fresh:
            return
        self._begun.clear()
        self._unreadable = 0
        known = self._state.plans
        adopted = {n: p.adopt(known.get(n)) for n, p in self._plans.items()}
        # A plan that was taken out claims nothing any more; what snapshots left stays known.
        left = {n: s for n, s in known.items() if n == "snapshot" and n not in adopted}
        self._state = replace(self._state, plans={**left, **adopted})
        self._fresh = True

    def _choose(self) -> Plan | None:
        """Changes when they are due or begun, else the snapshot; None: nothing is due."""
        now, schedule = self._now_us(), self._schedule
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

    async def _step(self, plan: Plan, access: Access, reader: Reader, emit: Emit) -> bool:
        """One question or one step without; whether the poll goes on."""
        ask = plan.next(self._state.plans[plan.name], self._now(access))
        if ask is None:
            self._rest(plan)
            return True
        if isinstance(ask, Step):
            return await self._take(plan, ask, (), emit)
        self._asked = True
        spec = self._stream.asked(plan.name, listing=ask.listing)
        try:
            values = placeholder_values(ask, spec, self._tenant, access.secrets.get)
            request = request_for(ask, spec, values, access.secrets.get)
        except (RenderError, ValueError, SecretUnavailable) as error:
            return await self._stall(plan, Stall(str(error), "correct the request"), emit)
        before, guessed = self._state, plan.name in BY_TIME and not access.clock.known
        # Both ends of what is asked stay fixed, however long the answer takes.
        self._state = self._with_plan(plan, ask.state)
        outcome = await self._outcome(plan, ask, spec, request, access)
        if guessed and self._unguessed(plan, before, outcome, access):
            return True
        if isinstance(outcome, WaitUntil):
            return await self._wait(outcome, emit)
        if isinstance(outcome, Stall):
            return await self._stall(plan, outcome, emit)
        if isinstance(outcome, Refusal) and ask.listing and outcome is not Refusal.TOKEN_EXPIRED:
            why = f"the provider says {outcome} of the listing of parents"
            return await self._stall(plan, Stall(why, "correct the rule in `errors`"), emit)
        if isinstance(outcome, Refusal):
            step = plan.refuse(ask, outcome, self._now(access))
            return await self._take(plan, step, (), emit)
        self._hit("ingest.after_fetch")
        asked = Asked(plan, spec, ask, request, outcome, self._stream.parent)
        return await self._got(asked, reader, emit)

    def _unguessed(self, plan: Plan, before: StreamState, outcome: Outcome, access: Access) -> bool:
        """Forgets an end that was fixed by a clock nobody had compared with the provider's, which a
        later poll would take for read; whether to ask anew, now that an answer has told the time.
        """
        if access.clock.known or isinstance(outcome, WaitUntil | Stall):
            self._state = before
            self._begun.discard(plan.name)
        return access.clock.known and isinstance(outcome, Got | Refusal)

    async def _outcome(
        self, plan: Plan, ask: Ask, spec: PlanSpec, request: Request, access: Access
    ) -> Outcome:
        sole = plan.name in BY_TIME and ask.page == 1 and not ask.listing
        exchange = Exchange(
            access, request, spec.request.errors, can_split=plan.can_split(ask), sole=sole
        )
        return await exchange.run()

    async def _got(self, asked: Asked, reader: Reader, emit: Emit) -> bool:
        plan, epoch = asked.plan, self._state.source_epoch
        self._answer_s = max(self._answer_s, asked.got.fetched.elapsed_us / US)
        try:
            step, logged = reader.step(asked, epoch)
        except FetchRefused as error:
            help_ = SMALLER if isinstance(error, TooMany) else "correct `pages.next`"
            return await self._stall(plan, Stall(str(error), help_), emit)
        except (NoRecords, Unsplittable, Stale) as error:
            self._unreadable += 1
            if self._unreadable < _UNREADABLE_MAX:
                await asyncio.sleep(backoff_s(self._unreadable, 0.5))
                return True
            self._unreadable = 0
            slot = _whole_as_a_slot(error, asked, epoch, reader)
            if slot is None:
                return await self._stall(plan, _no_page(error, asked.got), emit)
            step, logged = slot
        self._unreadable = 0
        return await self._take(plan, step, logged, emit)

    # What becomes of the state

    async def _take(
        self, plan: Plan, step: Step, logged: tuple[Observation, ...], emit: Emit
    ) -> bool:
        if step.stall is not None and not step.marks and not logged:
            return await self._stall(plan, step.stall, emit, step)
        if step.stall is None:
            self._blocked.pop(plan.name, None)
        else:
            self._block(plan, step.stall)
        state = self._after(plan, step)
        durable = logged or step.marks or step.tombstones or step.save
        if durable or state.blocked != self._state.blocked:
            marks = tuple(changed(mark, source_epoch=state.source_epoch) for mark in step.marks)
            size = _STATE_BYTES + sum(map(_size, logged))
            answer_s, self._answer_s = self._answer_s, 0.0
            await emit(
                Emission(self.partition_id, logged, marks, state, size, step.tombstones, answer_s)
            )
        self._state = state
        if plan.name == "snapshot" and step.state.walk is None:
            self._begun.discard(plan.name)  # over; the next one is wanted anew
        return True

    def _rest(self, plan: Plan) -> None:
        """The poll of this plan is over; one that had nothing to ask waits for its next schedule."""
        self._begun.discard(plan.name)
        now = self._now_us()
        due = snapshot_due if plan.name == "snapshot" else changes_due
        if due(self._state, self._schedule, now) <= now:
            self._held[plan.name] = now + self._schedule.pause_us

    def _after(self, plan: Plan, step: Step) -> StreamState:
        plans = {**self._state.plans, plan.name: step.state}
        if step.lost and "snapshot" in plans and plan.name != "snapshot":
            plans["snapshot"] = changed(plans["snapshot"], polled_at=None)
        return replace(
            self._state,
            plans=plans,
            source_epoch=self._state.source_epoch + int(step.recreated),
            not_before=None,
            blocked=next(iter(self._blocked.values()), None),
        )

    async def _stall(self, plan: Plan, stall: Stall, emit: Emit, step: Step | None = None) -> bool:
        """Visible, durable, and tried again at the next schedule."""
        self._block(plan, stall)
        state = self._after(plan, step or Step(self._state.plans[plan.name]))
        if state.blocked != self._state.blocked:
            _log.warning(
                "blocked", partition_id=self.partition_id, reason=self._blocked[plan.name].reason
            )
            await emit(Emission(self.partition_id, (), (), state, _STATE_BYTES))
        self._state = state
        return True

    async def _stall_all(self, stall: Stall, emit: Emit) -> None:
        """Nothing can be asked at all."""
        for plan in self._plans.values():
            await self._stall(plan, stall, emit)

    def _block(self, plan: Plan, stall: Stall) -> None:
        """The same reason keeps its `since`; a stalled plan is left alone until its next schedule."""
        now, reason = self._now_us(), self._scrubbed(f"{plan.name}: {stall.reason}")
        before = self._blocked.get(plan.name)
        since = before.since if before is not None and before.reason == reason else now
        self._blocked[plan.name] = Blocked(reason, since, stall.unblocked_by)
        wait_s = max(self._schedule.changes_every_us / US, _REST_S)
        self._held[plan.name] = now + int((min(wait_s, _SOON_S) if stall.passing else wait_s) * US)
        self._begun.discard(plan.name)

    async def _wait(self, wait: WaitUntil, emit: Emit) -> bool:
        _log.info("waiting", partition_id=self.partition_id, why=wait.why, until_us=wait.at)
        state = replace(self._state, not_before=wait.at)
        await emit(Emission(self.partition_id, (), (), state, _STATE_BYTES))
        self._state = state
        return False

    def _with_plan(self, plan: Plan, state: PlanState) -> StreamState:
        return replace(self._state, plans={**self._state.plans, plan.name: state})

    def _now(self, access: Access) -> Now:
        return access.clock.now(self._now_us())


def _whole_as_a_slot(
    error: Exception, asked: Asked, epoch: int, reader: Reader
) -> tuple[Step, tuple[Observation, ...]] | None:
    if not isinstance(error, Unsplittable):
        return None
    try:
        return reader.unsplittable(asked, epoch)
    except Unsplittable:
        return None


def _no_page(error: Exception, got: Got) -> Stall:
    return Stall(
        f"the answer ({got.answer.status}) is not a page: {error}",
        "correct `records`; or say in `errors` what such an answer means",
        passing=True,
    )


def _plan_of(blocked: Blocked, plans: dict[str, Plan]) -> str:
    name = blocked.reason.partition(":")[0]
    return name if name in plans else next(iter(plans), "")


def _size(observation: Observation) -> int:
    return len(observation.envelope) + sum(map(len, observation.records))

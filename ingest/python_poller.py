"""Polls a partition id whose changes are read by a class of the user's, and its snapshot if any.

The class says what to ask and what an answer holds; asking, storing and waiting are as for every
other plan. An instance that failed is thrown away: the next one continues from the last state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as changed

from ingest import python_plan as said
from ingest.answers import Reader
from ingest.calls import Calls
from ingest.emission import Emit
from ingest.exchange import PARK_S, US, Access, Exchange, Got, WaitUntil
from ingest.fetcher import PartitionPoller
from ingest.http import FetchRefused
from ingest.observe import Origin, cut, observations
from ingest.plans.program import ProgramPlan
from ingest.plans.protocol import Ask, Page, Plan, Refusal, Stall, Step
from ingest.python_program import (
    Given,
    ProgramFault,
    PythonProgram,
    micros,
    moment,
    request_of,
)
from ingest.requests import Request, tenant_values
from ingest.retry import backoff_s
from ingest.split import Split
from schemas.definitions.paths import MISSING
from schemas.definitions.programs import PythonSpec
from schemas.definitions.secrets import SecretUnavailable
from schemas.definitions.source import StreamSpec, Tenant
from schemas.definitions.templates import RenderError, render_value, text_of
from schemas.failpoints import Hit
from schemas.records import Observation

_IDLE_MAX = 1_000
"""Answers in a row without a record, and without a wait, before the class counts as going in a circle."""
_SOONEST_S = 1.0


class PythonPoller(PartitionPoller):
    """The fetch side of one partition id with the plan `python`."""

    def __init__(
        self,
        stream: StreamSpec,
        tenant: Tenant | None,
        access_of: Callable[[], Access],
        plans: tuple[Plan, ...],
        calls: Calls,
        folder: Path,
        *,
        record_max_bytes: int,
        now_us: Callable[[], int],
        hit: Hit,
    ) -> None:
        super().__init__(
            stream, tenant, access_of, plans,
            record_max_bytes=record_max_bytes, now_us=now_us, hit=hit,
        )  # fmt: skip
        assert isinstance(stream.program, PythonSpec)
        self._spec, self._calls, self._folder = stream.program, calls, folder
        self._whose = tenant
        self._program: PythonProgram | None = None
        self._attempts = self._idle = 0

    def _refresh(self) -> None:
        if not self._fresh:
            self._program = None
            self._attempts = self._idle = 0
        super()._refresh()

    async def _step(self, plan: Plan, access: Access, reader: Reader, emit: Emit) -> bool:
        if not isinstance(plan, ProgramPlan):
            return await super()._step(plan, access, reader, emit)
        ask = plan.next(self._state.plans[plan.name], self._now(access))
        self._state = self._with_plan(plan, ask.state)
        try:
            return await self._turn(plan, ask, access, emit)
        except ProgramFault as fault:
            stall = Stall(str(fault), fault.unblocked_by)
        except (SecretUnavailable, RenderError) as error:
            stall = Stall(str(error), "set what the reference names")
        except FetchRefused as error:
            stall = Stall(str(error), "a link of the class that stays within `base_url`")
        return await self._failed(plan, stall, emit)

    async def _turn(self, plan: ProgramPlan, ask: Ask, access: Access, emit: Emit) -> bool:
        """One thing that the class wants."""
        now = self._now(access)
        program = self._program
        if program is None:
            before = self._state.plans[plan.name].state
            program = await PythonProgram.restored(
                self.partition_id, self._given(access), self._calls, before, moment(now.server)
            )
            self._program = program
        wanted = await program.ask(moment(now.server))
        if isinstance(wanted, said.Complete):
            step = plan.complete(changed(ask.state, state=await program.state()))
            await self._take(plan, step, (), emit)
            self._attempts = self._idle = 0
            self._rest(plan)
            return True
        if isinstance(wanted, said.WaitUntil):
            state = changed(ask.state, state=await program.state())
            self._blocked.pop(plan.name, None)
            self._state = replace(
                self._with_plan(plan, state), blocked=next(iter(self._blocked.values()), None)
            )
            # The class counts by the provider's clock, what waits here by ours.
            at = max(micros(wanted.at) + now.local - now.server, now.local + int(_SOONEST_S * US))
            return await self._wait(WaitUntil(at, access.secrets.scrubber.text(wanted.why)), emit)
        return await self._question(plan, ask, wanted, access, emit)

    def _given(self, access: Access) -> Given:
        values = tenant_values(self._whose, access.secrets.get)
        settings = render_value(self._spec.settings, values, access.secrets.get)
        tenant = {name.removeprefix("tenant."): value for name, value in values.items()}
        assert isinstance(settings, Mapping)
        scrubber = access.secrets.scrubber
        return Given(self._spec, self._folder, settings, tenant, scrubber)

    def _headers(self, access: Access) -> dict[str, str]:
        values = tenant_values(self._whose, access.secrets.get)
        found = {}
        for name, value in self._spec.headers.items():
            rendered = render_value(value, values, access.secrets.get)
            if rendered is not MISSING and rendered is not None:
                found[name] = text_of(rendered)
        return found

    async def _question(
        self, plan: ProgramPlan, ask: Ask, wanted: said.Request, access: Access, emit: Emit
    ) -> bool:
        request = request_of(wanted, self._headers(access))
        if request.link is not None:
            request = replace(request, link=access.http.within(request.link))
        outcome = await Exchange(access, request, self._spec.errors, can_split=False).run()
        if isinstance(outcome, WaitUntil):
            self._program = None  # it has asked and was not answered
            return await self._wait(outcome, emit)
        if isinstance(outcome, Stall):
            return await self._failed(plan, outcome, emit)
        if isinstance(outcome, Refusal):
            self._program = None
            return await self._take(plan, plan.refuse(ask, outcome, self._now(access)), (), emit)
        self._answer_s = max(self._answer_s, outcome.fetched.elapsed_us / US)
        self._hit("ingest.after_fetch")
        program = self._program
        assert program is not None
        found = await program.take(wanted, _answer(outcome))
        if isinstance(found, said.Fault):
            return await self._fault(plan, ask, found, access, emit)
        return await self._page(plan, ask, (request, outcome), found, access, emit)

    async def _page(
        self,
        plan: ProgramPlan,
        ask: Ask,
        asked: tuple[Request, Got],
        found: said.Page,
        access: Access,
        emit: Emit,
    ) -> bool:
        program = self._program
        assert program is not None
        state = await program.state()
        self._idle = 0 if found.records else self._idle + 1
        if self._idle >= _IDLE_MAX:
            raise ProgramFault(
                f"{self._spec.path}: {self._idle} answers in a row gave no record",
                "a class that says Complete, or WaitUntil while it polls a job",
            )
        step, logged = self._logged(plan, ask, asked, found, access)
        self._attempts = 0
        return await self._take(
            plan, replace(step, state=changed(step.state, state=state)), logged, emit
        )

    def _logged(
        self,
        plan: ProgramPlan,
        ask: Ask,
        asked: tuple[Request, Got],
        found: said.Page,
        access: Access,
    ) -> tuple[Step, tuple[Observation, ...]]:
        request, got = asked
        at = access.clock.now(got.fetched.received_at)
        origin = Origin(
            self.partition_id, self._spec.definition_hash, self._record_max_bytes,
            access.secrets.scrubber,
        )  # fmt: skip
        records = [origin.scrubber.body(record) for record in found.records]
        page = cut(origin, got, request, Split(found.envelope, records))
        facts = Page(records=len(found.records), at=at, parts=len(page.parts))
        step = plan.take(ask, facts)
        if not step.log:
            return step, ()
        as_of = access.clock.now(got.fetched.requested_at).server
        return step, observations(
            origin, ask, got, page, method=request.method,
            source_epoch=self._state.source_epoch, next_token=None, as_of=as_of,
        )  # fmt: skip

    async def _fault(
        self, plan: ProgramPlan, ask: Ask, fault: said.Fault, access: Access, emit: Emit
    ) -> bool:
        """What the class says of an answer that is no page."""
        reason = access.secrets.scrubber.text(fault.reason)
        now = self._now(access)
        if fault.action == "source_gap":
            assert self._program is not None
            state = changed(ask.state, state=await self._program.state())
            return await self._take(plan, plan.gap(state, reason, now), (), emit)
        if fault.action == "fail":
            return await self._failed(
                plan, Stall(reason, "the provider answering rightly, or a corrected class"), emit
            )
        self._program = None
        self._attempts += 1
        wait_s = fault.wait_s
        if wait_s is None:
            wait_s = (
                PARK_S if fault.action == "park" else backoff_s(self._attempts, random.random())
            )
        if fault.action == "retry":
            if self._attempts >= access.limits.attempts:
                help_ = "the provider answering again"
                help_ += "" if access.one_shot else "; it is asked again and again"
                return await self._failed(plan, Stall(reason, help_, passing=True), emit)
            if wait_s <= access.patience_s():
                await asyncio.sleep(wait_s)
                return True
        at = now.local + int(max(wait_s, _SOONEST_S) * US)
        return await self._wait(WaitUntil(at, reason), emit)

    async def _failed(self, plan: ProgramPlan, stall: Stall, emit: Emit) -> bool:
        self._program = None
        self._attempts = self._idle = 0
        return await self._stall(plan, stall, emit)


def _answer(got: Got) -> said.Answer:
    fetched = got.fetched
    server_time = None if fetched.server_time is None else moment(fetched.server_time)
    return said.Answer(
        status=fetched.status,
        headers=fetched.headers,
        body=fetched.body,
        url=got.url,
        received_at=moment(fetched.received_at),
        server_time=server_time,
    )

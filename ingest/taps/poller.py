"""Polls a partition id by running a Singer tap from the last stored STATE to its end.

Records become pages, and a STATE becomes the checkpoint with or behind the pages that it covers. A
run that fails in any way is tried again from that state: records behind it come once more, and none
is left out. A slow log slows the tap down through its pipe.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import NoReturn

import structlog
from msgspec.structs import replace as changed

from ingest import metrics
from ingest.emission import Emission, Emit
from ingest.fetcher import PartitionPoller
from ingest.plans.program import ProgramPlan, StateRefused, checked_state
from ingest.plans.protocol import Now, Page, Stall
from ingest.retry import backoff_s
from ingest.taps.batches import Batch, Batches
from ingest.taps.messages import Lines, Message, StateMessage, TapFault, parse
from ingest.taps.observe import TapOrigin, observations
from ingest.taps.process import NotStarted, Start, TapProcess
from ingest.taps.runs import catalog_of, discovery, sync
from schemas import leash
from schemas.definitions.programs import SingerSpec
from schemas.definitions.secrets import Secrets, SecretUnavailable
from schemas.definitions.source import LimitsSpec, StreamSpec, Tenant
from schemas.definitions.templates import RenderError
from schemas.failpoints import Hit
from schemas.records import Observation, PlanState

_log = structlog.get_logger(__name__)
_LINGER_S = 1.0
"""How long a record or a STATE waits for more before it is stored."""
_TRIES = 3
"""Runs in a row without a step forward before the partition id counts as blocked."""
_EXIT_S = 30.0
_STATE_BYTES = 2_000


class SingerPoller(PartitionPoller):
    """The fetch side of one partition id with the plan `singer`. `turns`: taps that run at once."""

    def __init__(
        self,
        stream: StreamSpec,
        tenant: Tenant | None,
        plan: ProgramPlan,
        limits: LimitsSpec,
        turns: asyncio.Semaphore,
        folder: Path,
        *,
        record_max_bytes: int,
        now_us: Callable[[], int],
        hit: Hit,
    ) -> None:
        super().__init__(
            stream, tenant, _no_access, (plan,),
            record_max_bytes=record_max_bytes, now_us=now_us, hit=hit,
        )  # fmt: skip
        assert isinstance(stream.program, SingerSpec)
        self._spec, self._plan, self._limits = stream.program, plan, limits
        self._turns, self._folder, self._whose = turns, folder, tenant
        self._secrets = Secrets(folder=folder)
        self._scrubbed = self._secrets.scrubber.text
        self._origin = TapOrigin(
            self.partition_id,
            self._spec.definition_hash,
            record_max_bytes,
            PurePath(self._spec.command[0]).name,
            self._spec.stream,
        )

    async def _poll(self, emit: Emit) -> None:
        self._refresh()
        while self._choose() is not None:
            fault = await self._tried(emit)
            if fault is None:
                self._rest(self._plan)
                continue
            stall = Stall(str(fault), fault.unblocked_by, passing=not fault.lasting)
            await self._stall(self._plan, stall, emit)

    async def _tried(self, emit: Emit) -> TapFault | None:
        """Runs the tap until it ends well; the last fault if it does not get on."""
        attempt = 0
        while True:
            before = self._plan_state.state
            try:
                async with self._turns:
                    await self._run(emit)
                metrics.FETCHES.labels(self._stream.source, "success").inc()
                return None
            except TapFault as fault:
                metrics.FETCHES.labels(self._stream.source, "failed").inc()
                attempt = 1 if self._plan_state.state != before else attempt + 1
                if fault.lasting or attempt >= _TRIES:
                    return fault
            await asyncio.sleep(backoff_s(attempt, random.random()))

    @property
    def _plan_state(self) -> PlanState:
        return self._state.plans[self._plan.name]

    async def _run(self, emit: Emit) -> None:
        """One run from the stored state to the tap's end. Raises TapFault."""
        catalog = self._spec.catalog
        if self._spec.discover:
            catalog = catalog_of(await self._discovered(), self._spec.stream)
        began = self._now_us()
        self._begun.add(self._plan.name)
        self._state = self._with_plan(
            self._plan, self._plan.begin(self._plan_state, _moment(began))
        )
        state = self._plan_state.state if self._spec.keeps_state else None
        start = await self._prepared(
            lambda: sync(
                self._spec, self._whose, self._folder, self._secrets.get,
                state=state, catalog=catalog,
            )
        )  # fmt: skip
        batches = Batches(
            self._spec.stream,
            state,
            bytes_max=self._record_max_bytes // 2,
            ignores_others=self._spec.ignores_others,
            keeps_state=self._spec.keeps_state,
        )
        tap = await self._started(start)
        try:
            await self._follow(tap, batches, began, emit)
        except TapFault as fault:
            if batches.held:
                await self._store(batches.cut(), began, emit)
            self._tell(tap, fault)
            raise
        finally:
            await tap.end()
        step = self._plan.complete(self._plan_state)
        await self._take(self._plan, step, (), emit)

    async def _follow(self, tap: TapProcess, batches: Batches, began: int, emit: Emit) -> None:
        """Stores what the tap says, until it has ended well. Raises TapFault."""
        lines = Lines(self._limits.body_max_bytes)
        hang_s = self._spec.hang_s
        quiet_until, store_at = time.monotonic() + hang_s, float("inf")
        while True:
            wait_s = max(0.0, min(quiet_until, store_at) - time.monotonic())
            try:
                chunk = await tap.read(wait_s)
            except TimeoutError:
                chunk = None
            if chunk == b"":
                break
            for line in lines.feed(chunk or b""):
                message = parse(line)
                self._refuse_state(message)
                batch = batches.take(message)
                if batch is not None:
                    await self._store(batch, began, emit)
                quiet_until = time.monotonic() + hang_s
            now = time.monotonic()
            if now >= quiet_until:
                raise TapFault(
                    f"the tap has sent no message for {hang_s:g} s",
                    "the tap or its provider answering again, or a longer `hang`",
                )
            if not batches.held:
                store_at = float("inf")
            elif now >= store_at:
                await self._store(batches.cut(), began, emit)
                # Waiting for room in the log is not the tap's silence.
                quiet_until += time.monotonic() - now
                store_at = float("inf")
            else:
                store_at = min(store_at, now + _LINGER_S)
        await self._ended(tap, lines.rest(), batches)
        if batches.held:
            await self._store(batches.cut(), began, emit)

    async def _ended(self, tap: TapProcess, rest: bytes, batches: Batches) -> None:
        """Judges the end of the output. Raises TapFault."""
        try:
            code = await tap.exit_code(_EXIT_S)
        except TimeoutError:
            raise TapFault(
                "the tap closed its standard output and did not end", "a tap that ends"
            ) from None
        _refuse_exit(code, self._spec.command[0])
        if rest:
            message = parse(rest)
            self._refuse_state(message)
            batches.take(message)
        if batches.uncovered:
            raise TapFault(
                f"the tap ended without a STATE behind its last {batches.uncovered:,} records",
                "a tap that ends with one; or `state: none`, if it never keeps any",
            )

    async def _store(self, batch: Batch, began: int, emit: Emit) -> None:
        """A page of the batch's records, if it has any, and the state that stands behind them."""
        plan, at = self._plan, self._now_us()
        ask = plan.next(self._plan_state, _moment(at))
        logged: tuple[Observation, ...] = ()
        if batch.records:
            logged = observations(
                self._origin, ask, batch.records, began=began, at=at,
                source_epoch=self._state.source_epoch,
            )  # fmt: skip
        facts = Page(records=len(batch.records), at=_moment(at), parts=max(1, len(logged)))
        step = plan.take(ask, facts)
        step = replace(step, state=changed(step.state, state=batch.state))
        self._hit("ingest.after_fetch")
        if logged:
            await self._take(plan, step, logged, emit)
            return
        self._blocked.pop(plan.name, None)
        after = self._after(plan, step)
        await emit(Emission(self.partition_id, (), (), after, _STATE_BYTES))
        self._state = after

    def _refuse_state(self, message: Message) -> None:
        """Raises TapFault for a STATE that no checkpoint may hold."""
        if not isinstance(message, StateMessage) or message.value is None:
            return
        try:
            checked_state(message.value, "the tap's STATE", self._secrets.scrubber)
        except StateRefused as error:
            raise TapFault(str(error), error.unblocked_by, lasting=True) from None

    async def _discovered(self) -> bytes:
        """What the tap prints for --discover. Raises TapFault."""
        start = await self._prepared(
            lambda: discovery(self._spec, self._whose, self._folder, self._secrets.get)
        )
        tap = await self._started(start)
        try:
            return await output_of(tap, self._spec, self._limits.body_max_bytes)
        except TapFault as fault:
            self._tell(tap, fault)
            raise
        finally:
            await tap.end()

    async def _prepared(self, make: Callable[[], Start]) -> Start:
        """Secrets are resolved anew for every run: a rotated one is taken up. Raises TapFault."""
        self._secrets.forget()
        try:
            return await asyncio.to_thread(make)
        except (SecretUnavailable, RenderError) as error:
            raise TapFault(str(error), "set what the reference names", lasting=True) from None

    async def _started(self, start: Start) -> TapProcess:
        try:
            return await TapProcess.started(start)
        except NotStarted as error:
            raise TapFault(f"no process can be started: {error}", "room for processes") from None

    def _tell(self, tap: TapProcess, fault: TapFault) -> None:
        _log.warning(
            "tap failed",
            partition_id=self.partition_id,
            reason=self._scrubbed(str(fault)),
            said=[self._scrubbed(line) for line in tap.said()],
        )


async def output_of(tap: TapProcess, spec: SingerSpec, limit_bytes: int) -> bytes:
    """All that a tap prints until it has ended well. Raises TapFault."""
    found = bytearray()
    try:
        while chunk := await tap.read(spec.hang_s):
            found += chunk
            if len(found) > limit_bytes:
                raise TapFault(
                    f"the tap prints more than {limit_bytes:,} bytes for --discover",
                    "a larger `limits: {body_max: …}`, or `catalog: {file: …}`",
                    lasting=True,
                )
        code = await tap.exit_code(_EXIT_S)
    except TimeoutError:
        raise TapFault(
            f"the tap said nothing for {spec.hang_s:g} s when asked for its catalog",
            "the tap or its provider answering again, or `catalog: {file: …}`",
        ) from None
    _refuse_exit(code, spec.command[0])
    return bytes(found)


def _refuse_exit(code: int, program: str) -> None:
    """Raises TapFault unless a tap ended well."""
    if code == leash.NOT_FOUND:
        raise TapFault(
            f"there is no program {program}, or it found none that it needs",
            "the tap installed where PATH or `command` leads",
            lasting=True,
        )
    if code != 0:
        raise TapFault(
            f"the tap ended with exit code {code}",
            "what the tap wrote to its standard error: see this worker's log",
        )


def _moment(local: int) -> Now:
    return Now(local, local, local)


def _no_access() -> NoReturn:
    raise AssertionError("a tap asks by itself")

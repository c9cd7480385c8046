"""A poller without HTTP: a source of numbered pages, so that these tests judge the log side alone."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.emission import Emission, Emit, StreamState
from schemas.records import Control, Mark, Observation, PassRange, PlanState
from tests.waiting import until

NEVER = 2**60


@dataclass
class Source:
    """What one partition id has to fetch: pages 1..`pages` of `records` records each."""

    partition_id: str
    pages: int
    records: int = 2
    record_bytes: int = 20
    every_s: float = 0.0
    fetched: int = 0
    """Pages fetched over all pollers, repeats included."""
    hold: Callable[[int], bool] = field(default=lambda page: False)
    """Pages whose fetch does not end while this says so."""


class NumberedPages:
    """Fetches the next page until all are there, then says so with a mark."""

    def __init__(self, source: Source) -> None:
        self.source, self.partition_id = source, source.partition_id
        self.due_at = 0
        self.restored: list[StreamState | None] = []
        self._state = StreamState()
        self._pass = ""

    def restore(self, state: StreamState | None) -> None:
        self.restored.append(state)
        self._state = state or StreamState()
        self._pass = secrets.token_hex(4)
        self.due_at = 0
        if next_page(self._state) > self.source.pages or self._state.blocked is not None:
            self.due_at = NEVER

    async def poll(self, emit: Emit) -> None:
        source = self.source
        while (number := next_page(self._state)) <= source.pages:
            await self._let_go(number)
            await asyncio.sleep(source.every_s)
            source.fetched += 1
            self._state = with_next(self._state, number + 1)
            last = number == source.pages
            marks = (complete(source, self._pass),) if last else ()
            page = page_of(source, number, self._pass)
            size = source.records * source.record_bytes
            await emit(Emission(source.partition_id, (page,), marks, self._state, size))
        self.due_at = NEVER

    async def _let_go(self, number: int) -> None:
        await until(lambda: not self.source.hold(number), 60, f"page {number} to be let go")


def next_page(state: StreamState) -> int:
    plan = state.plans.get("interval")
    return 1 if plan is None or plan.width_us is None else plan.width_us


def with_next(state: StreamState, number: int) -> StreamState:
    plans = {"interval": PlanState(definition_hash="h", width_us=number)}
    return StreamState(
        source_epoch=state.source_epoch, plans=plans, control_offset=state.control_offset
    )


def page_of(source: Source, number: int, pass_: str) -> Observation:
    now = time.time_ns() // 1000
    record = b'{"page":%d,"text":"' % number
    record += b"x" * max(0, source.record_bytes - len(record) - 2) + b'"}'
    return Observation(
        partition_id=source.partition_id,
        plan="interval",
        scope="all",
        pass_=pass_,
        page=number,
        reason="new",
        method="GET",
        url="http://source.test/",
        definition_hash="h",
        status=200,
        requested_at=now,
        received_at=now,
        records=[record] * source.records,
    )


def complete(source: Source, pass_: str) -> Mark:
    whole = PassRange(
        pass_=pass_,
        first=1,
        last=source.pages,
        parts=source.pages,
        records=source.pages * source.records,
    )
    return Mark(
        kind="interval_complete",
        partition_id=source.partition_id,
        plan="interval",
        scope="all",
        passes=[whole],
        at=1,
    )


def obey(state: StreamState, control: Control) -> StreamState:
    """`reset` begins again, `accept_failed` is more than this source can do."""
    if control.action == "accept_failed":
        raise ValueError("not an interval")
    return with_next(state, 1) if control.action == "reset" else state

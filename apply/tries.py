"""Exceptions as pages of their own: what a mapping sees of one, and what becomes of it after a try.

Pure but for `settle`, which writes it down inside the caller's transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apply import metrics
from apply.batch import PageWork, Part, Work
from apply.decode import map_page
from apply.exception_states import Event
from apply.exceptions import Moved, Said, move, uncover
from apply.ledger import FIRST_RETRY_S
from apply.mapping.types import CompiledMapping, Place
from apply.outcomes import Outcome, Reason, RecordFault
from apply.same_record import Group, Where
from apply.sightings import merge
from apply.sink import Connection
from schemas.keys import split_partition_id
from schemas.records import Observation

ATTEMPTS = 10
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Due:
    """One exception that is due, as the query `due` returns it."""

    mapping_version: int
    partition: int
    generation: int
    offset: int
    index: int
    partition_id_no: int
    partition_id: str
    mapping: str | None
    plan: str
    scope: str
    source_epoch: int
    original_offset: int
    raw: bytes | None
    attempts: int
    fetched_at: datetime
    as_of: datetime | None
    run: str | None
    reason: str
    began: int | None
    pass_: str
    page: int
    part: int
    parts: int
    first_index: int

    @property
    def where(self) -> Where:
        """The coordinates of the exception."""
        return Where(self.mapping_version, self.partition, self.generation, self.offset, self.index)


@dataclass(frozen=True, slots=True)
class Tried:
    """A record as a page of its own, or why there is none."""

    due: Due
    page: PageWork | None
    fault: RecordFault | None


def wait_s(attempts: int) -> float:
    """Seconds before the next try, after so many failed ones: doubling, at most an hour."""
    return min(LONGEST_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30))


def tried(
    due: Due, by_version: Mapping[int, CompiledMapping], by_name: Mapping[str, CompiledMapping]
) -> Tried:
    """The record as a page of its own; or why there is nothing to try."""
    compiled = by_version.get(due.mapping_version)
    if compiled is None and due.mapping is not None:
        # an older version's exception: the version that is live now is what can heal it
        compiled = by_name.get(due.mapping)
    if compiled is None:
        detail = "no live mapping reads it"
        return Tried(due, None, RecordFault(due.index, Reason.MAPPER_FAILED, detail))
    if due.raw is None:
        detail = "its bytes were not stored"
        return Tried(due, None, RecordFault(due.index, Reason.OVERSIZED, detail))
    observation = _observation(due, due.raw)
    tenant = split_partition_id(due.partition_id)[2]
    place = Place(due.partition_id_no, due.generation, due.original_offset, tenant, due.began)
    mapped = map_page(compiled, observation, place)
    page = PageWork(
        offset=due.offset,
        generation=due.generation,
        partition=due.partition,
        partition_id_no=due.partition_id_no,
        observation=observation,
        works=[Work(compiled.version_id, compiled, mapped)],
    )
    return Tried(due, page, None)


def _observation(due: Due, raw: bytes) -> Observation:
    """What a mapping may see of the record: the same as when its page was read."""
    return Observation(
        partition_id=due.partition_id, plan=due.plan, scope=due.scope, pass_=due.pass_,
        page=due.page, part=due.part, parts=due.parts, source_epoch=due.source_epoch,
        original_offset=due.original_offset, reason="retry", run=due.run, method="-", url="-",
        definition_hash="-", status=0, requested_at=_us(due.fetched_at),
        received_at=_us(due.fetched_at), as_of=None if due.as_of is None else _us(due.as_of),
        records=[raw], first_index=due.index,
    )  # fmt: skip


def _us(at: datetime) -> int:
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def part(pages: list[PageWork]) -> Part:
    """Pages that move no position."""
    return Part(partition=-1, session=-1, generation=0, start=0, end=0, pages=pages)


@dataclass(frozen=True, slots=True)
class Result:
    """What a try came to. `tried_version`: the mapping version that it was made with."""

    due: Due
    outcome: Outcome
    fault: RecordFault | None
    tried_version: int | None

    @property
    def timed_out(self) -> bool:
        return self.fault is not None and self.fault.reason is Reason.TIMED_OUT

    @property
    def event(self) -> Event:
        if self.outcome is Outcome.QUARANTINED:
            return Event.REFUSE
        if self.outcome is not Outcome.RETRYABLE:
            return Event.LAND
        return Event.FAIL if self.due.attempts + 1 < ATTEMPTS else Event.EXHAUST


def result(tried: Tried) -> Result:
    due = tried.due
    if tried.page is None:
        return Result(due, Outcome.QUARANTINED, tried.fault, None)
    work = tried.page.works[0]
    work.settle()
    fault = work.faults[0] if work.faults else None
    return Result(due, Outcome(work.outcomes[0]), fault, work.mapping_version)


def _said(one: Result, now: datetime) -> Said:
    fault, waits = one.fault, one.event is Event.FAIL
    return Said(
        now,
        by="retry" if one.event is Event.LAND else None,
        reason=None if fault is None else fault.reason.value,
        detail=None if fault is None else fault.detail,
        due_at=now + timedelta(seconds=wait_s(one.due.attempts + 1)) if waits else None,
        tried_version=one.tried_version,
        outcome=one.outcome,
    )


def settle(connection: Connection, results: Sequence[Result], now: datetime) -> list[Where]:
    """Write what tries came to. Returns the exceptions that stay open."""
    landed: list[Moved] = []
    still: list[Where] = []
    groups: set[Group] = set()
    alike: dict[tuple[Event, Said], list[Due]] = defaultdict(list)
    for one in results:
        metrics.RETRIED.labels(one.outcome.name.lower()).inc()
        alike[one.event, _said(one, now)].append(one.due)
    for (event, said), dues in alike.items():
        moved = move(connection, event, [due.where for due in dues], said)
        if event is Event.LAND:
            landed += moved
            continue
        reasons = {due.where: said.reason or due.reason for due in dues}
        still += reasons
        groups |= {
            Group(
                row.partition_id_no, row.where.mapping_version, row.fingerprint, reasons[row.where]
            )
            for row in moved
            if row.fingerprint is not None
        }
    uncover(connection, landed, now)
    merge(connection, groups, (), now)
    return still

"""Tries exceptions again: due ones, by the owner of their partition, through the same guard.

A record that becomes a row, or is beaten by one, is resolved; one that fails again waits longer;
after the last attempt it is quarantined. The verbs of operators only say that something is due.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apply import metrics
from apply.batch import Batch, PageWork, Part, Work
from apply.changes import Change
from apply.decode import map_page
from apply.exception_states import Event, sources
from apply.exceptions import Moved, Said, move, uncover
from apply.ledger import FIRST_RETRY_S
from apply.mapping.types import CompiledMapping, Place
from apply.outcomes import BY_HAND, Outcome, Reason, RecordFault
from apply.queries import load
from apply.same_record import Group, Where
from apply.sightings import merge
from apply.sink import Connection
from apply.store import Store
from schemas.keys import split_partition_id
from schemas.records import Observation

_SQL = load("retry")
_EXCEPTIONS = load("exceptions")
ATTEMPTS = 10
LONGEST_S = 3600.0
_AT_ONCE = 200
REMAPPED_AT_ONCE = 500


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
class _Tried:
    """A record as a page of its own, or why there is none."""

    page: PageWork | None
    fault: RecordFault | None


def wait_s(attempts: int) -> float:
    """Seconds before the next try, after so many failed ones: doubling, at most an hour."""
    return min(LONGEST_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30))


class Retries:
    """The chore of trying again. Used by the writer's thread."""

    def __init__(self, mappings: Sequence[CompiledMapping]) -> None:
        self._by_version = {one.version_id: one for one in mappings}
        self._by_name = {one.spec.name: one for one in mappings}
        self._ours = {
            "names": [one.spec.name for one in mappings],
            "versions": [one.spec.version for one in mappings],
        }

    def do(self, store: Store, now: datetime) -> int:
        """What is due now, in one transaction. Returns how many were tried. Raises SinkFault."""
        killers = store.beside(lambda connection, held: self._set_aside(connection, held, now))
        mapped = [one for one in killers if one.mapping is not None]
        if mapped:
            store.beside(lambda connection, _: self._try_killers(store, connection, mapped, now))
        tried = store.beside(lambda connection, held: self._try(store, connection, held, now))
        return len(killers) + tried

    def _try(
        self, store: Store, connection: Connection, held: list[int], now: datetime
    ) -> tuple[int, list[Change]]:
        return self._land(store, connection, self._due(connection, held, now, killers=False), now)

    def _due(
        self, connection: Connection, held: list[int], now: datetime, *, killers: bool
    ) -> list[Due]:
        asked = {
            **self._ours, "now": now, "partitions": held, "limit": 1 if killers else _AT_ONCE,
            "killers": killers, "killed": Reason.KILLED_WORKER.value,
        }  # fmt: skip
        return [Due(*row) for row in connection.execute(_SQL["due"], asked)]

    def _set_aside(
        self, connection: Connection, held: list[int], now: datetime
    ) -> tuple[list[Due], list[Change]]:
        """One record that has ended a process, back in quarantine before it is tried: should it do
        so again, nobody tries it again after that."""
        due = self._due(connection, held, now, killers=True)
        detail = "the process ended when this record was tried again"
        faults = [RecordFault(one.index, Reason.KILLED_WORKER, detail) for one in due]
        _settle(
            connection,
            [
                _Result(one, Outcome.QUARANTINED, f, None)
                for one, f in zip(due, faults, strict=True)
            ],
            now,
        )
        return due, []

    def _try_killers(
        self, store: Store, connection: Connection, set_aside: list[Due], now: datetime
    ) -> tuple[int, list[Change]]:
        move(connection, Event.RETRY, [one.where for one in set_aside], Said(now, due_at=now))
        return self._land(store, connection, set_aside, now)

    def _land(
        self, store: Store, connection: Connection, due: list[Due], now: datetime
    ) -> tuple[int, list[Change]]:
        if not due:
            return 0, []
        tries = [self._tried(one) for one in due]
        pages = [one.page for one in tries if one.page is not None]
        changes = store.land(connection, Batch([_part(pages)]))
        results = [_result(one, tried) for one, tried in zip(due, tries, strict=True)]
        still = _settle(connection, results, now)
        if store.copies is not None:
            store.copies.write(connection, still, now)
        return len(due), changes

    def remap(self, store: Store, now: datetime) -> int:
        """Let the versions in use try what older ones refused. Returns how many are due now.

        In steps of `REMAPPED_AT_ONCE`; what was tried by a version is never picked for it again.
        """
        return store.beside(lambda connection, held: (self._remap(connection, held, now), []))

    def _remap(self, connection: Connection, held: list[int], now: datetime) -> int:
        asked = {
            **self._ours, "ids": list(self._by_version), "partitions": held,
            "sources": list(sources(Event.REMAP)), "by_hand": [one.value for one in BY_HAND],
            "limit": REMAPPED_AT_ONCE,
        }  # fmt: skip
        by_version: dict[int, list[Where]] = defaultdict(list)
        for *where, version in connection.execute(_EXCEPTIONS["remappable"], asked):
            by_version[version].append(Where(*where))
        for version, places in by_version.items():
            note = f"version {self._by_version[version].spec.version} is in use"
            said = Said(now, "apply", note, due_at=now, tried_version=version)
            move(connection, Event.REMAP, places, said)
        return sum(len(places) for places in by_version.values())

    def _tried(self, due: Due) -> _Tried:
        """The record as a page of its own; or why there is nothing to try."""
        compiled = self._by_version.get(due.mapping_version)
        if compiled is None and due.mapping is not None:
            # an older version's exception: the version that is live now is what can heal it
            compiled = self._by_name.get(due.mapping)
        if compiled is None:
            detail = "no live mapping reads it"
            return _Tried(None, RecordFault(due.index, Reason.MAPPER_FAILED, detail))
        if due.raw is None:
            detail = "its bytes were not stored"
            return _Tried(None, RecordFault(due.index, Reason.OVERSIZED, detail))
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
        return _Tried(page, None)


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


def _part(pages: list[PageWork]) -> Part:
    return Part(partition=-1, session=-1, generation=0, start=0, end=0, pages=pages)


@dataclass(frozen=True, slots=True)
class _Result:
    """What a try came to. `tried_version`: the mapping version that it was made with."""

    due: Due
    outcome: Outcome
    fault: RecordFault | None
    tried_version: int | None

    @property
    def event(self) -> Event:
        if self.outcome is Outcome.QUARANTINED:
            return Event.REFUSE
        if self.outcome is not Outcome.RETRYABLE:
            return Event.LAND
        return Event.FAIL if self.due.attempts + 1 < ATTEMPTS else Event.EXHAUST


def _result(due: Due, tried: _Tried) -> _Result:
    if tried.page is None:
        return _Result(due, Outcome.QUARANTINED, tried.fault, None)
    work = tried.page.works[0]
    work.settle()
    fault = work.faults[0] if work.faults else None
    return _Result(due, Outcome(work.outcomes[0]), fault, work.mapping_version)


def _said(one: _Result, now: datetime) -> Said:
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


def _settle(connection: Connection, results: Sequence[_Result], now: datetime) -> list[Where]:
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

"""Tries exceptions again: due ones, by the owner of their partition, through the same guard.

A record that becomes a row, or is beaten by one, is resolved; one that fails again waits longer;
after the last attempt it is quarantined. The verbs of operators only say that something is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from apply import metrics
from apply.batch import Batch, PageWork, Part, Work
from apply.changes import Change
from apply.decisions import Judged, heal_coverage, set_outcome
from apply.decode import map_page
from apply.ledger import FIRST_RETRY_S
from apply.mapping.types import CompiledMapping, Place
from apply.outcomes import Outcome, Reason, RecordFault
from apply.queries import load
from apply.sink import Connection
from apply.store import Store
from schemas.keys import split_partition_id
from schemas.records import Observation

_SQL = load("retry")
ATTEMPTS = 10
LONGEST_S = 3600.0
_AT_ONCE = 200


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
    began: int | None
    pass_: str
    page: int
    part: int
    parts: int
    first_index: int


def wait_s(attempts: int) -> float:
    """Seconds before the next try, after so many failed ones: doubling, at most an hour."""
    return min(LONGEST_S, FIRST_RETRY_S * 2.0 ** min(attempts, 30))


class Retries:
    """The chore of trying again. Used by the writer's thread."""

    def __init__(self, mappings: Sequence[CompiledMapping]) -> None:
        self._by_version = {one.version_id: one for one in mappings}
        self._by_name = {one.spec.name: one for one in mappings}

    def do(self, store: Store, now: datetime) -> int:
        """One transaction with what is due now. Returns how many were tried. Raises SinkFault."""
        killers = store.beside(lambda connection, held: _set_aside(connection, held, now))
        mapped = [one for one in killers if one.mapping is not None]
        if mapped:
            store.beside(lambda connection, _: self._land(store, connection, mapped, now))
        tried = store.beside(lambda connection, held: self._try(store, connection, held, now))
        return len(killers) + tried

    def _try(
        self, store: Store, connection: Connection, held: list[int], now: datetime
    ) -> tuple[int, list[Change]]:
        return self._land(store, connection, _due(connection, held, now, killers=False), now)

    def _land(
        self, store: Store, connection: Connection, due: list[Due], now: datetime
    ) -> tuple[int, list[Change]]:
        if not due:
            return 0, []
        works = [self._work(one) for one in due]
        pages = [page for page, _ in works if page is not None]
        changes = store.land(connection, Batch([_part(pages)]))
        for one, (page, fault) in zip(due, works, strict=True):
            work = None if page is None else page.works[0]
            if work is not None:
                work.settle()
            _settle(connection, one, work, fault, now)
        return len(due), changes

    def _work(self, due: Due) -> tuple[PageWork | None, RecordFault | None]:
        """The record as a page of its own; or why there is nothing to try."""
        compiled = self._by_version.get(due.mapping_version)
        if compiled is None and due.mapping is not None:
            # an older version's exception: the version that is live now is what can heal it
            compiled = self._by_name.get(due.mapping)
        if compiled is None:
            return None, RecordFault(due.index, Reason.MAPPER_FAILED, "no live mapping reads it")
        if due.raw is None:
            return None, RecordFault(due.index, Reason.OVERSIZED, "its bytes were not stored")
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
        return page, None


def _due(connection: Connection, held: list[int], now: datetime, *, killers: bool) -> list[Due]:
    asked = {
        "now": now, "partitions": held, "limit": 1 if killers else _AT_ONCE, "killers": killers,
        "killed": Reason.KILLED_WORKER.value,
    }  # fmt: skip
    return [Due(*row) for row in connection.execute(_SQL["due"], asked)]


def _set_aside(
    connection: Connection, held: list[int], now: datetime
) -> tuple[list[Due], list[Change]]:
    """One record that has ended a process, back in quarantine before it is tried: should it do so
    again, nobody tries it again after that."""
    due = _due(connection, held, now, killers=True)
    for one in due:
        detail = "the process ended when this record was tried again"
        _settle(connection, one, None, RecordFault(one.index, Reason.KILLED_WORKER, detail), now)
    return due, []


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


def _settle(
    connection: Connection, due: Due, work: Work | None, fault: RecordFault | None, now: datetime
) -> None:
    """Write what the retry came to: exception, ledger byte, coverage."""
    outcome = Outcome.QUARANTINED if work is None else Outcome(work.outcomes[0])
    if work is not None and work.faults:
        fault = work.faults[0]
    state, due_at = "resolved", None
    if outcome is Outcome.RETRYABLE and due.attempts + 1 < ATTEMPTS:
        state, due_at = "retryable", now + timedelta(seconds=wait_s(due.attempts + 1))
    elif outcome in (Outcome.RETRYABLE, Outcome.QUARANTINED):
        state, outcome = "quarantined", Outcome.QUARANTINED
    metrics.RETRIED.labels(outcome.name.lower()).inc()
    page = Judged(due.mapping_version, due.partition, due.generation, due.offset)
    connection.execute(
        _SQL["settle"],
        {
            **asdict(page),
            "index": due.index,
            "state": state,
            "due_at": due_at,
            "reason": None if fault is None else fault.reason.value,
            "detail": None if fault is None else fault.detail,
            "decided_by": "retry" if state == "resolved" else None,
            "decided_at": now if state == "resolved" else None,
        },
    )
    set_outcome(connection, page, due.index, outcome, due.first_index)
    if state == "resolved":
        heal_coverage(connection, due.partition_id_no, due.plan, due.scope)


def request(
    connection: Connection, action: str, *, by: str, note: str, now: datetime, **which: Any
) -> int:
    """An operator's word on exceptions: `action` is `retry` (due now) or `dismiss`.

    `which` narrows them: mapping, partition_id, reason, partition, offset, index; at least one.
    Returns how many. The partition's owner does the work of a retry. Raises ValueError.
    """
    names = ("mapping", "partition_id", "reason", "partition", "offset", "index")
    unknown = set(which) - set(names)
    if action not in ("retry", "dismiss") or unknown or not which:
        raise ValueError(f"{action} with {sorted(which)}: name at least one of {', '.join(names)}")
    retrying = action == "retry"
    outcome = Outcome.RETRYABLE if retrying else Outcome.QUARANTINED
    values: Mapping[str, Any] = {
        **dict.fromkeys(names), **which, "by": by, "note": note, "now": now,
        "state": "retryable" if retrying else "dismissed", "due_at": now if retrying else None,
    }  # fmt: skip
    with connection.transaction():
        chosen = connection.execute(_SQL["request"], values).fetchall()
        for *page, index in chosen:
            set_outcome(connection, Judged(*page), index, outcome)
        about = Jsonb({**which, "exceptions": len(chosen)})
        connection.execute(
            _SQL["action"], {"by": by, "action": action, "about": about, "note": note}
        )
    return len(chosen)

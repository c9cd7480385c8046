"""Writes what became of every record: ledger rows with packed outcomes, exceptions with evidence.

Runs inside the batch's transaction. Invariant: counts of a row sum to the records of its page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from apply.batch import PageWork, Work
from apply.outcomes import Outcome, RecordFault, counts
from apply.queries import load
from apply.same_record import Group, Where, digest, fingerprint
from apply.sink import Connection
from apply.sql_text import quote
from schemas.records import Observation

_SQL = load("ledger")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_RETRY_S = 5.0

_LEDGER = (
    ("mapping_version", "int4"), ("partition", "int4"), ("generation", "int2"), ("offset", "int8"),
    ("partition_id", "int4"), ("plan", "text"), ("scope", "text"), ("pass", "text"),
    ("page", "int4"), ("part", "int4"), ("parts", "int4"), ("original_offset", "int8"),
    ("records", "int4"), ("counts", "int4[]"), ("outcomes", "bytea"), ("fetched_at", "timestamptz"),
)  # fmt: skip
_EXCEPTION = (
    ("mapping_version", "int4"), ("partition", "int4"), ("generation", "int2"), ("offset", "int8"),
    ("index", "int4"), ("partition_id", "int4"), ("plan", "text"), ("scope", "text"),
    ("source_epoch", "int2"), ("original_offset", "int8"), ("key", "jsonb"), ("state", "text"),
    ("reason", "text"), ("detail", "text"), ("raw", "bytea"), ("due_at", "timestamptz"),
    ("fetched_at", "timestamptz"), ("as_of", "timestamptz"), ("run", "text"),
    ("fingerprint", "bytea"), ("content", "bytea"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """An exception that was written, and the group of those that say the same; None: nobody's."""

    where: Where
    group: Group | None


def moment(at_us: int) -> datetime:
    """Microseconds since the epoch as a time with zone, exactly."""
    return _EPOCH + timedelta(microseconds=at_us)


def prepare(connection: Connection) -> None:
    """Make the temporary tables of a replay; once per connection."""
    connection.execute(_SQL["stage_ledger"])
    connection.execute(_SQL["stage_exception"])


def write_exceptions(
    connection: Connection, pages: Iterable[PageWork], now: datetime, *, replay: bool
) -> list[Written]:
    """Evidence of every record that became no row. Returns what was written."""
    rows = [row for page in pages for work in page.works for row in _exceptions(page, work, now)]
    _copy(connection, "exception", _EXCEPTION, rows, replay=replay)
    return [_written(row) for row in rows]


def _written(row: Sequence[Any]) -> Written:
    named = dict(zip((name for name, _ in _EXCEPTION), row, strict=True))
    said = named["fingerprint"]
    version = named["mapping_version"]
    group = None if said is None else Group(named["partition_id"], version, said, named["reason"])
    return Written(Where(*row[:5]), group)


def _exceptions(page: PageWork, work: Work, now: datetime) -> Iterator[tuple[Any, ...]]:
    observation = page.observation
    for fault in work.faults:
        at = fault.index - observation.first_index
        retryable = work.outcomes[at] == Outcome.RETRYABLE
        as_of = None if observation.as_of is None else moment(observation.as_of)
        content = content_of(observation, fault.index, at)
        yield (
            work.mapping_version, page.partition, page.generation, page.offset,
            fault.index, page.partition_id_no, observation.plan, observation.scope,
            observation.source_epoch, page.original_offset, _key(fault),
            "retryable" if retryable else "quarantined",
            fault.reason.value, fault.detail, observation.records[at] or None,
            now + timedelta(seconds=FIRST_RETRY_S) if retryable else None,
            moment(observation.received_at), as_of, observation.run,
            fingerprint(fault.key, content), content,
        )  # fmt: skip


def content_of(observation: Observation, index: int, at: int) -> bytes | None:
    """A digest of the record; of one whose bytes were not stored the log may know another."""
    if observation.records[at]:
        return digest(observation.records[at])
    known = (one.sha256 for one in observation.missing if one.index == index and one.sha256)
    return next(known, None)


def _key(fault: RecordFault) -> Jsonb | None:
    return None if fault.key is None else Jsonb(dict(fault.key))


def write_ledger(connection: Connection, pages: Iterable[PageWork], *, replay: bool) -> int:
    """One row per observation and mapping version. Returns how many."""
    rows = [_page(page, work) for page in pages for work in page.works]
    _copy(connection, "page_ledger", _LEDGER, rows, replay=replay)
    return len(rows)


def _page(page: PageWork, work: Work) -> tuple[Any, ...]:
    observation, outcomes = page.observation, work.outcomes
    return (
        work.mapping_version, page.partition, page.generation, page.offset,
        page.partition_id_no, observation.plan, observation.scope, observation.pass_,
        observation.page, observation.part, observation.parts, page.original_offset,
        len(outcomes), counts(outcomes), bytes(outcomes), moment(observation.received_at),
    )  # fmt: skip


def _copy(
    connection: Connection,
    table: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Any, ...]],
    *,
    replay: bool,
) -> None:
    if not rows:
        return
    target = quote(f"stage_{table}") if replay else f"gapless.{quote(table)}"
    names = ", ".join(quote(name) for name, _ in columns)
    statement = f"COPY {target} ({names}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor().copy(statement.encode()) as copy:
        copy.set_types([kind for _, kind in columns])
        for row in rows:
            copy.write_row(row)
    if replay:
        connection.execute(_SQL["keep_ledger" if table == "page_ledger" else "keep_exception"])

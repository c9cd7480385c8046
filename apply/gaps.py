"""An operator accepts that part of the log is lost: the partition goes on behind it.

Invariant: nothing that is still in the log is skipped. After a cut, reading resumes behind the last
page that log and ledger agree on; another log begins a new generation, whose pages count as newer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from apply.opening import topic_id
from apply.ownership import UNKNOWN_SCHEMA
from apply.queries import load
from apply.sink import Connection, connect
from apply.tolerance import RECORD_FAULTS
from schemas.keys import PageKey, page_key_of
from schemas.log.reader import PartitionReader
from schemas.settings import Settings

_SQL = load("gaps")
_RETRY = load("retry")
_WINDOW = 1_000


class NothingHalted(Exception):
    """There is no loss to accept; says why."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """Where a partition goes on: from `next_offset` of `generation`; `cause`: what was accepted."""

    partition: int
    cause: str
    generation: int
    next_offset: int


def accept_gap(
    settings: Settings, partition: int, *, by: str, note: str, now: datetime
) -> Accepted:
    """Free a halted partition. Its worker goes on by itself within seconds.

    Raises NothingHalted, schemas.log.reader.LogUnavailable, or psycopg.Error.
    """
    with connect(settings.postgres, "accept-gap") as connection, connection.transaction():
        row = connection.execute(_SQL["halted"], {"partition": partition}).fetchone()
        if row is None or row[2] is None:
            raise NothingHalted(f"partition {partition} is not halted: nothing to accept")
        generation, wanted, halted = row
        cause = str(halted.get("cause"))
        if cause == UNKNOWN_SCHEMA:
            raise NothingHalted(
                f"partition {partition} waits for a newer version of gapless, nothing is lost: "
                "upgrade apply and start it again"
            )
        if cause == RECORD_FAULTS:
            raise NothingHalted(
                f"nothing of partition {partition} is lost: {halted['detail']}; "
                f"{halted['unblocked_by']}"
            )
        accepted = _resume(settings, connection, partition, cause, generation, wanted)
        _write(settings, connection, accepted, generation, by, note, now)
    return accepted


def _resume(
    settings: Settings,
    connection: Connection,
    partition: int,
    cause: str,
    generation: int,
    wanted: int,
) -> Accepted:
    with PartitionReader(settings, settings.observations, partition, "accept-gap") as reader:
        low, end = reader.low(), reader.stable_end()
        if cause == "deleted_by_retention":
            return Accepted(partition, cause, generation, max(low, wanted))
        if cause == "topic_recreated":
            return Accepted(partition, cause, generation + 1, low)
        start = min(wanted, end)
        step = _WINDOW
        while start > low:
            first = max(low, start - step)
            known = _known(connection, partition, generation, first, start)
            same = [r.offset for r in reader.read(first, start) if known.get(r.offset) == r.key]
            if same:
                return Accepted(partition, cause, generation + 1, max(same) + 1)
            start, step = first, step * 2
        return Accepted(partition, cause, generation + 1, low)


def _known(
    connection: Connection, partition: int, generation: int, start: int, end: int
) -> dict[int, str]:
    """Offset → key of the pages that the ledger has there."""
    asked = {"partition": partition, "generation": generation, "start": start, "end": end}
    rows: Iterable[tuple[Any, ...]] = connection.execute(_SQL["pages"], asked)
    return {offset: page_key_of(PageKey(*key)) for offset, *key in rows}


def _write(
    settings: Settings,
    connection: Connection,
    accepted: Accepted,
    before: int,
    by: str,
    note: str,
    now: datetime,
) -> None:
    values = {
        "partition": accepted.partition, "generation": accepted.generation,
        "next": accepted.next_offset, "cause": accepted.cause, "by": by, "now": now,
    }  # fmt: skip
    if accepted.generation != before:
        connection.execute(_SQL["new_generation"], {**values, "topic_id": topic_id(settings)})
        for name in ("drop_snapshots", "drop_marks", "forget_replays"):
            connection.execute(_SQL[name], values)
    connection.execute(_SQL["go_on"], values)
    connection.execute(_SQL["accept"], values)
    about = Jsonb(
        {"partition": accepted.partition, "cause": accepted.cause, "next": accepted.next_offset}
    )
    connection.execute(
        _RETRY["action"], {"by": by, "action": "accept_gap", "about": about, "note": note}
    )

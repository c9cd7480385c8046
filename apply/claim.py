"""Claims on partitions: taken, kept over a lost connection, given back.

Invariant: whoever holds the highest claim of a position row is the only one whose batch commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
import structlog
from psycopg.types.json import Jsonb

from apply.faults import SinkFault
from apply.queries import load
from apply.sink import Connection

_log = structlog.get_logger(__name__)
_SQL = load("position")
LIVE = "live"
LOCKED_S = 2.0
"""A position row locked longer than this is taken from its backend."""
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Position:
    """Where a claimed partition stands. `halted` None: it may go on; `end_offset`: of a replay.

    `unclean`: how often in a row it was left behind just here by an owner that never gave it back;
    `trial`: what was tried carefully last.
    """

    partition: int
    generation: int
    next_offset: int
    last_offset: int | None
    last_key: str | None
    leader_epoch: int | None
    claim: int
    halted: Mapping[str, Any] | None
    end_offset: int | None
    checkpointed_at: datetime
    unclean: int
    trial: Mapping[str, Any] | None


def claim(
    connection: Connection,
    pipeline: str,
    partition: int,
    owner: str,
    mapping_versions: Sequence[int],
) -> Position:
    """Take a partition over: its claim rises by one. Commits.

    Terminates the backend of the owner before if that keeps the row locked for LOCKED_S. Raises
    SinkFault if the row stays locked all the same, or psycopg.Error.
    """
    values = {
        "pipeline": pipeline,
        "partition": partition,
        "owner": owner,
        "mapping_versions": list(mapping_versions),
    }
    row = _patiently(connection, "claim", values)
    assert row is not None
    return row


def reclaim(connection: Connection, pipeline: str, held: Position, owner: str) -> Position | None:
    """The same claim on a new connection, raised by one; None if somebody else took it. Commits."""
    values = {
        "pipeline": pipeline,
        "partition": held.partition,
        "owner": owner,
        "claim": held.claim,
    }
    return _patiently(connection, "reclaim", values)


def _patiently(connection: Connection, name: str, values: Mapping[str, Any]) -> Position | None:
    for _ in range(_ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {int(LOCKED_S * 1000)}")
                row = connection.execute(_SQL[name], values).fetchone()
            return None if row is None else Position(*row)
        except psycopg.errors.LockNotAvailable:
            _terminate_holder(connection, values)
    raise SinkFault(
        "position_locked",
        f"position of partition {values['partition']} ({values['pipeline']}) stays locked; "
        "look for its backend in pg_locks",
    )


def _terminate_holder(connection: Connection, values: Mapping[str, Any]) -> None:
    with connection.transaction():
        holder = connection.execute(_SQL["holder"], values).fetchone()
        if holder is None:
            return
        owner, pid, start = holder
        ended = connection.execute(_SQL["terminate"], {"pid": pid, "start": start}).fetchone()
    _log.warning(
        "terminated the backend that kept a position locked",
        pipeline=values["pipeline"],
        partition=values["partition"],
        owner=owner,
        backend_pid=pid,
        ended=ended is not None,
    )
    time.sleep(0.05)  # the backend rolls back; the next attempt waits for the lock anyway


def release(connection: Connection, pipeline: str, held: Iterable[Position]) -> None:
    """Say that nothing of ours is left on these rows; claims stay as they are. Commits."""
    positions = list(held)
    if not positions:
        return
    with connection.transaction():
        connection.execute(
            _SQL["release"],
            {
                "pipeline": pipeline,
                "partitions": [p.partition for p in positions],
                "claims": [p.claim for p in positions],
            },
        )


def halt(
    connection: Connection,
    pipeline: str,
    held: Position,
    *,
    cause: str,
    detail: str,
    first_lost: int,
    first_kept: int,
    now: datetime,
) -> bool:
    """Stop a partition with a gap that an operator has to accept by name. Commits.

    Offsets `[first_lost, first_kept)` are what may be lost. False if the claim is no longer ours.
    """
    halted = {
        "cause": cause,
        "detail": detail,
        "since": now.isoformat(),
        "first_lost": first_lost,
        "first_kept": first_kept,
        "unblocked_by": f"gapless accept-gap --partition {held.partition}",
    }
    with connection.transaction():
        row = connection.execute(
            _SQL["halt"],
            {
                "pipeline": pipeline,
                "partition": held.partition,
                "claim": held.claim,
                "halted": Jsonb(halted),
            },
        ).fetchone()
        if row is None:
            return False
        connection.execute(
            _SQL["gap"],
            {
                "partition": held.partition,
                "generation": held.generation,
                "offset": first_lost,
                "partition_id": None,
                "from_text": str(first_lost),
                "to_text": str(first_kept),
                "cause": cause,
            },
        )
    _log.error("partition halted", partition=held.partition, **halted)
    return True

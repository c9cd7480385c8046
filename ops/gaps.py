"""Accepting a loss by name: a recorded gap, or a partition that halted because its log changed.

Nothing is repaired here: what is lost is written down with who accepted it, and reading goes on
behind it. A topic that was cut or made anew begins a new log generation, so that its reused offsets
can never be mistaken for the old ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[tuple[Any, ...]]
_NEW_GENERATION = ("truncated", "topic_recreated")
_KNOWN = (*_NEW_GENERATION, "deleted_by_retention")


class NothingToAccept(Exception):
    """There is no such gap, or the partition is not halted; says what is."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was accepted: the cause, offsets `[first_lost, first_kept)`, and where reading goes on."""

    partition: int
    cause: str
    detail: str
    first_lost: int
    first_kept: int
    generation: int
    next_offset: int


def accept_gap(connection: Connection, gap: int, *, by: str, note: str) -> str:
    """Accept a recorded gap by its number; returns what it was. Raises NothingToAccept."""
    with connection.transaction():
        row = connection.execute(
            "UPDATE gapless.gap g SET accepted_by = %s, accepted_at = now()"
            " WHERE g.id = %s AND g.accepted_at IS NULL"
            " RETURNING g.cause, g.from_text, g.to_text, g.partition",
            (by, gap),
        ).fetchone()
        if row is None:
            raise NothingToAccept(f"There is no gap {gap} that waits for anybody.")
        _keep(connection, by, "accept_gap", {"gap": gap}, note)
    return f"{row[0]}: {row[1]} to {row[2]} in partition {row[3]}"


def accept_halted(
    connection: Connection, partition: int, topic_id: str, *, by: str, note: str
) -> Accepted:
    """Let a halted partition go on. `topic_id`: of the topic as it is now.

    Raises NothingToAccept if it is not halted, or for a cause that nobody can accept.
    """
    with connection.transaction():
        rows = connection.execute(
            "SELECT pipeline, generation, halted FROM gapless.position"
            " WHERE partition = %s AND halted IS NOT NULL ORDER BY pipeline = 'live' DESC FOR UPDATE",
            (partition,),
        ).fetchall()
        if not rows:
            raise NothingToAccept(f"Partition {partition} is not halted.")
        generation, halted = int(rows[0][1]), rows[0][2]
        cause = str(halted.get("cause"))
        if cause not in _KNOWN:
            raise NothingToAccept(
                f"Partition {partition} is halted by {cause}: {halted.get('detail')}. "
                f"That is no loss; it needs {halted.get('unblocked_by')}."
            )
        lost, kept = int(halted["first_lost"]), int(halted["first_kept"])
        following = {"truncated": lost, "topic_recreated": 0}.get(cause, kept)
        if cause in _NEW_GENERATION:
            generation = _begin_generation(connection, partition, topic_id, following, by)
        accepted = Accepted(
            partition, cause, str(halted.get("detail")), lost, kept, generation, following
        )
        _go_on(connection, accepted)
        connection.execute(
            "UPDATE gapless.gap SET accepted_by = %s, accepted_at = now()"
            " WHERE partition = %s AND partition_id IS NULL AND accepted_at IS NULL",
            (by, partition),
        )
        about = {"partition": partition, "cause": cause, "first_lost": lost, "first_kept": kept}
        _keep(connection, by, "accept_gap", about, note)
    return accepted


def _begin_generation(
    connection: Connection, partition: int, topic_id: str, first_offset: int, by: str
) -> int:
    row = connection.execute(
        "INSERT INTO gapless.log_generation"
        " (partition, generation, topic_id, first_offset, accepted_by)"
        " SELECT %(partition)s, coalesce(max(generation), 0) + 1, %(topic_id)s, %(first)s, %(by)s"
        " FROM gapless.log_generation WHERE partition = %(partition)s RETURNING generation",
        {"partition": partition, "topic_id": topic_id, "first": first_offset, "by": by},
    ).fetchone()
    assert row is not None
    return int(row[0])


def _go_on(connection: Connection, accepted: Accepted) -> None:
    """Every pipeline that is halted there; what it remembers of the lost log is forgotten."""
    connection.execute(
        "UPDATE gapless.position SET halted = NULL, generation = %s, next_offset_to_apply = %s,"
        " last_offset = NULL, last_key = NULL, leader_epoch = NULL"
        " WHERE partition = %s AND halted IS NOT NULL",
        (accepted.generation, accepted.next_offset, accepted.partition),
    )


def _keep(connection: Connection, by: str, action: str, about: dict[str, Any], note: str) -> None:
    connection.execute(
        "INSERT INTO gapless.operator_action (by, action, about, note) VALUES (%s, %s, %s, %s)",
        (by, action, Jsonb(about), note),
    )

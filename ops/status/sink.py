"""What can be said of a sink that cannot be asked, or that apply waits for. Pure.

Ingest does not need it: pages keep landing, and nothing is lost before a retention ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ops.facts.ask import Unprepared
from ops.facts.deployment import LogFacts
from ops.facts.log import Mirrored
from ops.facts.sink import Row
from ops.status.model import PartitionStatus, Trouble
from ops.status.words import number
from schemas.log.pause import Pause

KIND = "sink"
_FUNCTION = "mapping_function"
_LOOK = "the runbook server-away"
_BY_ITSELF = "apply then goes on by itself"
_UNBLOCKS: Mapping[str, str] = {
    "disk_full": "space on the disk of Postgres",
    "out_of_memory": "memory for Postgres",
    "too_many_connections": "a free connection of Postgres",
    "read_only": "a Postgres that takes writes, not a standby",
    "missing_privilege": "the privilege that the log of apply names",
    "missing_table": "gapless migrate",
    "missing_column": "gapless migrate",
    "changed_column": "the column's type as the mapping declares it; the log of apply names it",
    "missing_key": "the primary key of the table, as gapless migrate makes it",
    "column_not_filled": "give that column of the table a default, or drop its NOT NULL",
    "wrong_password": "the password in GAPLESS_POSTGRES or PGPASSWORD of apply",
    "not_authorised": "a user that Postgres lets in, in GAPLESS_POSTGRES of apply",
    "missing_database": "the database that GAPLESS_POSTGRES of apply names",
    "lock_timeout": "whoever holds a lock on the tables; see pg_locks",
}


def pause_of(mirrored: Mirrored | None, position: Row | None, asked: bool) -> Pause | None:
    """Why apply waits, unless Postgres knows better: another owner, or something applied since."""
    pause = mirrored.pause if mirrored else None
    if pause is None or not asked:
        return pause
    if position is None or position["owner"] != pause.worker:
        return None
    later = position["checkpointed_at"].timestamp() * 1e6 > pause.since
    return None if later else pause


def sink_troubles(
    why_not_asked: str | None, partition_ids: Sequence[PartitionStatus], log: LogFacts | None
) -> Iterator[Trouble]:
    """What waits for Postgres, and what is not known meanwhile."""
    if why_not_asked is not None and log is not None:
        away = _away(why_not_asked, partition_ids, log)
        if isinstance(why_not_asked, Unprepared):
            away = replace(away, unblocks="gapless migrate", look=None)
        yield away
    pauses = {one.applied.pause for one in partition_ids if one.applied.pause is not None}
    for pause in sorted(pauses, key=lambda found: (found.since, found.worker)):
        if pause.reason == _FUNCTION:
            yield _function(pause)
            continue
        unblocks = _UNBLOCKS.get(pause.reason, "a Postgres that answers and takes writes")
        yield Trouble(
            KIND,
            None,
            f"apply waits for Postgres: {pause.reason}, says worker {pause.worker}",
            pause.since,
            f"{unblocks}; {_BY_ITSELF}",
            _LOOK,
        )


def _function(pause: Pause) -> Trouble:
    return Trouble(
        "mapping function",
        None,
        f"apply waits for a function of a mapping that cannot be started, says worker {pause.worker}",
        pause.since,
        f"the function, importable where apply runs; the log of apply names it and why; {_BY_ITSELF}",
        "gapless check MAPPING, there",
    )


def _away(why: str, partition_ids: Sequence[PartitionStatus], log: LogFacts) -> Trouble:
    waiting = {
        one.applied.partition: one.applied
        for one in partition_ids
        if one.applied.lag_at_most_s is not None and one.applied.lag_at_most_s > 0
    }
    since: int | None = None
    if waiting:
        since = min(log.waiting_since_ms[partition] for partition in waiting) * 1000
        count = sum(
            applied.end - applied.mirrored
            for applied in waiting.values()
            if applied.end is not None and applied.mirrored is not None
        )
        known = f"by Kafka's mirror at most {number(count)} records of the log wait"
    elif any(one.applied.mirrored is not None for one in partition_ids):
        known = "by Kafka's mirror everything in the log was applied"
    else:
        known = "Kafka holds no mirrored offset either"
    first = why.splitlines()[0].rstrip(".") if why else "no answer"
    return Trouble(
        KIND,
        None,
        f"{first}. Unknown: the applied offset, outcomes, coverage and exceptions. Known: {known}",
        since,
        f"a Postgres that answers; {_BY_ITSELF}, and ingest goes on meanwhile",
        _LOOK,
    )

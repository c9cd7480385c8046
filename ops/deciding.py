"""Decisions of operators about quarantined records: asked for here, and watched until they are done.

Nothing is decided in passing: who speaks of records that do not exist is told so, and how to look.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from apply.exceptions import Moved, arrays
from apply.outcomes import Reason
from apply.requests import request
from ops import problems, quarantine

_TURN_S = 0.2
_STANDING = """
SELECT e.state, e.reason, e.state = 'retryable' AND e.due_at <= now() AS waits, e.due_at
FROM gapless.exception e
JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
  %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
  USING (mapping_version, partition, generation, "offset", index)"""


@dataclass(frozen=True, slots=True)
class About:
    """What a decision is about; `which` narrows it as `apply.requests.request` takes it."""

    which: dict[str, Any]
    everything: bool = False


def decide(dsn: str, action: str, about: About, *, by: str, note: str) -> list[Moved]:
    """Retry or dismiss. Raises problems.Stop if nothing open is meant, or psycopg.Error."""
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        moved = request(
            connection, action, by=by, note=note, now=datetime.now(UTC),
            everything=about.everything, **about.which,
        )  # fmt: skip
    if not moved:
        raise _nothing(dsn, about)
    return moved


def _nothing(dsn: str, about: About) -> problems.Stop:
    """Why nothing was meant: a name that nobody knows, or nothing that is open."""
    which = about.which
    if "offset" in which:
        place = quarantine.Place(which["partition"], which["offset"], which["index"])
        at = f"{place.partition}/{place.offset}/{place.index}"
        rows = quarantine.shown(dsn, place)
        if not rows:
            said = f"There is no exception at {at}; see `gapless quarantine list`."
            return problems.Stop(said, problems.USAGE)
        said = f"The exception at {at} is {rows[0]['state']}: there is nothing to decide."
        return problems.Stop(said, problems.FINDING)
    mapping, reason = which.get("mapping"), which.get("reason")
    if mapping is not None and mapping not in (known := quarantine.mappings(dsn)):
        said = f"There is no mapping {mapping}; known: {', '.join(known) or 'none'}."
        return problems.Stop(said, problems.USAGE)
    if reason is not None and reason not in list(Reason):
        said = f"There is no reason {reason}; write one of {', '.join(sorted(Reason))}."
        return problems.Stop(said, problems.USAGE)
    said = "No open record is like that; see `gapless quarantine list`."
    return problems.Stop(said, problems.FINDING)


def watch(dsn: str, moved: Sequence[Moved], wait_s: float) -> str:
    """What retries came to, in words, waiting at most so long. Raises psycopg.Error."""
    number = len(moved)
    first = f"{_records(number)} due now; tried by the owner of the log partition."
    deadline = time.monotonic() + wait_s
    places = arrays([one.where for one in moved])
    with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as connection:
        while True:
            rows = connection.execute(_STANDING, places).fetchall()
            waiting = sum(1 for row in rows if row[2])
            if not waiting or time.monotonic() >= deadline:
                break
            time.sleep(_TURN_S)
    lines = [first, *_results(rows)]
    if waiting:
        lines.append(
            f"{_records(waiting)} not tried yet: it happens within 2 s wherever gapless apply runs. "
            "Look again: gapless quarantine list"
        )
    return "\n".join(lines)


def _results(rows: Sequence[Sequence[Any]]) -> list[str]:
    ended = Counter(row[0] for row in rows)
    again = Counter(row[1] for row in rows if row[0] == "quarantined")
    later = [row[3] for row in rows if row[0] == "retryable" and not row[2]]
    lines = []
    if ended["resolved"]:
        lines.append(f"{_records(ended['resolved'])} resolved.")
    lines += [f"{_records(number)} refused again: {reason}." for reason, number in again.items()]
    if later:
        lines.append(
            f"{_records(len(later))} to be tried again by itself, first at {min(later):%H:%M:%S}."
        )
    return lines


def _records(number: int) -> str:
    return "1 record is" if number == 1 else f"{number} records are"

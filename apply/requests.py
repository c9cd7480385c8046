"""What operators ask of exceptions: to try them again, or to leave them out for good.

Only says so, with a name: the owner of their partition does the work of a retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from apply.exception_states import Event
from apply.exceptions import Moved, Said, covered, move
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection

_SQL = load("retry")
_EVENTS = {"retry": Event.RETRY, "dismiss": Event.DISMISS}
_AT_ONCE = 2_000
_START = Where(-1, -1, -1, -1, -1)
FILTERS = ("mapping", "partition_id", "tenant", "reason", "partition", "offset", "index")


def request(
    connection: Connection,
    action: str,
    *,
    by: str,
    note: str,
    now: datetime,
    everything: bool = False,
    **which: Any,
) -> list[Moved]:
    """An operator's word on open exceptions: `action` is `retry` (due now) or `dismiss`.

    `which` narrows them by FILTERS: at least one, or `everything`. What an exception stands for
    shares its fate: earlier observations with other bytes are tried, too. Returns the open ones
    that it concerns, without those. Raises ValueError.
    """
    unknown = set(which) - set(FILTERS)
    if action not in _EVENTS or unknown or not (which or everything):
        raise ValueError(f"{action} with {sorted(which)}: name at least one of {FILTERS}")
    said = Said(now, by, note, due_at=now if action == "retry" else None)
    found: list[Moved] = []
    after: Where | None = None
    while True:
        with connection.transaction():
            places = _asked(connection, which, after)
            moved = _move(connection, _EVENTS[action], places, said)
            if moved:
                about = Jsonb({**which, "exceptions": len(moved)})
                values = {"by": by, "action": action, "about": about, "note": note}
                connection.execute(_SQL["action"], values)
        found += moved
        if len(places) < _AT_ONCE:
            return found
        after = places[-1]


def _asked(connection: Connection, which: Mapping[str, Any], after: Where | None) -> list[Where]:
    """A few at a time: whoever owns their partition does not wait for a long decision."""
    behind = asdict(after or _START)
    values = {
        **dict.fromkeys(FILTERS), **which, "limit": _AT_ONCE,
        **{f"after_{name}": value for name, value in behind.items()},
    }  # fmt: skip
    return [Where(*row) for row in connection.execute(_SQL["asked"], values)]


def _move(connection: Connection, event: Event, places: Sequence[Where], said: Said) -> list[Moved]:
    moved = move(connection, event, places, said)
    behind = [one for one in moved if one.fingerprint is not None]
    others = covered(connection, behind) if behind else []
    followers = [where for where, _, _, has_raw in others if has_raw or event is Event.DISMISS]
    move(connection, event, followers, said)
    return moved

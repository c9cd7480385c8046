"""Writes events beside the rows that changed, with a sequence that rises per key.

The sequence follows the database's clock, so it also rises over a restored backup; it never goes
back behind what this process, or the owner before it, has issued.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from apply.changes import Change, wanted_type
from apply.queries import load
from apply.sink import Connection

_SQL = load("outbox")
# The last one is jsonb in its binary form: a version and the text.
_TYPES = ("text", "text", "int8", "text", "text", "text", "text", "bytea")
_JSONB_VERSION = b"\x01"


class Outbox:
    """Issues sequences. Used by one thread."""

    def __init__(self) -> None:
        self._last = 0

    def prepare(self, connection: Connection) -> None:
        """Make the temporary table; once per connection."""
        connection.execute(_SQL["stage"])

    def took_over(self, connection: Connection) -> None:
        """To call after every claim: an owner before may have issued higher numbers."""
        row = connection.execute(_SQL["newest_sequence"]).fetchone()
        self._last = max(self._last, int(row[0]) if row else 0)

    def write(self, connection: Connection, changes: Sequence[Change]) -> int:
        """One event per change, in their order. Returns how many were asked for."""
        if not changes:
            return 0
        row = connection.execute(_SQL["clock"]).fetchone()
        assert row is not None
        first = max(self._last + 1, int(row[0]))
        self._last = first + len(changes) - 1
        with connection.cursor().copy(_SQL["copy"]) as copy:
            copy.set_types(_TYPES)
            for sequence, one in enumerate(changes, first):
                copy.write_row(
                    (
                        one.compiled.spec.name, one.key, sequence, one.effect,
                        wanted_type(one.compiled, one.effect), _topic(one), one.identity,
                        _JSONB_VERSION + _payload(one).encode(),
                    )
                )  # fmt: skip
        connection.execute(_SQL["insert"])
        connection.execute(_SQL["empty"])
        return len(changes)


def _topic(change: Change) -> str | None:
    """None: posted to where the definition says when the relay gets to it."""
    events = change.compiled.spec.events
    assert events is not None  # only mappings with events have changes
    return events.topic


def _payload(change: Change) -> str:
    """What receivers get: which entity, what happened to which fields, and the row as it is now.

    Put together as text: reading the row's numbers would cost their exactness.
    """
    spec = change.compiled.spec
    told: dict[str, object] = {
        "mapping": spec.name,
        "version": spec.version,
        "effect": change.effect,
    }
    if change.effect == "changed":
        told["changed"] = list(change.changed)
    head = json.dumps(told, ensure_ascii=False)
    return f'{head[:-1]}, "key": {change.key}, "row": {change.payload}}}'

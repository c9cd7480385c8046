"""Lets the evidence of decided exceptions go when it is old enough; what is open is never dropped.

A resolved exception goes as a whole. A dismissed one is the proof of its record's outcome, so its
row stays as long as the ledger's, without key and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from apply.exception_states import Event, State, sources
from apply.exceptions import arrays
from apply.mapping.types import CompiledMapping
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection

_SQL = load("exceptions")
KEPT_S = 90 * 86_400.0
"""How long the evidence of records without a mapping of today is kept."""
AT_ONCE = 1_000


def expire(
    connection: Connection,
    partitions: Sequence[int],
    mappings: Sequence[CompiledMapping],
    now: datetime,
) -> int:
    """Drop what was decided too long ago, at most AT_ONCE. Returns how many. In a transaction."""
    asked = {
        "partitions": list(partitions), "now": now, "keep_s": KEPT_S, "limit": AT_ONCE,
        "sources": list(sources(Event.EXPIRE)),
        "names": [one.spec.name for one in mappings],
        "keeps": [one.spec.keep_quarantine_s for one in mappings],
    }  # fmt: skip
    found = connection.execute(_SQL["expired"], asked).fetchall()
    for name, reached in (("drop", State.GONE), ("strip", State.DISMISSED)):
        from_ = sources(Event.EXPIRE, reached)
        places = [Where(*row[:5]) for row in found if row[5] in from_]
        if places:
            connection.execute(_SQL[name], {**arrays(places), "sources": list(from_)})
    return len(found)

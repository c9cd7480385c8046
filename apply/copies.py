"""Copies of quarantined records for readers of dead-letter topics, written beside the quarantine.

Through the outbox, so that a copy exists exactly if its exception does. The outbox holds headers and
coordinates only: the relay takes the bytes from the exception, so an erasure has one place to reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from apply.exceptions import arrays
from apply.outcomes import Reason
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection

_SQL = load("copies")
_OF_THE_SINK = (
    Reason.FOREIGN_OWNER, Reason.FOREIGN_KEY, Reason.UNIQUE, Reason.CHECK, Reason.REFUSED_BY_SINK,
    Reason.TIMED_OUT,
)  # fmt: skip
_OF_THE_BYTES = (Reason.UNREADABLE, Reason.OVERSIZED, Reason.UNSPLITTABLE)


@dataclass(frozen=True, slots=True)
class Copies:
    """Where copies go, and which topic and connector their headers name."""

    topic: str
    observations: str
    connector: str

    def write(self, connection: Connection, places: Sequence[Where], now: datetime) -> int:
        """Copies of those that are in quarantine now and have none yet. Returns how many."""
        if not places:
            return 0
        values = {
            **arrays(places), "now": now, "topic": self.topic, "log": self.observations,
            "connector": self.connector, "stages": Jsonb(_stages()),
        }  # fmt: skip
        return connection.execute(_SQL["write"], values).rowcount


def _stages() -> Mapping[str, str]:
    """Kafka Connect's names of the stage that refused a record, by reason."""
    named = dict.fromkeys((one.value for one in _OF_THE_SINK), "TASK_PUT")
    return named | dict.fromkeys((one.value for one in _OF_THE_BYTES), "VALUE_CONVERTER")

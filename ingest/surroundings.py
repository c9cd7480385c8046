"""What all ownerships of one process share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ingest.budget import Pace, Tail
from ingest.buffer import ByteBudget
from ingest.decisions import Decisions
from ingest.emission import StreamState
from ingest.following import Following
from ingest.metrics import Horizon
from schemas.records import Control
from schemas.settings import Settings

Obey = Callable[[StreamState, Control], StreamState]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every ownership of the process shares. `now` in microseconds since the epoch."""

    settings: Settings
    bytes: ByteBudget
    decisions: Decisions
    obey: Obey
    horizon_of: Callable[[str], Horizon]
    pace: Pace
    persist: Tail
    now: Callable[[], int]
    answers: Tail = field(default_factory=Tail)
    following: Following = field(default_factory=Following)

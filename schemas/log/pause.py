"""What apply says beside a mirrored offset while it waits, so that Kafka can tell.

A sink in trouble cannot take such a note itself. It holds no detail: what an error says may be personal.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

_FORM = "gapless-pause-1"
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a worker of apply waits. `reason`: a fixed word; `since`: microseconds since the epoch."""

    reason: str
    since: int
    worker: str


def to_note(pause: Pause | None) -> str:
    """The metadata of a committed offset; empty: nothing to say."""
    if pause is None:
        return ""
    short = Pause(pause.reason[:_MOST_CHARACTERS], pause.since, pause.worker[:_MOST_CHARACTERS])
    return json.dumps({"form": _FORM, **asdict(short)})


def of_note(text: str | None) -> Pause | None:
    """What a committed offset's metadata says; None for nothing, or for what others wrote there."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("form") != _FORM:
        return None
    reason, since, worker = found.get("reason"), found.get("since"), found.get("worker")
    if isinstance(reason, str) and isinstance(worker, str) and type(since) is int:
        return Pause(reason, since, worker)
    return None

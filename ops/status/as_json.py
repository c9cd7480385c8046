"""The status as JSON: the model as it is, times as ISO 8601 text in UTC. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ops.status.model import Status
from ops.status.words import iso

_TIMES = frozenset(
    {
        "read_at", "written_at", "not_before", "polled_at", "checkpointed_at", "start_at",
        "end_at", "due_at", "at", "since", "unsent_since", "unsent_copies_since",
        "next_snapshot_at",
    }
)  # fmt: skip


def to_json(status: Status) -> dict[str, Any]:
    """Everything that the text says, and more; `halted` stays as apply wrote it."""
    found = _times(asdict(status))
    assert isinstance(found, dict)
    return found


def _times(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if key == "halted":
            return value
        return {name: _times(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_times(item) for item in value]
    return iso(value) if key in _TIMES and isinstance(value, int) else value

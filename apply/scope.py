"""Which part of the log a replay reads: all of it, from an offset or a time on, or one tenant's.

Rows outside stay as they are, with the mapping version that made them. A part says nothing about
the whole, so it has position rows under a name of its own. Pure.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from schemas.keys import partition_id


@dataclass(frozen=True, slots=True)
class Scope:
    """`since`: append time of the first record that counts. `start`: (partition of the log, offset).
    `tenant`: of which alone pages are read. All None: everything."""

    since: datetime | None = None
    start: tuple[int, int] | None = None
    tenant: str | None = None

    @property
    def everything(self) -> bool:
        return self.since is None and self.start is None and self.tenant is None

    def suffix(self) -> str:
        """What tells the position rows of this part from those of another; empty for everything."""
        if self.everything:
            return ""
        return ":" + hashlib.sha256(self.text().encode()).hexdigest()[:8]

    def text(self) -> str:
        """For a person."""
        said = []
        if self.since is not None:
            said.append(f"since {self.since.astimezone(UTC).isoformat()}")
        if self.start is not None:
            said.append(f"from offset {self.start[1]} of partition {self.start[0]}")
        if self.tenant is not None:
            said.append(f"tenant {self.tenant}")
        return ", ".join(said) or "everything"

    def partition_id(self, source: str, stream: str) -> str | None:
        """The only partition id that is read; None: all of the stream."""
        return None if self.tenant is None else partition_id(source, stream, self.tenant)


def parse_since(text: str) -> datetime:
    """An ISO 8601 time with a zone, or a date (midnight UTC). Raises ValueError, saying what to write."""
    advice = f"{text!r} is no time with a zone: write it like 2026-03-01T10:00:00Z or 2026-03-01"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(advice) from error
    if found.tzinfo is None:
        if len(text) > len("2026-03-01"):
            raise ValueError(advice)
        found = found.replace(tzinfo=UTC)
    return found


def parse_start(text: str) -> tuple[int, int]:
    """`PARTITION:OFFSET`. Raises ValueError, saying what to write."""
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise ValueError(
            f"{text!r} is no place in the log: write PARTITION:OFFSET, such as 3:120000, as "
            "`gapless explain` and `gapless quarantine show` print it"
        )
    return int(partition), int(offset)

"""Times as providers write them, read and printed as integer microseconds since 1970 in UTC."""

from dataclasses import dataclass
from enum import StrEnum


class TimeKind(StrEnum):
    """How a provider writes a time."""

    RFC3339 = "rfc3339"  # seconds; read with any fraction
    RFC3339_MS = "rfc3339_ms"  # milliseconds
    UNIX_S = "unix_s"  # a number of seconds
    UNIX_MS = "unix_ms"  # a number of milliseconds
    PATTERN = "pattern"  # strptime-like, with %3f and %6f


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """A time's notation; `pattern` only with PATTERN."""

    kind: TimeKind
    pattern: str | None = None

"""Where the past of each stream begins by definition: the audit wants marks from there on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from schemas.definitions.source import IntervalSpec, SourceSpec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def declared_starts(sources: Iterable[SourceSpec]) -> dict[tuple[str, str], str]:
    """(source, stream) → first moment, for streams that say one."""
    found: dict[tuple[str, str], str] = {}
    for source in sources:
        for stream in source:
            changes = stream.changes
            if isinstance(changes, IntervalSpec) and changes.start_us is not None:
                at_us = changes.start_us - changes.start_us % changes.granularity_us
                moment = _EPOCH + timedelta(microseconds=at_us)
                found[(source.name, stream.name)] = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return found

"""The message of a copy: a quarantined record's own bytes under the headers that its outbox row has.

The bytes are read when they are published, from the exception: what an erasure or a retention has
taken meanwhile is published as a tombstone of its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import psycopg

TYPE = "gapless.quarantined"
_RAW = """
SELECT concat_ws('/', partition, generation, "offset", index, mapping_version) AS place, raw
FROM gapless.exception
JOIN unnest(%(mapping_versions)s::int[], %(partitions)s::int[], %(generations)s::int2[],
  %(offsets)s::bigint[], %(indexes)s::int[]) AS w (mapping_version, partition, generation, "offset", index)
  USING (mapping_version, partition, generation, "offset", index)"""
Headers = list[tuple[str, str | bytes | None]]


class Outgoing(Protocol):
    """What is needed of a row of the outbox."""

    @property
    def type(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def payload(self) -> Any: ...


def read(
    connection: psycopg.Connection[dict[str, Any]], events: Sequence[Outgoing]
) -> dict[str, bytes | None]:
    """The bytes of the copies among these events, by the key of their event. Raises psycopg.Error."""
    payloads = [event.payload for event in events if event.type == TYPE]
    if not payloads:
        return {}
    asked = {
        "mapping_versions": [one["mapping_version"] for one in payloads],
        "partitions": [one["partition"] for one in payloads],
        "generations": [one["generation"] for one in payloads],
        "offsets": [one["offset"] for one in payloads],
        "indexes": [one["index"] for one in payloads],
    }
    rows = connection.execute(_RAW, asked)
    return {row["place"]: None if row["raw"] is None else bytes(row["raw"]) for row in rows}


def message(event: Outgoing, raw: Mapping[str, bytes | None]) -> tuple[bytes | None, Headers]:
    """Value and headers of a copy."""
    headers: Headers = [(name, str(value)) for name, value in event.payload["headers"].items()]
    return raw.get(event.key), headers

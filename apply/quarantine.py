"""What one batch puts in quarantine: merged with what is there, copied, and held against limits.

Runs inside the batch's transaction, behind its ledger rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from apply.batch import Batch
from apply.copies import Copies
from apply.exceptions import arrays
from apply.ledger import Written
from apply.mapping.types import CompiledMapping
from apply.queries import load
from apply.same_record import Group
from apply.sightings import date_back, merge
from apply.sink import Connection
from apply.tolerance import Refused, TooMany, behind, limits, stops

_SQL = load("quarantine")
_POSITION = load("position")


class Exceeded(Exception):
    """The batch holds more than may be applied: of these partitions nothing behind these offsets."""

    def __init__(self, offsets: dict[int, int]) -> None:
        super().__init__(f"a mapping takes no more faults: {offsets}")
        self.offsets = offsets


class Quarantine:
    """Used by one thread."""

    def __init__(
        self, mappings: Sequence[CompiledMapping], copies: Copies | None, *, replay: bool
    ) -> None:
        """`copies` None: nothing is copied. A replay copies nothing and stops at nothing."""
        self._copies = None if replay else copies
        self._limits = {} if replay else limits(mappings)
        self._names = {one.version_id: one.spec.name for one in mappings}

    def take(
        self, connection: Connection, batch: Batch, written: Sequence[Written], now: datetime
    ) -> dict[int, TooMany]:
        """Returns the partitions that have to stop behind this batch. Raises Exceeded."""
        places = [one.where for one in written]
        groups = {one.group for one in written if one.group is not None}
        date_back(connection, places)
        merge(connection, groups, set(places), now)
        if self._copies is not None:
            self._copies.write(connection, places, now)
        stop = self._stops(connection, written)
        too_much = behind(batch.parts, stop)
        if too_much:
            raise Exceeded(too_much)
        return stop

    def _stops(self, connection: Connection, written: Sequence[Written]) -> dict[int, TooMany]:
        limited = [
            one for one in written if self._names.get(one.where.mapping_version) in self._limits
        ]
        if not limited:
            return {}
        places = arrays([one.where for one in limited])
        still = {tuple(row) for row in connection.execute(_SQL["still_open"], places)}
        first: dict[Group, int] = {}
        for one in limited:
            if one.group is not None:
                first[one.group] = min(first.get(one.group, one.where.offset), one.where.offset)
        refused = [
            Refused(
                self._names[one.where.mapping_version],
                one.where.partition,
                one.where.offset if one.group is None else first[one.group],
            )
            for one in limited
            if (one.where.mapping_version, one.where.partition, one.where.offset, one.where.index)
            in still
        ]
        partitions = sorted({one.where.partition for one in limited})
        asked = {"names": sorted(self._limits), "partitions": partitions}
        opened = {(row[0], row[1]): row[2] for row in connection.execute(_SQL["opened"], asked)}
        return stops(refused, opened, self._limits)


def halt(
    connection: Connection,
    pipeline: str,
    claims: Mapping[int, int],
    halted: Mapping[int, Mapping[str, Any]],
) -> None:
    """These partitions stop behind this batch, whoever owns them then."""
    for partition, why in halted.items():
        values = {"pipeline": pipeline, "partition": partition, "claim": claims[partition]}
        connection.execute(_POSITION["halt"], {**values, "halted": Jsonb(why)})


def go_on(
    connection: Connection, claims: Mapping[int, int], mappings: Sequence[CompiledMapping]
) -> list[int]:
    """Free the partitions that faults of records have stopped, where no limit is exceeded any more.

    `claims`: of the partitions that are ours. Returns those that were freed.
    """
    allowed, free = limits(mappings), []
    asked = {"partitions": sorted(claims)}
    for partition, halted in connection.execute(_SQL["stopped"], asked).fetchall():
        name = halted.get("mapping", "")
        counted = {"names": [name], "partitions": [partition]}
        opened = sum(row[2] for row in connection.execute(_SQL["opened"], counted))
        if name not in allowed or opened <= allowed[name]:
            values = {"partition": partition, "claim": claims[partition]}
            if connection.execute(_SQL["go_on"], values).rowcount:
                free.append(partition)
    return free

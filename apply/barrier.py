"""Rule A: what was observed below the last sweep, or below an open listing of its key, is superseded.

Pages of the live log always stand above; only pages that an erasure rewrote, retries and replays
have to be asked about. Runs inside the batch's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from apply.mapping.types import GENERATION, OFFSET, PARTITION_ID, CompiledMapping, Row
from apply.queries import load
from apply.share import Coordinates
from apply.sink import Connection
from apply.sql_text import equal_sql, present_sql, quote

_SQL = load("snapshots")
Place = tuple[int, int]
"""(generation, offset)."""


@dataclass(slots=True)
class Barrier:
    """`swept`: per partition id, below which nothing counts. `listing`: per partition id, the
    snapshots that are not over, each with the place where it began."""

    swept: dict[int, Place] = field(default_factory=dict)
    listing: dict[int, list[tuple[Place, str]]] = field(default_factory=dict)

    def may_be_listed(self, row: Row) -> bool:
        """Whether the row was observed before a snapshot began that is not over."""
        at = (row[GENERATION], row[OFFSET])
        return any(at < began for began, _ in self.listing.get(row[PARTITION_ID], ()))


def barrier(connection: Connection, partition_ids: Iterable[int], mapping_version: int) -> Barrier:
    """The barrier of one mapping, as it stands in this transaction."""
    found = Barrier()
    asked = {"partition_ids": sorted(set(partition_ids)), "mapping_versions": [mapping_version]}
    for number, generation, swept, at, snapshot in connection.execute(_SQL["floors"], asked):
        place = (generation, at)
        if swept:
            found.swept[number] = max(found.swept.get(number, place), place)
        else:
            found.listing.setdefault(number, []).append((place, snapshot))
    return found


def listed(
    connection: Connection, compiled: CompiledMapping, stage: str, found: Barrier
) -> set[Coordinates]:
    """Which staged rows have a key that a snapshot which is not over has listed already."""
    asked = [
        (number, generation, began, snapshot)
        for number, listings in found.listing.items()
        for (generation, began), snapshot in listings
    ]
    statement = (
        f'SELECT n."_partition_id", n."_offset", n."_index" FROM {quote(stage)} n'
        " JOIN unnest(%s::int[], %s::int2[], %s::bigint[], %s::text[])"
        " AS w (partition_id, generation, began, snapshot)"
        ' ON w.partition_id = n."_partition_id"'
        ' AND (n."_generation", n."_offset") < (w.generation, w.began)'
        f" WHERE EXISTS (SELECT FROM {present_sql(compiled.spec)} p"
        f" WHERE p.partition_id = w.partition_id AND p.snapshot = w.snapshot"
        f" AND {equal_sql(compiled, 'p', 'n')})"
    )
    parameters = [list(column) for column in zip(*asked, strict=True)]
    rows = connection.execute(statement.encode(), parameters)
    return {(row[0], row[1], row[2]) for row in rows}

"""Keys that open snapshots have shown to exist: written as a set, read by the sweep.

Holds every listed key, also of superseded, quarantined and retryable records, and the keys of
changes logged after the snapshot began. Mappings that keep absent rows need none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from apply.batch import PageWork
from apply.mapping.types import CompiledMapping, Key
from apply.queries import load
from apply.sink import Connection
from apply.sql_text import columns_sql, present_sql

_SQL = load("snapshots")
KEEP = "keep"


class Shown:
    """What the pages of one batch show, per mapping."""

    def __init__(self) -> None:
        self._keys: dict[int, list[tuple[int, str, Key]]] = defaultdict(list)
        self._compiled: dict[int, CompiledMapping] = {}
        self._counts: dict[tuple[int, str, int], list[int]] = {}

    def add(self, pages: Iterable[PageWork], is_over: Callable[[int, str], bool]) -> None:
        """Take in what belongs to snapshots; of changes, only for those that are not over."""
        for page in pages:
            for snapshot in page.present_in:
                listing = page.observation.plan == "snapshot"
                if listing or not is_over(page.partition_id_no, snapshot):
                    self._add(page, snapshot)

    def _add(self, page: PageWork, snapshot: str) -> None:
        listing = page.observation.plan == "snapshot"
        for work in page.works:
            compiled = work.compiled
            if compiled is None or compiled.spec.absent == KEEP:
                continue
            self._compiled[work.mapping_version] = compiled
            width = len(compiled.key_columns)
            keys = work.mapped.listed_keys(width, changes=not listing)
            number = page.partition_id_no
            self._keys[work.mapping_version] += [(number, snapshot, key) for key in keys]
            if listing:
                at = (number, snapshot, work.mapping_version)
                count = self._counts.setdefault(at, [0, 0])
                count[0] += len(keys)
                count[1] += work.mapped.unreadable

    def write(self, connection: Connection) -> None:
        """COPY the keys and raise the counts of their snapshots."""
        for version, shown in self._keys.items():
            _copy(connection, self._compiled[version], shown)
        if self._counts:
            connection.execute(
                _SQL["count"],
                {
                    "partition_ids": [number for number, _, _ in self._counts],
                    "snapshots": [snapshot for _, snapshot, _ in self._counts],
                    "mapping_versions": [version for _, _, version in self._counts],
                    "listed": [count[0] for count in self._counts.values()],
                    "unreadable": [count[1] for count in self._counts.values()],
                },
            )


def _copy(
    connection: Connection, compiled: CompiledMapping, shown: list[tuple[int, str, Key]]
) -> None:
    keys = compiled.key_columns
    statement = (
        f"COPY {present_sql(compiled.spec)} (partition_id, snapshot, {columns_sql(keys)})"
        " FROM STDIN (FORMAT BINARY)"
    )
    with connection.cursor().copy(statement.encode()) as copy:
        copy.set_types(["int4", "text", *compiled.type_names[: len(keys)]])
        for number, snapshot, key in shown:
            copy.write_row((number, snapshot, *key))

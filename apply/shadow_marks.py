"""Snapshots as a table beside the live one goes through them: presence and sweeps, in log order.

Live has read these marks before and owns what they say of coverage, gaps and the log itself; here
they only decide which rows are absent. Runs inside the batch's transaction, behind the ledger.
"""

from __future__ import annotations

import msgspec

from apply.batch import Batch, MarkWork
from apply.mapping.types import CompiledMapping
from apply.presence import Shown
from apply.queries import load
from apply.sink import Connection
from apply.snapshots import Snapshots
from schemas.keys import split_partition_id
from schemas.records import Mark

_SQL = load("snapshots")
_LEDGER = load("ledger")


class ShadowMarks:
    """Of one version whose table stands beside. Used by the thread of its store."""

    def __init__(self, compiled: CompiledMapping) -> None:
        self._version = compiled.version_id
        self._stream = (compiled.spec.source, compiled.spec.stream)
        self._snapshots = Snapshots([compiled], beside=compiled.version_id)

    def write(self, connection: Connection, batch: Batch) -> None:
        """What the pages and marks of a batch say about who is there."""
        self._snapshots.started()
        marks = [work for work in batch.marks() if self._ours(work)]
        self._snapshots.enter(connection, marks)
        shown = Shown()
        shown.add(batch.pages(), self._snapshots.is_over)
        shown.write(connection)
        # pages that an erasure rewrote stand behind the mark that names them
        self._complete(connection, sorted({page.partition_id_no for page in batch.pages()}))
        for work in marks:
            if work.mark.kind == "snapshot_begin":
                self._snapshots.begin(connection, work)
            elif work.mark.kind == "snapshot_complete":
                if self._snapshots.reached_end(connection, work):
                    self._complete(connection, [work.partition_id_no])

    def committed(self) -> None:
        """The batch is durable."""
        self._snapshots.committed()

    def released(self, connection: Connection, partitions: list[int]) -> int:
        """Sweeps of this table that an operator has released; how many."""
        asked = {"partitions": partitions, "beside": self._version}
        found = connection.execute(_SQL["released"], asked).fetchall()
        for number, _, _, snapshot in found:
            self._snapshots.sweep_released(connection, number, snapshot)
        return len(found)

    def _ours(self, work: MarkWork) -> bool:
        return split_partition_id(work.mark.partition_id)[:2] == self._stream

    def _complete(self, connection: Connection, numbers: list[int]) -> None:
        """Judge the snapshots whose end was read, where this version has seen every page named."""
        asked = {"partition_ids": numbers, "beside": self._version}
        for partition, generation, offset, number, body in connection.execute(
            _SQL["waiting_beside"], asked
        ).fetchall():
            work = MarkWork(offset, generation, partition, number, msgspec.convert(body, Mark))
            if self._holds(connection, work):
                self._snapshots.complete(connection, work)

    def _holds(self, connection: Connection, work: MarkWork) -> bool:
        for wanted in work.mark.passes:
            asked = {
                "partition_id": work.partition_id_no, "pass": wanted.pass_, "first": wanted.first,
                "last": wanted.last, "mapping_version": self._version,
            }  # fmt: skip
            found = connection.execute(_LEDGER["held_by"], asked).fetchone()
            if found is None or found[0] < wanted.parts or found[1] < wanted.records:
                return False
        return True

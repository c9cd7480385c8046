"""Snapshots from their begin mark to the sweep: what may be deleted, and when it must not.

Never after a partial listing, with an unreadable key, on one listing that can shift, or beyond the
declared share without an operator. Runs inside the batch's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from psycopg.types.json import Jsonb

from apply.absence import Absence, forget_presence, share_absent, sweep
from apply.allowance import allowed
from apply.batch import UNMAPPED, MarkWork
from apply.changes import Change
from apply.ledger import moment
from apply.mapping.types import CompiledMapping
from apply.presence import KEEP
from apply.queries import load
from apply.sink import Connection
from schemas.keys import split_partition_id

_log = structlog.get_logger(__name__)
_SQL = load("snapshots")
_RETRY = load("retry")
FIRST_OF_TWO = "first of two listings, since this one can shift"
"""Why a listing by position deletes nothing until the next one is complete: as it should be."""


class Snapshots:
    """Used by the writer's thread. `beside`: the version whose table a replay fills beside live."""

    def __init__(self, mappings: Sequence[CompiledMapping], beside: int | None = None) -> None:
        self._beside = beside
        self._mappings = {one.version_id: one for one in mappings}
        self._streams: dict[tuple[str, str], list[int]] = {}
        for one in mappings:
            stream = (one.spec.source, one.spec.stream)
            self._streams.setdefault(stream, []).append(one.version_id)
        self._ended: list[tuple[int, str]] = []
        self._over: dict[int, str] = {}

    def started(self) -> None:
        """A transaction begins."""
        self._ended = []

    def committed(self) -> None:
        """The transaction is durable."""
        self._over.update(self._ended)
        self._ended = []

    def is_over(self, partition_id_no: int, snapshot: str) -> bool:
        """Whether no sweep will ask for the presence of this snapshot again."""
        return self._over.get(partition_id_no) == snapshot

    def adopt(self, connection: Connection, partition: int) -> None:
        """Snapshots of an older version of a mapping go on under the one that runs."""
        for version in self._mappings:
            values = {"mapping_version": version, "partition": partition}
            connection.execute(_SQL["adopt"], values)

    def enter(self, connection: Connection, marks: Iterable[MarkWork]) -> None:
        """Rows for the snapshots that begin in this batch, before its pages are counted."""
        for work in marks:
            if work.mark.kind == "snapshot_begin":
                connection.execute(
                    _SQL["begin"],
                    {
                        "partition_id": work.partition_id_no,
                        "snapshot": work.mark.scope,
                        "generation": work.generation,
                        "began": work.offset,
                        "mapping_versions": self._versions(work),
                    },
                )

    def _versions(self, work: MarkWork) -> list[int]:
        source, stream, _ = split_partition_id(work.mark.partition_id)
        return self._streams.get((source, stream), [UNMAPPED])

    def begin(self, connection: Connection, work: MarkWork) -> None:
        """A snapshot began: one that is still open will never be complete."""
        values = {
            "partition_id": work.partition_id_no, "snapshot": work.mark.scope,
            "generation": work.generation, "began": work.offset, "beside": self._beside,
        }  # fmt: skip
        dropped = connection.execute(_SQL["drop_open"], values).fetchall()
        if self._beside is None:
            connection.execute(_SQL["drop_marks"], values)
        for version, snapshot in dropped:
            _log.info(
                "snapshot dropped: a newer one began before it was complete",
                partition_id=work.mark.partition_id, snapshot=snapshot,
            )  # fmt: skip
            compiled = self._mappings.get(version)
            if compiled is not None:
                forget_presence(
                    connection, compiled, work.partition_id_no, [work.mark.scope], only=snapshot
                )

    def reached_end(self, connection: Connection, work: MarkWork) -> bool:
        """The complete mark was read; whether its pages are all there is another question.

        False if the snapshot is over: a newer one began before.
        """
        found = connection.execute(
            _SQL["completed"],
            {
                "partition_id": work.partition_id_no,
                "snapshot": work.mark.scope,
                "completed": work.offset,
                "stable": work.mark.stable,
                "beside": self._beside,
            },
        )
        return found.fetchone() is not None

    def complete(self, connection: Connection, work: MarkWork) -> list[Change] | None:
        """All pages are in the ledger: sweep, hold, or keep. None if the snapshot is over already."""
        mark, changes, states = work.mark, list[Change](), set[str]()
        rows = self._rows(connection, work.partition_id_no, mark.scope, "open")
        for row in rows:
            compiled = self._mappings.get(row.mapping_version)
            if compiled is None or compiled.spec.absent == KEEP:
                states.add(_end(connection, row, "kept", None))
                continue
            found = self._absence(connection, row, mark.source_epoch, moment(mark.at))
            connection.execute(_SQL["drop_held"], row.parameters)
            state, note = self._judge(connection, compiled, row, found)
            if state == "swept":
                assert found is not None
                changes += self._sweep(connection, compiled, row, found)
            else:
                _end(connection, row, state, note)
                self._forget(connection, compiled, row, found if state == "held" else None)
            _tell(mark.partition_id, mark.scope, state, note)
            states.add(state)
        if rows and mark.stable and "held" not in states:
            self._ended.append((work.partition_id_no, mark.scope))
        return changes if rows else None

    def sweep_released(
        self, connection: Connection, partition_id_no: int, snapshot: str
    ) -> list[Change]:
        """What an operator has released."""
        changes: list[Change] = []
        for row in self._rows(connection, partition_id_no, snapshot, "released"):
            compiled = self._mappings.get(row.mapping_version)
            found = self._absence(connection, row, row.source_epoch or 0, row.completed_at)
            if compiled is not None and found is not None:
                changes += self._sweep(connection, compiled, row, found)
        return changes

    def _judge(
        self,
        connection: Connection,
        compiled: CompiledMapping,
        row: _Row,
        found: Absence | None,
    ) -> tuple[str, str | None]:
        """What becomes of a complete snapshot, and why."""
        if row.unreadable:
            return "kept", f"withheld: {row.unreadable} listed records have no readable key"
        if found is None:
            return "kept", FIRST_OF_TWO
        absent, living = share_absent(connection, compiled, found)
        share = compiled.spec.absent_max
        if not allowed(absent, living, share) and not self._swept_live(connection, row):
            return "held", f"{absent} of {living} rows are absent, the mapping allows {share:%}"
        return "swept", None

    def _swept_live(self, connection: Connection, row: _Row) -> bool:
        """Beside live, one sweep has to do what several did there: its decision counts."""
        if self._beside is None:
            return False
        asked = {**row.parameters, "beside": self._beside}
        found = connection.execute(_SQL["swept_live"], asked).fetchone()
        return found is not None and bool(found[0])

    def _rows(self, connection: Connection, number: int, snapshot: str, state: str) -> list[_Row]:
        asked = {
            "partition_id": number, "snapshot": snapshot, "state": state, "beside": self._beside,
        }  # fmt: skip
        return [_Row(*row) for row in connection.execute(_SQL["rows"], asked)]

    def _absence(
        self, connection: Connection, row: _Row, source_epoch: int, at: datetime | None
    ) -> Absence | None:
        """Where to look for absent rows; None if one listing alone proves nothing yet.

        Of two listings the older one decides what was observed before: what came between them is
        missing from one listing only.
        """
        snapshots, barrier = [row.snapshot], row.began
        if not row.stable:
            before = connection.execute(_SQL["previous"], row.parameters).fetchone()
            if before is None:
                return None
            snapshots, barrier = [row.snapshot, before[0]], before[1]
        seen = at or datetime.now(UTC)
        return Absence(row.partition_id_no, row.generation, barrier, snapshots, source_epoch, seen)

    def _sweep(
        self, connection: Connection, compiled: CompiledMapping, row: _Row, found: Absence
    ) -> list[Change]:
        # this one join is over whole tables
        connection.execute("SET LOCAL enable_hashjoin = on")
        swept, changes = sweep(connection, compiled, found)
        connection.execute("SET LOCAL enable_hashjoin = off")
        _end(connection, row, "swept", None, swept=swept, barrier=found.barrier)
        self._forget(connection, compiled, row, None)
        return changes

    def _forget(
        self,
        connection: Connection,
        compiled: CompiledMapping,
        row: _Row,
        held: Absence | None,
    ) -> None:
        """Drop the presence that no sweep will ask for: a listing that can shift is one of a pair.

        Pages of snapshots that began later may have been read before this one is judged.
        """
        if held is not None:
            keep = list(held.snapshots)
        elif row.unreadable:
            before = connection.execute(_SQL["previous"], row.parameters).fetchone()
            keep = [] if before is None else [before[0]]
        else:
            keep = [] if row.stable else [row.snapshot]
        keep += [one[0] for one in connection.execute(_SQL["newer"], row.parameters)]
        forget_presence(connection, compiled, row.partition_id_no, keep)


@dataclass(frozen=True, slots=True)
class _Row:
    """One snapshot under one mapping version. `completed_at` and `source_epoch`: of its stored
    complete mark, None while that is not stored."""

    mapping_version: int
    partition_id_no: int
    snapshot: str
    generation: int
    began: int
    stable: bool
    unreadable: int
    source_epoch: int | None
    completed_at: datetime | None

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            "mapping_versions": [self.mapping_version],
            "partition_id": self.partition_id_no,
            "snapshot": self.snapshot,
            "generation": self.generation,
            "began": self.began,
        }


def _end(
    connection: Connection,
    row: _Row,
    state: str,
    note: str | None,
    *,
    swept: int = 0,
    barrier: int | None = None,
) -> str:
    connection.execute(
        _SQL["end"],
        {
            "state": state, "note": note, "swept": swept, "barrier": barrier,
            "partition_id": row.partition_id_no, "snapshot": row.snapshot,
            "mapping_version": row.mapping_version,
        },
    )  # fmt: skip
    return state


def _tell(partition_id: str, snapshot: str, state: str, note: str | None) -> None:
    """What an operator should hear of, once it is decided."""
    if state == "held":
        _log.error(
            "sweep held: an operator has to release it",
            partition_id=partition_id, snapshot=snapshot, why=note,
        )  # fmt: skip
    elif note is not None:
        say = _log.info if note == FIRST_OF_TWO else _log.warning  # every listing that can shift
        say("no sweep", partition_id=partition_id, snapshot=snapshot, why=note)


def release_sweep(
    connection: Connection, partition_id: str, snapshot: str, *, by: str, note: str
) -> int:
    """An operator lets a held sweep happen; the partition's owner does it next.

    Returns how many mappings it was held for; 0: nothing is held under these names.
    """
    values = {
        "partition_id": partition_id,
        "snapshot": snapshot,
        "note": f"released by {by}: {note}",
    }
    with connection.transaction():
        released = connection.execute(_SQL["release"], values).fetchall()
        about = Jsonb({"partition_id": partition_id, "snapshot": snapshot})
        connection.execute(
            _RETRY["action"],
            {"by": by, "action": "release_sweep", "about": about, "note": note},
        )
    return len(released)

"""Lands the rows of one mapping: fold, binary COPY, guarded upsert, and who was refused alone.

Runs inside the batch's transaction. In the careful way it bisects what the database refuses, so
that one record is stored as a fault and the rest lands; a fault of the sink always gets out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
import structlog

from apply.barrier import Barrier, listed
from apply.changes import Change, Events
from apply.children import ChildTables
from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.faults import NotKept, SinkFault, check_filled, is_of_a_value, refusal, timed_out
from apply.fold import fold, split_barred
from apply.guard import broken_sql, lowered_sql, others_sql, upsert_sql
from apply.mapping.types import BEGAN, PARTITION_ID, CompiledMapping, Row
from apply.narrowed import check_columns
from apply.outcomes import Outcome, Reason, Refusal
from apply.prefilter import Prefilter
from apply.share import FOREIGN_OWNER, Share, coordinates
from apply.sink import Connection
from apply.sql_text import columns_sql, copy_sql, quote, target_sql
from apply.straight import Straight
from schemas.definitions.mapping import RevisionKind

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Landed:
    """What happened to one mapping's rows beside their outcomes."""

    changes: list[Change] = field(default_factory=list)
    lowered: int = 0
    broken: int = 0


class Target:
    """The statements of one mapping and its temporary table, made once per connection."""

    def __init__(self, compiled: CompiledMapping) -> None:
        self.compiled = compiled
        self.stage = f"stage_{compiled.version_id}"
        self.copy = copy_sql(compiled, self.stage)
        self.forms = RowForms(compiled)
        self.upsert = upsert_sql(compiled, self.stage)
        # to send every written row's place back would cost more than to ask about the others
        self.upsert_counted = upsert_sql(compiled, self.stage, returning=False)
        self.others = others_sql(compiled, self.stage)
        self.lowered = lowered_sql(compiled, self.stage)
        exact = compiled.spec.revision.kind is RevisionKind.EXACT
        self.broken = broken_sql(compiled, self.stage) if exact else None
        self.events = Events(compiled, self.stage) if compiled.spec.events else None
        self.prefilter = Prefilter(compiled)
        self.straight = Straight(compiled, self.stage)
        tables = {compiled.spec.table: compiled.columns}
        tables |= {child.spec.table: child.columns for child in compiled.children}
        self.filled = {name: {one.name for one in columns} for name, columns in tables.items()}
        self.children = ChildTables(compiled, self.stage) if compiled.children else None

    def prepare(self, connection: Connection) -> None:
        """Make the temporary table. Raises psycopg.errors.UndefinedTable if the target is missing,
        SinkFault if one of its columns takes less than it has to."""
        columns = columns_sql(self.compiled.columns)
        connection.execute(
            f"CREATE TEMPORARY TABLE {quote(self.stage)} ON COMMIT DELETE ROWS AS"
            f" SELECT {columns} FROM {target_sql(self.compiled.spec)} WITH NO DATA".encode()
        )
        self.prefilter.prepare(connection)
        if self.children is not None:
            self.children.prepare(connection)
        check_columns(connection, self.compiled.spec)

    def empty(self, connection: Connection) -> None:
        """Another round within the same transaction."""
        connection.execute(f"DELETE FROM {quote(self.stage)}".encode())


@dataclass(frozen=True, slots=True)
class _Upserted:
    """One upsert: who was not written, and what it changed."""

    beaten: list[Row]
    foreign: list[Row]
    landed: Landed


class Landing:
    """Lands one share. `silent`: no events (replays)."""

    def __init__(
        self, connection: Connection, target: Target, share: Share, *, silent: bool
    ) -> None:
        self._connection, self._target, self._share = connection, target, share
        self._events = None if silent else target.events
        self._used = False
        self._landed = Landed()
        self._forms: dict[int, bytearray] | None = None
        self._prepared = share.prepared
        self._families = share.families()
        self._blame_timeouts = self._careful = False
        self._timed_out = 0
        self._checked = False

    def land(
        self,
        rows: Sequence[Row],
        found: Barrier | None,
        *,
        careful: bool,
        blame_timeouts: bool = False,
    ) -> Landed:
        """All rows of the share that may still count, to the end.

        `found`: the barrier, where rows may stand below it. `careful`: bisect what is refused,
        after the plain way was refused as a whole. `blame_timeouts`: then also what times out; if
        more than one record does, it is no record's fault, and SinkFault is raised.
        """
        self._blame_timeouts, self._careful = blame_timeouts, careful
        if found is not None:
            self._prepared = None
        prepared = self._prepared
        waiting = list(rows) if found is None else self._above(rows, found)
        while waiting:
            folded = fold(waiting, self._target.compiled) if prepared is None else prepared.folded
            prepared = None
            if careful:
                waiting = self._isolate_all(folded.winners, folded.losers)
            else:
                self._plain(folded.winners)
                self._share.mark(folded.losers, Outcome.SUPERSEDED)
                waiting = []
            waiting += folded.contested
        return self._landed

    def _plain(self, winners: list[Row]) -> None:
        """All at once; without those that are known to be beaten, if it pays to ask."""
        prefilter = self._target.prefilter
        if not prefilter.pays(len(winners)):
            upserted = self._upsert(winners)
            prefilter.learn(len(winners), len(upserted.beaten))
            return self._accept(upserted)
        kept, beaten, broken = prefilter.split(self._connection, winners, self._question(winners))
        prefilter.learn(len(winners), len(beaten))
        self._share.mark(beaten, Outcome.SUPERSEDED)
        self._landed.broken += broken
        if kept:
            self._accept(self._upsert(kept))
        return None

    def _above(self, rows: Sequence[Row], found: Barrier) -> list[Row]:
        """The rows that no sweep or open listing stands above; the others are superseded."""
        kept, barred = split_barred(rows, found.swept)
        doubtful = [row for row in kept if found.may_be_listed(row)]
        if doubtful:
            self._stage(doubtful)
            below = listed(self._connection, self._target.compiled, self._target.stage, found)
            barred += [row for row in kept if coordinates(row) in below]
            kept = [row for row in kept if coordinates(row) not in below]
        self._share.mark(barred, Outcome.SUPERSEDED)
        return kept

    def _isolate_all(self, winners: list[Row], losers: list[Row]) -> list[Row]:
        """Lands what can land. Returns older rows whose newer one was refused: they count again."""
        refused = self._isolate(winners)
        width = len(self._target.compiled.key_columns)
        open_keys = {row[:width] for row in refused}
        again = [row for row in losers if row[:width] in open_keys]
        beaten = [row for row in losers if row[:width] not in open_keys]
        self._share.mark(beaten, Outcome.SUPERSEDED)
        return again

    def _isolate(self, rows: list[Row]) -> list[Row]:
        """Bisect until each refused row stands alone. Returns the refused ones."""
        if not rows:
            return []
        found = self._attempt(rows)
        if found is None:
            return []
        if len(rows) == 1:
            self._timed_out += found.reason is Reason.TIMED_OUT
            if self._timed_out > 1:
                raise SinkFault("timed_out", "more than one record times out alone")
            self._share.refuse(rows[0], found)
            return rows
        middle = len(rows) // 2
        return self._isolate(rows[:middle]) + self._isolate(rows[middle:])

    def _attempt(self, rows: list[Row]) -> Refusal | None:
        """One try in a savepoint, deferred constraints included; why it was refused, or None."""
        used = self._used
        try:
            with self._connection.transaction():
                upserted = self._upsert(rows)
                self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            self._used = used  # the savepoint took the staged rows along
            check_filled(error, self._target.filled)
            if is_of_a_value(error):
                self._check_columns()
            found = refusal(error)
            if found is None and self._blame_timeouts:
                found = timed_out(error)
            if found is None:
                raise
            return found
        self._accept(upserted)
        return None

    def _check_columns(self) -> None:
        """Before a value is blamed; once, for the locks of this transaction keep tables as they are."""
        if not self._checked:
            check_columns(self._connection, self._target.compiled.spec)
            self._checked = True

    def _accept(self, upserted: _Upserted) -> None:
        self._share.mark(upserted.beaten, Outcome.SUPERSEDED)
        for row in upserted.foreign:
            self._share.refuse(row, FOREIGN_OWNER)
        self._landed.changes += upserted.landed.changes
        self._landed.lowered += upserted.landed.lowered
        self._landed.broken += upserted.landed.broken

    def _upsert(self, winners: list[Row]) -> _Upserted:
        """Rows and their children; a row that was not written leaves the children that are there."""
        upserted = self._write(winners)
        if self._target.children is not None:
            lost = set(map(id, upserted.beaten)) | set(map(id, upserted.foreign))
            written = (row for row in winners if id(row) not in lost)
            self._target.children.replace(self._connection, written, self._families)
        return upserted

    def _write(self, winners: list[Row]) -> _Upserted:
        """COPY and upsert. Rows that were not written are superseded or somebody else's."""
        target, connection = self._target, self._connection
        if self._may_go_straight(winners) and target.straight.land(
            connection, self._copy(winners), len(winners)
        ):
            if target.children is not None:
                self._stage(winners)  # it says whose children are replaced
            return _Upserted([], [], Landed())
        self._stage(winners)
        landed = self._look(winners)
        upserted = _Upserted([], [], landed)
        if self._events is None:
            written = self._counted(len(winners))
            if written < len(winners):
                self._sort_out(winners, upserted)
            return upserted
        before = self._events.before(connection)
        rows = connection.cursor(binary=True).execute(target.upsert.encode()).fetchall()
        if len(rows) < len(winners):
            self._sort_out(winners, upserted)
        done = {(one[0], one[1], one[2]) for one in rows}
        landed.changes += self._events.after(connection, before, done, winners)
        return upserted

    def _counted(self, staged: int) -> int:
        """The upsert of so many rows; how many were written."""
        target, connection = self._target, self._connection
        straight = target.straight
        if not straight.counts(staged):
            return connection.execute(target.upsert_counted.encode()).rowcount
        before = straight.updated(connection)
        written = connection.execute(target.upsert_counted.encode()).rowcount
        straight.upserted(staged, written, straight.updated(connection) - before)
        return written

    def _may_go_straight(self, winners: list[Row]) -> bool:
        """Events need to know what each row was before."""
        pays = self._target.straight.pays(len(winners))
        return pays and self._events is None and not self._careful

    def _stage(self, rows: Sequence[Row]) -> None:
        target = self._target
        if self._used:
            target.empty(self._connection)
        self._used = True
        with self._connection.cursor().copy(target.copy.encode()) as copy:
            for piece in self._copy(rows):
                copy.write(piece)

    def _copy(self, rows: Sequence[Row]) -> Iterable[bytes]:
        """The rows as a whole binary COPY, in pieces."""
        ready = self._prepared
        if ready is not None and ready.copy is not None and rows is ready.folded.winners:
            return ready.copy
        if self._forms is None:
            self._forms = self._share.forms()
        known, form = self._forms, self._target.forms.form
        return chunks(known.get(id(row)) or form(row) for row in rows)

    def _question(self, rows: Sequence[Row]) -> Iterable[bytes]:
        """What the prefilter asks about the rows, as a whole binary COPY in pieces."""
        ready = self._prepared
        if ready is not None and ready.question is not None and rows is ready.folded.winners:
            return ready.question
        known, form = self._share.questions(), self._target.prefilter.question.form
        return chunks(known.get(id(row)) or form(row) for row in rows)

    def _sort_out(self, winners: list[Row], upserted: _Upserted) -> None:
        """Which of the winners were not written, and why. Raises NotKept if for no reason of ours."""
        found = self._connection.execute(self._target.others.encode())
        others = {(one[0], one[1], one[2]): one[3] for one in found}
        for row in winners:
            place = coordinates(row)
            if place not in others:
                continue
            if others[place] is None:
                raise NotKept
            ours = others[place] == row[PARTITION_ID]
            (upserted.beaten if ours else upserted.foreign).append(row)

    def _look(self, winners: list[Row]) -> Landed:
        """What an operator should hear of: lower revisions that win, and broken declarations."""
        target, landed = self._target, Landed()
        if target.lowered is not None and any(row[BEGAN] is not None for row in winners):
            landed.lowered = len(self._connection.execute(target.lowered.encode()).fetchall())
        if target.broken is not None:
            landed.broken = len(self._connection.execute(target.broken.encode()).fetchall())
        return landed

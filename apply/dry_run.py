"""What a replay would change, told without changing it.

Folds the log into temporary tables by the very statements of the sink, then holds those against the
live table. Writes nothing else, so it needs to read and to make temporary tables, no more; what
only constraints refuse is not foreseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apply.barrier import barrier
from apply.batch import Batch, PageWork, Part
from apply.fold import fold, split_barred
from apply.ledger import content_of
from apply.mapping.types import CompiledMapping, Row
from apply.outcomes import PENDING, Outcome, RecordFault
from apply.queries import load
from apply.replay_children import compare_children
from apply.replay_diff import by_hash, compare, missing, needs_shadow, sides, written_since
from apply.replay_report import Diff, ReplayReport
from apply.rows import Target
from apply.same_record import fingerprint
from apply.scope import Scope
from apply.share import Share, coordinates, shares
from apply.sink import Connection
from apply.sql_text import child_sql, copy_sql, target_sql
from apply.target_tables import create_table_sql

_SQL = load("replay")
_SCRATCH = "pg_temp"
_PAGES = "replay_pages"
_Faulty = tuple[bool, str, int, bytes]
"""One sighting: whether it heals, the reason, the number of the partition id, which record it is."""


class KnownNumbers:
    """Numbers of partition ids as they are; one that is not known yet gets a negative one."""

    def __init__(self, connection: Connection) -> None:
        self._numbers: dict[str, int] = dict(connection.execute(_SQL["numbers"]).fetchall())

    def number(self, text: str, _partition: int) -> int:
        return self._numbers.setdefault(text, -len(self._numbers) - 1)


class DryRun:
    """One rehearsal on one connection. `compiled` may be of a version that nobody has registered."""

    def __init__(
        self,
        connection: Connection,
        compiled: CompiledMapping,
        report: ReplayReport,
        *,
        live_version: int,
    ) -> None:
        """`live_version`: whose sweeps count."""
        self._connection, self._report = connection, report
        self._live, self._live_version = compiled.spec, live_version
        self._compiled = replace(compiled, spec=replace(compiled.spec, schema=_SCRATCH))
        self._target = Target(self._compiled)
        by_hash(connection)
        for statement in create_table_sql(self._compiled.spec):
            connection.execute(statement.encode())
        self._target.prepare(connection)
        connection.execute(_SQL["stage_pages"])
        connection.execute(_SQL["stage_faults"])
        report.why_shadow = needs_shadow(connection, self._compiled.spec, self._live)
        report.how = "shadow" if report.why_shadow else "in_place"

    def take(self, batch: Batch) -> None:
        """Fold one batch into the temporary table; count what needs no table."""
        outcomes = self._report.outcomes
        with self._connection.transaction():
            for share in shares(batch):
                numbers = [page.partition_id_no for page, _ in share.works]
                found = barrier(self._connection, numbers, self._live_version)
                rows, barred = split_barred(share.rows(), found.swept)
                beaten, waiting = len(barred), rows
                while waiting:
                    folded = fold(waiting, self._compiled)
                    self._upsert(folded.winners, share)
                    beaten += len(folded.losers)
                    waiting = folded.contested
                outcomes[Outcome.SUPERSEDED - 1] += beaten
                outcomes[Outcome.APPLIED - 1] += len(rows) + len(barred) - beaten
            self._remember(batch)
        for part in batch.parts:
            self._judge(part)

    def _upsert(self, rows: list[Row], share: Share) -> None:
        statement = copy_sql(self._compiled, self._target.stage)
        with self._connection.cursor().copy(statement.encode()) as copy:
            copy.set_types(self._compiled.type_names)
            for row in rows:
                copy.write_row(row)
        self._connection.execute(self._target.upsert_counted.encode())
        if self._target.children is not None:
            others = self._connection.execute(self._target.others.encode())
            beaten = {(one[0], one[1], one[2]) for one in others}
            written = (row for row in rows if coordinates(row) not in beaten)
            self._target.children.replace(self._connection, written, share.families())
        self._target.empty(self._connection)

    def _remember(self, batch: Batch) -> None:
        """What became of the records of every page, so that a missing row can be explained."""
        statement = f"COPY {_PAGES} FROM STDIN (FORMAT BINARY)".encode()
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types(["int4", "int2", "int8", "int4", "bytea"])
            for page in batch.pages():
                for work in page.works:
                    first, outcomes = work.mapped.first_index, bytes(work.mapped.outcomes)
                    where = (page.partition_id_no, page.generation, page.original_offset)
                    copy.write_row((*where, first, outcomes))

    def _judge(self, part: Part) -> None:
        """Records that fail under this version, against those that are open exceptions now."""
        pages = {page.offset: page for page in part.pages}
        for work in (work for page in part.pages for work in page.works):
            for outcome in Outcome:
                self._report.outcomes[outcome - 1] += work.mapped.outcomes.count(outcome.value)
        asked = {
            "mapping": self._live.name, "version": self._live.version, "partition": part.partition,
            "generation": part.generation, "offsets": list(pages),
        }  # fmt: skip
        known = {}
        for offset, index, reason, number, print_ in self._connection.execute(
            _SQL["known_exceptions"], asked
        ):
            record = _place(offset, index) if print_ is None else bytes(print_)
            known[offset, index] = (reason, number, record)
        faulty: list[_Faulty] = [
            (True, *one)
            for (offset, index), one in known.items()
            if any(
                work.mapped.outcomes[index - work.mapped.first_index] == PENDING
                for work in pages[offset].works
            )
        ]
        faulty += [
            (False, fault.reason.value, page.partition_id_no, _record(page, fault))
            for page in part.pages
            for work in page.works
            for fault in work.mapped.faults
            if (page.offset, fault.index) not in known
        ]
        self._keep(faulty)

    def _keep(self, faulty: Sequence[_Faulty]) -> None:
        if not faulty:
            return
        statement = b"COPY replay_faults FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor().copy(statement) as copy:
            copy.set_types(["bool", "text", "int4", "bytea"])
            for row in faulty:
                copy.write_row(row)

    def compare(self, scope: Scope) -> Diff:
        """Hold the folded rows against the live table, as it stands at one instant."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return self._compare(scope)

    def _compare(self, scope: Scope) -> Diff:
        connection, diff = self._connection, Diff()
        connection.execute(_SQL["index_pages"])
        spec = self._compiled.spec
        born = [child_sql(spec, child) for child in spec.children.values()]
        for table in (_PAGES, target_sql(spec), *born):
            connection.execute(f"ANALYZE {table}".encode())
        of = sides(connection, self._compiled, self._live, guarded=not self._report.why_shadow)
        if isinstance(of, str):
            diff.incomparable = of
            row = connection.execute(
                f'SELECT count(*) FROM {target_sql(self._compiled.spec)} WHERE NOT "_deleted"'.encode()
            ).fetchone()
            diff.added = row[0] if row else 0
        else:
            compare(connection, of, diff)
            compare_children(connection, of, self._live, diff)
            only = scope.partition_id(self._live.source, self._live.stream)
            written_since(connection, of, diff, only)
            if scope.since is None and scope.start is None:
                missing(connection, of, diff, pages=_PAGES, only=only)
        for heals, reason, records in connection.execute(_SQL["faults"]):
            (diff.healed if heals else diff.newly_quarantined)[reason] = records
        return diff


def _record(page: PageWork, fault: RecordFault) -> bytes:
    """Which record this is, as its exception would say."""
    observation = page.observation
    content = content_of(observation, fault.index, fault.index - observation.first_index)
    return fingerprint(fault.key, content) or _place(page.offset, fault.index)


def _place(offset: int, index: int) -> bytes:
    """Of a record that nothing else tells apart: it is one by itself."""
    return f"{offset}/{index}".encode()

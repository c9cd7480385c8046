"""What a replay would change, told without changing it.

Folds the log into temporary tables by the very statements of the sink, then holds those against the
live table. Writes nothing else, so it needs to read and to make temporary tables, no more; what
only constraints refuse is not foreseen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from apply.barrier import barrier
from apply.batch import Batch, Part
from apply.fold import fold, split_barred
from apply.mapping.types import CompiledMapping, Mapped, Row
from apply.outcomes import PENDING, Outcome
from apply.queries import load
from apply.replay_children import compare_children
from apply.replay_diff import by_hash, compare, missing, needs_shadow, sides, written_since
from apply.replay_report import Diff, ReplayReport
from apply.rows import Target
from apply.scope import Scope
from apply.share import Share, coordinates, shares
from apply.sink import Connection
from apply.sql_text import child_sql, copy_sql, target_sql
from apply.target_tables import create_table_sql

_SQL = load("replay")
_SCRATCH = "pg_temp"
_PAGES = "replay_pages"


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
        self._failing: Counter[str] = Counter()
        self._healed: Counter[str] = Counter()
        by_hash(connection)
        for statement in create_table_sql(self._compiled.spec):
            connection.execute(statement.encode())
        self._target.prepare(connection)
        connection.execute(_SQL["stage_pages"])
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
        failing: dict[tuple[int, int], str] = {}
        becomes: dict[int, Mapped] = {}
        for page in part.pages:
            for work in page.works:
                becomes[page.offset] = work.mapped
                failing |= {
                    (page.offset, one.index): one.reason.value for one in work.mapped.faults
                }
                for outcome in Outcome:
                    count = work.mapped.outcomes.count(outcome.value)
                    self._report.outcomes[outcome - 1] += count
        asked = {
            "mapping": self._live.name, "version": self._live.version, "partition": part.partition,
            "generation": part.generation, "offsets": list(becomes),
        }  # fmt: skip
        known = set()
        for offset, index, reason in self._connection.execute(_SQL["known_exceptions"], asked):
            known.add((offset, index))
            mapped = becomes[offset]
            if mapped.outcomes[index - mapped.first_index] == PENDING:
                self._healed[reason] += 1
        self._failing.update(reason for at, reason in failing.items() if at not in known)

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
        diff.newly_quarantined = dict(self._failing.most_common())
        diff.healed = dict(self._healed.most_common())
        return diff

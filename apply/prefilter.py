"""Which rows the table would refuse anyway, asked with few columns and without locking a row.

A refused row is sent whole, locked and logged by the upsert before its guard says no. Where most of
what arrives is older than what is stored (lookbacks, replays, a log read again), asking first is
cheaper. A row found beaten stays beaten: only this partition's owner writes its rows, and what is
stored only gets newer. Whatever the question leaves open, the upsert decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from apply.copy_form import RowForms
from apply.guard import broken_sql, undecided_sql
from apply.mapping.types import INDEX, OFFSET, PARTITION_ID, CompiledMapping, Row
from apply.sink import Connection
from apply.sql_text import columns_sql, quote, target_sql

_LEAST_ROWS = 200
_PAYS_SHARE = 0.5
_NEWEST_WEIGHT = 0.5
_GUARDED = (
    "source_revision", "_source_epoch", "_generation", "_partition_id", "_offset", "_index",
    "_mapping_version", "_deleted", "_content_hash", "_began",
)  # fmt: skip


class Question:
    """The columns of a mapping's rows that are asked about, and their form in binary COPY.

    Belongs to one thread.
    """

    def __init__(self, compiled: CompiledMapping) -> None:
        width = len(compiled.key_columns)
        positions = [
            at
            for at, column in enumerate(compiled.columns)
            if at < width or column.name in _GUARDED
        ]
        self.columns = [compiled.columns[at] for at in positions]
        self._take = itemgetter(*positions)
        self._forms = RowForms(self)

    @property
    def type_names(self) -> list[str]:
        """The type that each value has in COPY."""
        return [column.copy_type for column in self.columns]

    def form(self, row: Row) -> bytearray:
        """One row's. Raises what its values' dumpers raise for a value that is not of its type."""
        return self._forms.form(self._take(row))

    def form_all(self, rows: Sequence[Row]) -> list[bytearray | None]:
        """Each row's; None where it cannot be formed."""
        return self._forms.form_all([self._take(row) for row in rows])


class Prefilter:
    """Of one mapping; remembers how much of the last batches was beaten."""

    def __init__(self, compiled: CompiledMapping) -> None:
        self._asked = f"asked_{compiled.version_id}"
        self.question = Question(compiled)
        names = columns_sql(self.question.columns)
        self._create = (
            f"CREATE TEMPORARY TABLE {quote(self._asked)} ON COMMIT DELETE ROWS AS"
            f" SELECT {names} FROM {target_sql(compiled.spec)} WITH NO DATA"
        )
        self._copy = f"COPY {quote(self._asked)} ({names}) FROM STDIN (FORMAT BINARY)"
        self._undecided = undecided_sql(compiled, self._asked)
        self._broken = broken_sql(compiled, self._asked)
        self._share = 0.0

    @property
    def expects(self) -> bool:
        """Whether most of what comes next will be beaten, going by the last batches. Safe between
        threads: whoever is told too late only does more work."""
        return self._share > _PAYS_SHARE

    def prepare(self, connection: Connection) -> None:
        """Make the temporary table."""
        connection.execute(self._create.encode())

    def pays(self, rows: int) -> bool:
        """Whether so many rows are worth a question before they are sent."""
        return rows >= _LEAST_ROWS and self.expects

    def learn(self, rows: int, beaten: int) -> None:
        """So many of the rows that came were beaten."""
        if rows >= _LEAST_ROWS:
            self._share += _NEWEST_WEIGHT * (beaten / rows - self._share)

    def split(
        self, connection: Connection, rows: Sequence[Row], question: Iterable[bytes]
    ) -> tuple[list[Row], list[Row], int]:
        """Rows that may win, rows that are beaten, and how many of these break an exact declaration.

        `question`: about these rows, as a whole binary COPY in pieces.
        """
        connection.execute(f"DELETE FROM {quote(self._asked)}".encode())
        with connection.cursor().copy(self._copy.encode()) as copy:
            for piece in question:
                copy.write(piece)
        cursor = connection.cursor(binary=True)
        kept: list[Row] = []
        lost: list[Row] = []
        undecided = set(cursor.execute(self._undecided.encode()).fetchall())
        for row in rows:
            place = (row[PARTITION_ID], row[OFFSET], row[INDEX])
            (kept if place in undecided else lost).append(row)
        broken = 0
        if self._broken is not None:  # those that are kept are counted where they are sent
            differing = cursor.execute(self._broken.encode()).fetchall()
            broken = sum(one not in undecided for one in differing)
        return kept, lost, broken

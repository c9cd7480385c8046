"""Writes child tables: the children of the rows that were just written, replaced as a set.

Runs in the transaction of the parents' upsert, behind it: whoever holds a parent's lock is alone with
its children, so nobody waits for anybody here. A row that was not written keeps the children it has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.faults import NotKept
from apply.mapping.types import (
    CHILD_SYSTEM_COLUMNS,
    LINEAGE,
    Children,
    CompiledChild,
    CompiledMapping,
    Row,
)
from apply.share import Family
from apply.sink import Connection
from apply.sql_text import child_sql, columns_sql, quote, target_sql

_LINEAGE = [column.name for column in CHILD_SYSTEM_COLUMNS]


class ChildForms:
    """Forms the rows of all child tables of one mapping for binary COPY. Belongs to one thread."""

    def __init__(self, compiled: CompiledMapping) -> None:
        self._forms = [RowForms(child) for child in compiled.children]

    def form(self, family: Sequence[Sequence[Row]]) -> tuple[bytes, ...]:
        """One record's children, a text of bytes for each child table. Raises as `RowForms.form`."""
        return tuple(
            b"".join(map(forms.form, rows)) for forms, rows in zip(self._forms, family, strict=True)
        )

    def form_all(self, families: Mapping[int, Children]) -> dict[int, tuple[bytes, ...]]:
        """Every record's children by its index; without those that cannot be formed, which the sink
        has to find out for itself."""
        found = {}
        for index, family in families.items():
            with contextlib.suppress(Exception):
                found[index] = self.form(family)
        return found


class ChildTables:
    """The statements for the child tables of one mapping, made once per connection."""

    def __init__(self, compiled: CompiledMapping, stage: str) -> None:
        """`stage`: the temporary table that holds the parents' rows."""
        self._forms = ChildForms(compiled)
        self._tables = [
            _Table(compiled, child, stage, f"{stage}_child_{number}")
            for number, child in enumerate(compiled.children)
        ]

    def prepare(self, connection: Connection) -> None:
        """Make the temporary tables. Raises psycopg.errors.UndefinedTable for a missing child table."""
        for table in self._tables:
            connection.execute(table.create_stage.encode())

    def replace(
        self, connection: Connection, written: Iterable[Row], known: Mapping[Row, Family]
    ) -> None:
        """Give the rows that were written, and are staged, the children of their records.

        `known`: by the lineage of a row; a row without an entry has none. Raises NotKept if a table
        does not keep them all.
        """
        families = [known[row[LINEAGE]] for row in written if row[LINEAGE] in known]
        forms = [family.forms or self._forms.form(family.rows) for family in families]
        for number, table in enumerate(self._tables):
            table.replace(connection, [form[number] for form in forms if form[number]])


class _Table:
    def __init__(
        self, compiled: CompiledMapping, child: CompiledChild, parents: str, stage: str
    ) -> None:
        table, columns, keys = (
            child_sql(compiled.spec, child.spec),
            columns_sql(child.columns),
            child.key_columns,
        )
        self.create_stage = (
            f"CREATE TEMPORARY TABLE {quote(stage)} ON COMMIT DELETE ROWS AS"
            f" SELECT {columns} FROM {table} WITH NO DATA"
        )
        self._copy = f"COPY {quote(stage)} ({columns}) FROM STDIN (FORMAT BINARY)"
        self._empty = f"DELETE FROM {quote(stage)}"
        others = [column.name for column in child.columns[child.keys :]]
        changes = ", ".join(f"{quote(name)} = EXCLUDED.{quote(name)}" for name in others)
        self._put = (
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {quote(stage)}"
            f" ORDER BY {columns_sql(keys)}"
            f" ON CONFLICT ({columns_sql(keys)}) DO UPDATE SET {changes}"
        )
        # A difference of sets, as in `absence`: the stage has no index to look its keys up by.
        gone = (
            f"SELECT {columns_sql(keys, 'c')} FROM {quote(parents)} n"
            f" JOIN {target_sql(compiled.spec)} t ON {_same_row(compiled)}"
            f" JOIN {table} c ON {parent_equal_sql(compiled, child, 'c', 't')}"
            f" EXCEPT SELECT {columns_sql(keys)} FROM {quote(stage)}"
        )
        same = " AND ".join(f"c.{quote(one.name)} = g.{quote(one.name)}" for one in keys)
        self._drop = f"DELETE FROM {table} c USING ({gone}) g WHERE {same}"

    def replace(self, connection: Connection, forms: Sequence[bytes]) -> None:
        """First what is no longer there goes, so that a unique column of it is free again."""
        connection.execute(self._empty.encode())  # of an earlier round in this transaction
        staged = connection.cursor()
        if forms:
            with staged.copy(self._copy.encode()) as copy:
                for piece in chunks(forms):
                    copy.write(piece)
        connection.execute(self._drop.encode())
        if forms and connection.execute(self._put.encode()).rowcount < staged.rowcount:
            raise NotKept


def _same_row(compiled: CompiledMapping) -> str:
    """That the table's row `t` is the staged one `n`: it was written, not beaten."""
    names = [*(column.name for column in compiled.key_columns), *_LINEAGE]
    return " AND ".join(f"t.{quote(name)} = n.{quote(name)}" for name in names)


def parent_equal_sql(compiled: CompiledMapping, child: CompiledChild, of: str, parent: str) -> str:
    """That a child's row belongs to a parent's, by their aliases."""
    return " AND ".join(
        f"{of}.{quote(own.name)} = {parent}.{quote(key.name)}"
        for own, key in zip(child.parent_columns, compiled.key_columns, strict=True)
    )


def bereave_sql(compiled: CompiledMapping, cleared: str) -> list[str]:
    """Delete the children of the rows `t` of which `cleared` holds; a statement for each child table.

    To run behind the statement that clears them: only then is seen what others, who held these rows
    until it got them, have written below them.
    """
    return [
        f"DELETE FROM {child_sql(compiled.spec, child.spec)} c USING {target_sql(compiled.spec)} t"
        f" WHERE {parent_equal_sql(compiled, child, 'c', 't')} AND {cleared}"
        for child in compiled.children
    ]

"""The generated SQL decides as the pure guard does, on a real server, whatever the rows are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from apply.absence import Absence, sweep
from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.guard import (
    before_sql,
    below_listing,
    broken_sql,
    lowered_sql,
    others_sql,
    undecided_sql,
    upsert_sql,
)
from apply.mapping.types import (
    CONTENT_HASH,
    DELETED,
    GENERATION,
    INDEX,
    OFFSET,
    PARTITION_ID,
    REVISION,
    SOURCE_EPOCH,
    CompiledMapping,
    Row,
)
from apply.sink import connect
from apply.sql_text import columns_sql, copy_sql, quote, target_sql
from apply.straight import Straight
from apply.target_tables import migrate_table
from ops.migrate import migrate
from schemas.definitions.mapping import RevisionKind
from tests.conftest import Lane
from tests.property.apply.twin import Table, Written, mapping, row

STAGE = "stage"
BATCHES = 400
_EPOCH_2000 = datetime(2000, 1, 1, tzinfo=UTC)
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def connection(lane: Lane) -> Iterator[Connection]:
    """A database with the schema of Gapless."""
    migrate(lane.postgres)
    with psycopg.connect(lane.postgres) as opened:
        yield opened


class Sink:
    """A mapping's real table, driven by the statements under test alone."""

    def __init__(self, connection: Connection, compiled: CompiledMapping) -> None:
        self.connection, self.compiled = connection, compiled
        migrate_table(connection, compiled.spec)
        connection.execute(
            f"CREATE TEMPORARY TABLE {quote(STAGE)} AS SELECT {columns_sql(compiled.columns)}"
            f" FROM {target_sql(compiled.spec)} WITH NO DATA".encode()
        )

    def stage(self, rows: Sequence[Row]) -> None:
        """Fill the temporary table as the store does."""
        self.connection.execute(f"TRUNCATE {quote(STAGE)}".encode())
        with self.connection.cursor().copy(copy_sql(self.compiled, STAGE).encode()) as copy:
            copy.set_types(self.compiled.type_names)
            for one in rows:
                copy.write_row(one)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows that a statement returns."""
        return self.connection.execute(statement.encode()).fetchall()

    def rows(self) -> dict[str, Row]:
        """The table, in the form of mapped rows."""
        statement = (
            f"SELECT {columns_sql(self.compiled.columns)} FROM {target_sql(self.compiled.spec)}"
        )
        return {one[0]: tuple(map(_as_mapped, one)) for one in self.ask(statement)}


def _as_mapped(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH_2000) // timedelta(microseconds=1)
    return value


def _batch(dice: Random, kind: RevisionKind) -> list[Row]:
    """At most one row per key, as a fold leaves them."""
    return [_row(dice, kind, key) for key in dice.sample("abc", dice.randint(1, 3))]


def _row(dice: Random, kind: RevisionKind, key: str) -> Row:
    offset, at = dice.randint(0, 9), "abc".index(key)  # no two records of a page share an index
    return row(
        kind, key, dice.randint(1, 2), revision=dice.randint(1, 3), epoch=dice.randint(0, 1),
        generation=dice.randint(0, 1), owner=dice.choice([1, 1, 1, 1, 2]), offset=offset,
        index=dice.choice([at, at + 3]), version=dice.randint(1, 2), deleted=dice.random() < 0.3,
        content=dice.randint(1, 2),
        began=offset - dice.randint(1, 5) if dice.random() < 0.4 else None,
    )  # fmt: skip


def _at(one: Row) -> tuple[int, int, int]:
    return (one[PARTITION_ID], one[OFFSET], one[INDEX])


def _check_questions(sink: Sink, twin: Table, batch: list[Row], kind: RevisionKind) -> None:
    """What is asked before the upsert: the old rows, lowered and broken revisions."""
    met = {one[0]: twin.rows[one[0]] for one in batch if one[0] in twin.rows}
    before = {one[:3]: one[3:] for one in sink.ask(before_sql(sink.compiled, STAGE))}
    assert before == {
        _at(one): (met[one[0]][DELETED], met[one[0]][1]) for one in batch if one[0] in met
    }
    pairs = [
        (new, met[new[0]])
        for new in batch
        if new[0] in met and met[new[0]][PARTITION_ID] == new[PARTITION_ID]
    ]
    alike = [pair for pair in pairs if pair[0][SOURCE_EPOCH] == pair[1][SOURCE_EPOCH]]
    lowered = lowered_sql(sink.compiled, STAGE)
    if lowered is None:
        assert kind is RevisionKind.NONE
    else:
        dated = [(new, old) for new, old in alike if old[REVISION] is not None]
        below = [_at(n) for n, o in dated if n[REVISION] < o[REVISION] and below_listing(o, n)]
        assert sorted(sink.ask(lowered)) == sorted(below)
    broken = broken_sql(sink.compiled, STAGE)
    if broken is None:
        assert kind is not RevisionKind.EXACT
        return
    differ = [
        _at(new)
        for new, old in alike
        if new[REVISION] == old[REVISION]
        and (new[CONTENT_HASH], new[DELETED]) != (old[CONTENT_HASH], old[DELETED])
    ]
    assert sorted(sink.ask(broken)) == sorted(differ)


def _stands(one: Row, twin: Table) -> bool:
    """Whether the table's row came from the same record: it is neither beaten nor written again."""
    held = twin.rows.get(one[0])
    return held is not None and held[GENERATION:DELETED] == one[GENERATION:DELETED]


def _check_upsert(sink: Sink, written: Written, superseded: set[tuple[int, int, int]]) -> None:
    """What the upsert and the question about other rows say of the batch."""
    told = sink.ask(upsert_sql(sink.compiled, STAGE))
    expected = {(*_at(one), True) for one in written.inserted}
    expected |= {(*_at(one), False) for one in written.updated}
    assert set(told) == expected
    others = sink.ask(others_sql(sink.compiled, STAGE))
    foreign = {tuple(at) for *at, holder in others if holder != at[0]}
    assert foreign == {_at(one) for one in written.foreign}
    assert {tuple(at) for *at, holder in others if holder == at[0]} == superseded


@pytest.mark.parametrize("kind", list(RevisionKind))
def test_sql_and_pure_guard_leave_the_same_rows(connection: Connection, kind: RevisionKind) -> None:
    compiled = mapping(kind)
    sink, twin = Sink(connection, compiled), Table(compiled)
    dice = Random(20_240_301)
    reached = Written()
    swept = repeated = 0
    for _ in range(BATCHES):
        batch = _batch(dice, kind)
        if twin.rows and dice.random() < 0.2:  # one that was read before is read again
            again = twin.rows[dice.choice(sorted(twin.rows))]
            batch = [*(one for one in batch if one[0] != again[0]), again]
        sink.stage(batch)
        _check_questions(sink, twin, batch, kind)
        standing = {_at(one) for one in batch if _stands(one, twin)}
        undecided = set(sink.ask(undecided_sql(compiled, STAGE)))
        written = twin.upsert(batch)
        beaten = {_at(one) for one in written.superseded} - standing
        assert {_at(one) for one in batch} - undecided == beaten
        _check_upsert(sink, written, beaten)
        repeated += len(standing)
        assert sink.rows() == twin.rows
        reached.updated += written.updated
        reached.superseded += written.superseded
        reached.foreign += written.foreign
        if dice.random() < 0.2:
            swept += _sweep_both(dice, sink, twin)
        if dice.random() < 0.4:  # else a few rows near the top of the order decide all the rest
            gone = dice.choice("abc")
            twin.rows.pop(gone, None)
            statement = f"DELETE FROM {target_sql(compiled.spec)} WHERE k = %s"
            connection.execute(statement.encode(), (gone,))
    assert (
        min(len(reached.updated), len(reached.superseded), len(reached.foreign), swept, repeated)
        > 20
    )


def _sweep_both(dice: Random, sink: Sink, twin: Table) -> int:
    """The same sweep on both; the tables must stay alike. Returns how many rows it ended."""
    connection = sink.connection
    owner, generation, barrier = dice.randint(1, 2), dice.randint(0, 1), dice.randint(1, 12)
    epoch, shown = dice.randint(0, 1), set(dice.sample("abc", dice.randint(0, 2)))
    connection.execute("DELETE FROM gapless.present_things")
    for key in shown:
        connection.execute(
            "INSERT INTO gapless.present_things VALUES (%s, 'now', %s)", (owner, key)
        )
    connection.execute("INSERT INTO gapless.present_things VALUES (%s, 'old', 'a')", (owner,))
    connection.execute("INSERT INTO gapless.present_things VALUES (%s, 'now', 'b')", (owner + 1,))
    at = _EPOCH_2000 + timedelta(microseconds=9)
    where = Absence(owner, generation, barrier, ["now"], epoch, at)
    ended, _ = sweep(connection, sink.compiled, where)
    assert ended == len(twin.sweep(owner, generation, barrier, shown, epoch))
    assert sink.rows() == twin.rows
    return ended


_TENANT_ROWS = 5_000


def test_rows_are_looked_up_by_their_key_alone_in_a_table_without_statistics(lane: Lane) -> None:
    """What the planner guesses about a new table must not send it through all rows of a tenant."""
    migrate(lane.postgres)
    compiled = mapping(RevisionKind.EXACT)
    with connect(lane.postgres, "live") as connection, connection.transaction():
        sink = Sink(connection, compiled)
        many = [
            row(RevisionKind.EXACT, f"{owner}/{at}", 1, owner=owner, offset=1, index=at)
            for owner in (1, 2)
            for at in range(_TENANT_ROWS)
        ]
        sink.stage(many)
        sink.ask(upsert_sql(compiled, STAGE))
        sink.stage(many[:_TENANT_ROWS])
        questions = [undecided_sql(compiled, STAGE), lowered_sql(compiled, STAGE)]
        questions += [broken_sql(compiled, STAGE), others_sql(compiled, STAGE)]
        questions += [before_sql(compiled, STAGE)]
        for question in questions:
            assert question is not None
            plan = "\n".join(one for (one,) in sink.ask(f"EXPLAIN {question}"))
            table = compiled.spec.table
            assert f"Index Scan using {table}_pkey on {table} t" in plan, plan


def test_a_table_that_takes_no_copy_is_not_asked_again(lane: Lane) -> None:
    """Row security refuses COPY to whoever its policies are for."""
    migrate(lane.postgres)
    compiled, role = mapping(RevisionKind.COARSE), f"writer_{uuid4().hex}"
    table = target_sql(compiled.spec)
    one = row(RevisionKind.COARSE, "a", 1, offset=1)
    piece = b"".join(chunks([RowForms(compiled).form(one)]))
    with psycopg.connect(lane.postgres, autocommit=True) as connection:
        migrate_table(connection, compiled.spec)
        connection.execute(
            f"CREATE ROLE {role}; GRANT ALL ON {table} TO {role};"
            f" ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
            f" CREATE POLICY everything ON {table} USING (true); SET ROLE {role}".encode()
        )
        try:
            connection.execute(f"CREATE TEMPORARY TABLE {quote(STAGE)} AS TABLE {table}".encode())
            straight = Straight(compiled, STAGE)
            with connection.transaction():
                for _ in range(100):
                    straight.upserted(1_000, 1_000, 0)
                assert straight.pays(1_000)
                assert not straight.land(connection, [piece], 1)
                assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall() == [
                    (0,)
                ]
                for _ in range(100):
                    straight.upserted(1_000, 1_000, 0)
                assert not straight.pays(1_000)
        finally:
            connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}".encode())

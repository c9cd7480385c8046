"""Rows that go straight into the table: nothing ends otherwise than by the upsert."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import pytest

from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.mapping.types import CompiledMapping
from apply.metrics import PAUSED
from apply.sink import connect
from apply.sql_text import columns_sql, quote, target_sql
from apply.straight import Straight
from apply.target_tables import migrate_table
from ops.migrate import migrate
from schemas.definitions.mapping import RevisionKind
from schemas.records import MissingRecord, Observation
from tests.conftest import Lane
from tests.integration.apply.scene import Scene, account, begin, page
from tests.integration.apply.test_children_applied import CARDS, cards, holder
from tests.property.apply.twin import mapping, row
from tests.waiting import wait_until

_CHILDREN = {**CARDS, "\nevents: {": "\n# events: {"}
"""And no events, which have to know what a row was before."""


@pytest.fixture
def landed(straight_tries: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What became of each try. All batches are tried."""
    monkeypatch.setattr(Straight, "pays", lambda *_: True)
    return straight_tries


def _notes(numbers: Iterable[int], *, version: int = 1, number: int) -> Observation:
    notes = [{"id": f"n-{at}", "version": version, "account": "7"} for at in numbers]
    return page(notes, owner="crm/notes/north", number=number)


def _accounts(*records: Any, number: int) -> Observation:
    new = [account(f"{number}-{at}") for at in range(3)]
    return page([*records, *new], number=number)


def test_a_column_that_was_altered_takes_values_and_no_bytes(
    make_scene: Callable[..., Scene], landed: list[bool]
) -> None:
    """A bigint in binary is read as a numeric without an error, and as a wrong one."""
    scene = make_scene(partitions=1)
    with scene.applying():
        scene.put(_notes(range(3), number=1))
        scene.settle()
        scene.db.execute("ALTER TABLE notes ALTER COLUMN source_revision TYPE numeric")
        scene.put(_notes(range(3, 6), number=2))
        scene.settle()
    assert landed == [True, False]
    found = scene.rows("SELECT source_revision::int, count(*) FROM notes GROUP BY 1")
    assert found == [(1, 6)]


@pytest.mark.parametrize(
    "instead",
    [
        "SELECT",
        "CREATE INDEX found ON notes (tenant_id, id)",
        "ALTER TABLE notes ADD CONSTRAINT late UNIQUE (tenant_id, id) DEFERRABLE",
        "ALTER TABLE notes ADD UNIQUE (tenant_id, id, _offset)",
        "CREATE UNIQUE INDEX found ON notes (tenant_id, id) WHERE account = '7'",
    ],
)
def test_nothing_goes_into_a_table_that_has_lost_its_key(
    make_scene: Callable[..., Scene], landed: list[bool], instead: str
) -> None:
    scene = make_scene(partitions=1)
    with scene.applying():
        scene.put(_notes(range(3), number=1))
        scene.settle()
        scene.db.execute(f"ALTER TABLE notes DROP CONSTRAINT notes_pkey; {instead}".encode())
        scene.put(_notes(range(6), version=2, number=2))
        wait_until(_paused, 60, "apply waits for the key")
        scene.db.execute(
            "ALTER TABLE notes DROP CONSTRAINT IF EXISTS late, ADD PRIMARY KEY (tenant_id, id)"
        )
        scene.settle()
    assert landed[:2] == [True, False]
    assert scene.rows("SELECT source_revision, count(*) FROM notes GROUP BY 1") == [(2, 6)]
    assert scene.balance() == {"applied": 9}


def _paused() -> bool:
    return any(sample.value for metric in PAUSED.collect() for sample in metric.samples)


def test_children_that_nobody_holds_go_as_by_the_upsert(
    make_scene: Callable[..., Scene], landed: list[bool]
) -> None:
    """Somebody has deleted a row by hand, and left its children."""
    scene = make_scene(partitions=1, changed=_CHILDREN)
    with scene.applying():
        scene.put(_accounts(holder(1, a=1, b=2), holder(2, c=3), number=1))
        scene.settle()
        scene.db.execute("DELETE FROM accounts WHERE id IN ('a-1', 'a-2')")
        scene.put(_accounts(holder(1, 2, b=5), holder(2, 2), number=2))
        scene.settle()
    assert landed == [True, True]
    assert cards(scene) == [("a-1", "b", 5)]


def test_a_row_that_an_open_listing_bars_keeps_its_children(
    make_scene: Callable[..., Scene], landed: list[bool]
) -> None:
    """A page that an erasure rewrote comes in one batch with new rows."""
    scene = make_scene(partitions=1, kind="exact", changed=_CHILDREN)
    first, one = _accounts(holder(1, a=1, b=2), number=1), holder(1, a=1, b=2)
    listing = page([one], plan="snapshot", scope="s1", pass_="s1-p", number=1)
    with scene.applying():
        [offset] = scene.put(first)
        scene.settle()
        scene.put(begin("s1"), listing)
        scene.settle()
    landed.clear()
    holes = [MissingRecord(at, "erased", 0, None) for at in (1, 2, 3)]
    rewritten = page([one, b"", b"", b""], number=1, original_offset=offset, missing=holes)
    scene.put(rewritten, _accounts(holder(5, x=1), number=3))
    with scene.applying():
        scene.settle()
    assert landed == [True]
    assert cards(scene) == [("a-1", "a", 1), ("a-1", "b", 2), ("a-5", "x", 1)]


def _striving(lane: Lane, compiled: CompiledMapping) -> tuple[Any, Straight]:
    migrate(lane.postgres)
    connection = connect(lane.postgres, "test")
    migrate_table(connection, compiled.spec)
    connection.execute(
        f"CREATE TEMPORARY TABLE {quote('stage')} AS SELECT {columns_sql(compiled.columns)}"
        f" FROM {target_sql(compiled.spec)} WITH NO DATA".encode()
    )
    return connection, Straight(compiled, "stage")


def test_batches_that_update_alike_are_no_batches_of_new_rows(lane: Lane) -> None:
    """What an earlier transaction updated may have been reported since, or not."""
    compiled = mapping(RevisionKind.COARSE)
    connection, straight = _striving(lane, compiled)
    table = target_sql(compiled.spec)
    form = RowForms(compiled).form
    rows = [
        row(RevisionKind.COARSE, f"{at:03}", 1, revision=1, offset=1, index=at) for at in range(9)
    ]
    with connection:
        assert straight.land(connection, list(chunks(map(form, rows))), len(rows))
        for reported in (True, False, True, True):
            with connection.transaction():
                before = straight.updated(connection)
                connection.execute(f"UPDATE {table} SET v = 2".encode())
                updated = straight.updated(connection) - before
                straight.upserted(1_000, 1_000, updated)
            assert updated == 9
            assert not straight.pays(1_000)
            if reported:
                connection.execute("SELECT pg_stat_force_next_flush()")
                connection.execute("SELECT")
        counted = [straight.counts(1_000) for _ in range(9)]
        assert counted == [False] * 7 + [True, True], "after updates it rests"
        assert not straight.counts(10), "so few are not counted"
        straight.upserted(1_000, 1_000, 0)
        assert straight.pays(1_000)


def test_a_partitioned_table_with_columns_of_others_takes_rows_straight(lane: Lane) -> None:
    """A trigger, an identity and a generated column, and a second unique index, all made by hand."""
    compiled = mapping(RevisionKind.COARSE)
    connection, straight = _striving(lane, compiled)
    table = target_sql(compiled.spec)
    form = RowForms(compiled).form

    def put(*keys: str) -> bool:
        rows = [
            row(RevisionKind.COARSE, key, at, revision=1, offset=1, index=at)
            for at, key in enumerate(keys)
        ]
        return straight.land(connection, list(chunks(map(form, rows))), len(rows))

    with connection, connection.transaction():
        connection.execute(
            f"ALTER TABLE {table} RENAME TO plain;"
            f" CREATE TABLE {table} (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (k))"
            f" PARTITION BY RANGE (k);"
            f" CREATE TABLE low PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO ('m');"
            f" CREATE TABLE high PARTITION OF {table} FOR VALUES FROM ('m') TO ('x');"
            f" ALTER TABLE {table} ADD double bigint GENERATED ALWAYS AS (v * 2) STORED;"
            f" CREATE UNIQUE INDEX ON low (v);"
            " CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN NEW.v := NEW.v + 10; RETURN NEW; END';"
            f" CREATE TRIGGER loud BEFORE INSERT ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION loud()".encode()
        )
        assert put("a", "n")
        assert not put("n", "o"), "a key that is taken"
        assert not put("b", "p"), "another index refuses, so the upsert has to say it"
        with pytest.raises(psycopg.errors.CheckViolation), connection.transaction():
            put("z")
        found = connection.execute(f"SELECT k, v, double FROM {table} ORDER BY k".encode())
        assert found.fetchall() == [("a", 10, 20), ("n", 11, 22)]

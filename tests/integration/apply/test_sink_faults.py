"""Every trouble that Postgres can be in: a pause with its reason, and afterwards nothing is missing."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apply import service
from apply.link import Link, awaits
from apply.metrics import PAUSED
from apply.sink import connect
from ops.stack.account import SHARED
from tests.integration.apply.scene import Scene, account, page
from tests.proxy import Pooler, Proxy
from tests.waiting import wait_until

FILLER = "x" * 700


def _paused() -> str | None:
    found = [s.labels["reason"] for m in PAUSED.collect() for s in m.samples if s.value]
    return found[0] if found else None


def _nothing_lost(scene: Scene, records: int) -> None:
    assert scene.balance() == {"applied": records}
    assert scene.value("SELECT count(*) FROM gapless.exception") == 0
    assert scene.value("SELECT count(*) FROM accounts") == records


@pytest.fixture
def small_disk(postgres: str) -> Iterator[str]:
    """A tablespace on a file system of 2 MB, which only root can make."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = SHARED / f"small-{os.getpid()}"
    place.mkdir(parents=True)
    name = f"small_{os.getpid()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
        assert row is not None
        if not Path(row[0]).exists():
            pytest.skip("the server's files are on another machine or in a container")
        owner = os.stat(row[0])
        options = f"size=2m,uid={owner.st_uid},gid={owner.st_gid},mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        try:
            connection.execute(f"CREATE TABLESPACE {name} LOCATION '{place}'".encode())
            yield name
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)
            place.rmdir()


def test_a_full_disk_is_waited_for(scene: Scene, small_disk: str) -> None:
    with scene.applying():
        scene.db.execute(f"ALTER TABLE accounts SET TABLESPACE {small_disk}".encode())
        scene.db.execute(f"CREATE TABLE ballast (t text) TABLESPACE {small_disk}".encode())
        with pytest.raises(psycopg.errors.DiskFull):
            scene.db.execute(
                "INSERT INTO ballast SELECT repeat(md5(n::text), 20) FROM generate_series(1, 5000) n"
            )
        scene.put(*(page([account(f"{n}-{i}", email=FILLER) for i in range(100)], number=n)
                    for n in range(1, 5)))  # fmt: skip
        wait_until(lambda: _paused() == "disk_full", 60, "apply says that the disk is full")
        assert scene.value("SELECT count(*) FROM gapless.exception") == 0
        # Somebody makes room; what is waited for is room, not a restart.
        scene.db.execute("DROP TABLE ballast")
        scene.db.execute("ALTER TABLE accounts SET TABLESPACE pg_default")
        scene.settle()
        wait_until(lambda: _paused() is None, 60, "apply goes on")
    _nothing_lost(scene, 400)
    scene.db.execute(f"DROP TABLESPACE {small_disk}".encode())


def test_a_table_that_is_away_pauses_and_quarantines_nothing(scene: Scene) -> None:
    with scene.applying():
        scene.put(page([account(1)]))
        scene.settle()
        scene.db.execute("ALTER TABLE accounts RENAME TO elsewhere")
        scene.put(page([account(2)], number=2))
        wait_until(lambda: _paused() == "missing_table", 60, "apply says what is missing")
        scene.db.execute("ALTER TABLE elsewhere RENAME TO accounts")
        scene.settle()
    _nothing_lost(scene, 2)


@pytest.mark.parametrize(
    ("column", "less", "more", "record"),
    [
        ("balance", "numeric(4,1)", "numeric(22,4)", {"balance": "12345.67"}),
        ("email", "varchar(20)", "text", {"email": FILLER}),
        ("source_revision", "integer", "bigint", {"version": 2**40}),
        ("updated_at", "date", "timestamptz", {}),
    ],
)
def test_a_column_that_takes_less_pauses_and_quarantines_nothing(
    scene: Scene, column: str, less: str, more: str, record: dict[str, Any]
) -> None:
    """Somebody has altered it under a running worker, which then finds it again when it connects."""
    alter = f"ALTER TABLE accounts ALTER COLUMN {column} TYPE"
    with scene.applying():
        scene.put(page([account(1)]))
        scene.settle()
        scene.db.execute(f"{alter} {less}".encode())
        if not record:  # a cast that rounds in silence: only a new connection looks
            scene.db.execute(
                "SELECT pg_terminate_backend(backend_pid) FROM gapless.position"
                " WHERE backend_pid IS NOT NULL"
            )
            wait_until(lambda: _paused() == "changed_column", 60, "apply says what was changed")
        scene.put(page([account(2, **record), account(3)], number=2))
        wait_until(lambda: _paused() == "changed_column", 60, "apply says what was changed")
        assert scene.value("SELECT count(*) FROM gapless.exception") == 0
        scene.db.execute(f"{alter} {more}".encode())
        scene.settle()
        wait_until(lambda: _paused() is None, 60, "apply goes on")
    _nothing_lost(scene, 3)


def test_a_deadlock_with_somebody_else_is_retried(scene: Scene) -> None:
    """Another transaction takes two rows in the other order; whoever is chosen, nothing is lost."""
    database = scene.value("SELECT current_database()")
    scene.db.execute(f"ALTER DATABASE {database} SET deadlock_timeout = '200ms'".encode())
    scene.put(page([account(1), account(2)]))
    with scene.applying():
        scene.settle()
        with psycopg.connect(scene.lane.postgres) as other:
            other.execute("UPDATE accounts SET balance = 0 WHERE id = 'a-2'")
            scene.put(page([account(1, 2), account(2, 2)], number=2))
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            scene.until(waits, 1)
            try:
                other.execute("UPDATE accounts SET balance = 0 WHERE id = 'a-1'")
                other.commit()
            except psycopg.errors.DeadlockDetected:
                other.rollback()
        scene.settle()
    assert scene.balance() == {"applied": 4}
    assert scene.rows("SELECT source_revision FROM accounts ORDER BY id") == [(2,), (2,)]


@pytest.mark.parametrize(
    ("state", "reason"),
    [("40001", "serialization"), ("53200", "out_of_memory"), ("57P03", "starting_up"),
     ("XX000", "sqlstate_XX000"), ("25006", "read_only")],
)  # fmt: skip
def test_whatever_else_the_server_says_is_its_own_trouble(
    scene: Scene, state: str, reason: str
) -> None:
    """The error is raised by a trigger, so that it comes where rows are written."""
    scene.db.execute(
        "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = '{state}'; END $$;"
        " CREATE TRIGGER trouble BEFORE INSERT ON accounts EXECUTE FUNCTION trouble()".encode()
    )
    with scene.applying():
        scene.put(page([account(1)]))
        wait_until(lambda: _paused() == reason, 60, f"apply says {reason}")
        scene.db.execute("DROP TRIGGER trouble ON accounts")
        scene.settle()
    _nothing_lost(scene, 1)


@pytest.fixture
def behind_proxy(make_scene: Callable[..., Scene]) -> Iterator[tuple[Scene, Proxy]]:
    """A scene whose service goes through a proxy; the test itself goes past it."""
    scene = make_scene()
    with Proxy(scene.lane.postgres) as proxy:
        scene.settings = scene.settings.model_copy(update={"postgres": proxy.address})
        yield scene, proxy


def test_a_link_that_keeps_open_and_moves_nothing_is_given_up(
    behind_proxy: tuple[Scene, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SILENT_S", 2.0)
    monkeypatch.setattr(service, "_ASK_S", 0.5)
    scene, proxy = behind_proxy
    silenced = threading.Event()

    def hit(name: str) -> None:
        if name == "apply.after_first_upsert" and not silenced.is_set():
            assert proxy.silence()
            silenced.set()

    scene.put(page([account(1)]))
    with scene.applying(hit=hit):
        assert silenced.wait(60)
        wait_until(lambda: _paused() == "no_answer", 60, "apply says that nothing answers")
        scene.settle()
        wait_until(lambda: _paused() is None, 60, "apply goes on")
    _nothing_lost(scene, 1)


def test_a_statement_that_takes_long_is_left_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SILENT_S", 0.5)
    monkeypatch.setattr(service, "_ASK_S", 0.1)
    scene.db.execute(
        b"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        b" $$ BEGIN PERFORM pg_sleep(4); RETURN NEW; END $$;"
        b" CREATE TRIGGER slow BEFORE INSERT ON accounts FOR EACH STATEMENT EXECUTE FUNCTION slow()"
    )
    pids = "SELECT backend_pid FROM gapless.position WHERE backend_pid IS NOT NULL LIMIT 1"
    with scene.applying():
        wait_until(lambda: scene.value(pids) is not None, 60, "apply is connected")
        pid = scene.value(pids)
        scene.put(page([account(1)]))
        wait_until(lambda: _paused() == "no_answer", 60, "apply says that nothing answers")
        scene.settle()
        assert scene.value(pids) == pid
    _nothing_lost(scene, 1)


@pytest.mark.parametrize("stands_before", [Proxy, Pooler])
def test_a_statement_that_takes_long_is_no_dead_link(
    postgres: str, stands_before: type[Proxy]
) -> None:
    """Nor is a connection that its own side leaves waiting, nor one whose backend cannot be asked."""
    with stands_before(postgres) as proxy, connect(proxy.address, "test") as connection:
        link, found = Link(proxy.address), list[object]()

        def sleep() -> None:
            found.append(connection.execute("SELECT 7 FROM pg_sleep(1)").fetchone())

        assert not awaits(connection)
        waiting = threading.Thread(target=sleep)
        waiting.start()
        wait_until(lambda: awaits(connection), 10, "the statement is under way")
        assert not any(link.cut_if_dead(connection) for _ in range(4))
        waiting.join()
        assert found == [(7,)]
        assert not awaits(connection)

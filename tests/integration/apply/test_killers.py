"""Records that end the process: workers find them across their deaths, and nobody has to help."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from apply.requests import request
from tests import forked
from tests.integration.apply.killing import AGAIN, LAND, MAP, STOP, VALUE
from tests.integration.apply.scene import Scene, account, complete, page
from tests.waiting import wait_until
from tests.workers import REPOSITORY


class Supervisor:
    """Keeps workers alive, as a container platform would; counts how often they ended."""

    def __init__(self, scene: Scene, folder: Path, names: tuple[str, ...]) -> None:
        self._folder = folder
        self.ends = 0
        self.environment = {
            **os.environ,
            **scene.lane.environment,
            "GAPLESS_DEFINITIONS": str(scene.folder),
            "GAPLESS_PARTITIONS": str(scene.settings.partitions),
            "GAPLESS_SESSION_TIMEOUT_MS": "1500",
        }
        self._workers = {name: self._start(name) for name in names}

    def _start(self, name: str) -> forked.Forked:
        own = {"GAPLESS_WORKER": name, "GAPLESS_GROUP_INSTANCE": name}
        return forked.Forked(
            "tests.integration.apply.killing:main", ["apply"], environment={**self.environment, **own},
            cwd=REPOSITORY, stdout=self._folder / f"{name}.log",
        )  # fmt: skip

    def look(self) -> None:
        """Start again whoever has ended."""
        for name, worker in list(self._workers.items()):
            if worker.poll() is not None:
                self.ends += 1
                self._workers[name] = self._start(name)

    def is_stopped(self) -> bool:
        """Whether one of them was stopped by a signal."""
        found = (Path(f"/proc/{one.pid}/stat") for one in self._workers.values())
        return any(one.read_text().rpartition(")")[2].split()[0] == "T" for one in found)

    def wake(self) -> None:
        """Continue whoever is stopped."""
        for worker in self._workers.values():
            worker.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.terminate()
        codes = [worker.wait(30) for worker in self._workers.values()]
        assert codes == [0] * len(codes)

    def log(self) -> str:
        files = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {one.name}\n{one.read_text()[-6000:]}" for one in files)


@contextmanager
def supervised(scene: Scene, folder: Path, *names: str) -> Iterator[Supervisor]:
    found = Supervisor(scene, folder, names)
    try:
        yield found
        found.stop()
    except BaseException:
        print(found.log())
        raise
    finally:
        for worker in found._workers.values():
            worker.kill()


def _tried_again_once(scene: Scene, crew: Supervisor) -> None:
    """An operator has them tried again: each may end one process more, and not one after another.

    The value that nobody can read has no mapping that would try it.
    """
    now, before = datetime.now(UTC), crew.ends
    assert (
        len(request(scene.db, "retry", by="op", note="why", now=now, reason="killed_worker")) == 3
    )
    tried = "SELECT count(*) FROM gapless.exception WHERE state = 'quarantined' AND attempts > 0"

    def done() -> bool:
        crew.look()
        return bool(scene.value(tried) == 3) and crew.ends == before + 2

    wait_until(done, 60, "each was tried once more")


def _ends_when_tried_again(scene: Scene, crew: Supervisor) -> None:
    """A record that did no harm before, and ends every process that tries it again: with others, then
    alone, then set aside. What was due with it is tried as if nothing had been."""
    reasons = (
        "SELECT reason, count(*), min(attempts) > 0 FROM gapless.exception"
        " WHERE key ->> 'id' = ANY(%s) GROUP BY 1 ORDER BY 1"
    )
    odd = [account(one, lifecycle="odd") for one in (AGAIN, 60, 61, 62)]
    names = [one["id"] for one in odd]
    scene.put(page(odd, number=6))
    scene.settle()
    before, now = crew.ends, datetime.now(UTC)
    assert (
        len(request(scene.db, "retry", by="op", note="why", now=now, reason="unknown_value")) == 4
    )
    tried = [("killed_worker", 1, True), ("unknown_value", 3, True)]

    def done() -> bool:
        crew.look()
        return scene.rows(reasons, names) == tried and crew.ends == before + 3

    wait_until(done, 60, "each was tried once more, and one of them is out of the way")


def test_two_workers_find_every_killer_and_apply_the_rest(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    scene = make_scene(partitions=2)
    scene.other_topics()
    many = [account(n) for n in range(10, 50)]
    many[7] = account(MAP)
    many[30] = account(LAND)
    pages = [
        page([account(1), account(2)]),
        page(many, number=2),
        page([account(50)], number=3),
        page([account(51)], number=4),
    ]
    unread = page([account(VALUE)], pass_="of nobody")
    other = [page([account(f"o-{n}")], owner="crm/accounts/south", number=n) for n in (1, 2)]
    assert len({scene.partition(one.partition_id) for one in (pages[0], other[0])}) == 2
    north = scene.partition(pages[0].partition_id)
    scene.put(*pages[:3], unread, pages[3], complete(*pages), *other)
    with supervised(scene, tmp_path, "one", "two") as crew:

        def done() -> bool:
            crew.look()
            return scene.is_settled()

        wait_until(done, 120, "everything is applied, whatever it kills")
        assert 5 <= crew.ends <= 20, crew.ends
        _tried_again_once(scene, crew)
        _ends_when_tried_again(scene, crew)
        scene.put(page([account(52)], number=5))
        scene.settle()
        audit = forked.run(
            ["audit", "--json"], environment=crew.environment, cwd=REPOSITORY, timeout_s=60
        )
    # A value that ends whoever reads it would end an audit, too; this one is only played.
    findings = json.loads(audit.stdout)["findings"]
    assert {(one["partition"], one["offset"]) for one in findings} == {(north, 3)}, audit.stdout
    assert scene.value("SELECT state FROM gapless.coverage") == "complete_with_errors"
    assert scene.balance() == {"applied": 45, "quarantined": 7}
    assert scene.value("SELECT count(*) FROM accounts") == 45
    found = scene.rows(
        'SELECT "offset", index, reason, raw FROM gapless.exception ORDER BY "offset", index'
    )
    assert [(offset, index, reason) for offset, index, reason, _ in found[:3]] == [
        (1, 7, "killed_worker"), (1, 30, "killed_worker"), (3, 0, "killed_worker"),
    ]  # fmt: skip
    assert MAP.encode() in found[0][3]
    assert VALUE.encode() in found[2][3], "the whole value is the evidence"


def test_a_worker_stopped_inside_copy_loses_its_partitions(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    """It holds locks that no time-out of Postgres ends; when it wakes up it changes nothing."""
    scene = make_scene(partitions=2)
    stop = page([account(1, 2), account(STOP)], number=2)
    north = scene.partition(stop.partition_id)
    owner = "SELECT owner FROM gapless.position WHERE partition = %s"
    with supervised(scene, tmp_path, "one") as crew:
        scene.put(page([account(1)]))
        scene.settle()
        scene.put(stop, complete(stop))
        inside = (
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND xact_start IS NOT NULL"
            " AND datname = current_database()"
        )
        wait_until(crew.is_stopped, 30, "the worker stops")
        assert scene.value(inside) == 1
        with scene.applying(worker="two"):
            scene.settle()
            assert scene.value(owner, north) == "two"
            crew.wake()
            scene.put(page([account(3)], number=3), page([account(4)], owner="crm/accounts/south"))
            scene.settle()
    assert scene.balance() == {"applied": 5}
    assert scene.rows("SELECT id, source_revision FROM accounts ORDER BY id") == [
        ("a-1", 2), ("a-3", 1), ("a-4", 1), (f"a-{STOP}", 1),
    ]  # fmt: skip

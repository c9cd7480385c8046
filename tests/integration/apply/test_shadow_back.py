"""Away from a version and back again: live goes on after every step, whatever was dropped or killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from apply import shadow_drop
from apply.faults import NotPrepared, SinkFault
from apply.mapping.types import CompiledMapping
from apply.replay import run_replay
from apply.replay_report import ReplayRefused
from apply.service import REFUSED, Service
from apply.shadow import run_shadow
from apply.shadow_drop import drop_beside
from apply.sink import Connection, connect
from apply.tables import migrate_mappings
from ops.audit import audit
from ops.facts.sink import read_sink
from schemas.definitions import DefinitionError
from schemas.definitions.load import Definitions
from tests.integration.apply.scene import Scene, account, complete, page
from tests.integration.apply.test_shadow import TO_TEXT, fill, serving

NEWER = {**TO_TEXT, "values: [active, closed]": "values: [active, odd]"}
"""No change for the table as it stands; it reads what version 1 refuses, and refuses what that reads."""
BOTH = {**TO_TEXT, "values: [active, closed]": "values: [active, odd, closed]"}
ODD = ["odd", "odd2"]
MEANT: dict[int, dict[str, str]] = {1: {}, 2: NEWER, 3: NEWER, 4: BOTH}
STATES = (
    "SELECT string_agg(version || ' ' || state, ', ' ORDER BY version) FROM gapless.mapping_version"
    " WHERE mapping = 'accounts'"
)
NAMED = "SELECT id FROM gapless.mapping_version WHERE mapping = 'accounts' AND version = %s"
OPEN = "SELECT key ->> 'id' FROM gapless.exception WHERE state IN ('quarantined', 'repeated') ORDER BY 1"
COVERED = "SELECT state, errors FROM gapless.coverage WHERE plan = 'interval' ORDER BY start_at"
TRIED = "SELECT tried_version FROM gapless.exception WHERE key ->> 'id' = 'a-never' AND state = 'quarantined'"
LATER = "2026-03-05T00:00:00.000000Z~2026-03-06T00:00:00.000000Z"


class Walk:
    """Steps of an operator, and after each a fresh worker with the definitions of the live version."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self._steps = scene, 0
        scene.other_topics()

    def define(self, version: int) -> Definitions:
        return self.scene.write(version, **MEANT[version])

    def live(self, version: int) -> None:
        """It starts, applies what comes, and the table is right."""
        scene, self._steps = self.scene, self._steps + 1
        definitions = self.define(version)
        assert migrate_mappings(scene.db, definitions) == []  # as every start of a stack does
        with serving(scene):
            records = [account(f"step{self._steps}"), account(3, 3 + self._steps)]
            scene.put(page(records, number=100 + self._steps))
            scene.settle()
        kind = "numeric" if version == 1 else "text"
        assert scene.value("SELECT pg_typeof(balance)::text FROM accounts LIMIT 1") == kind
        ids = [*range(19), *(f"step{one}" for one in range(1, self._steps + 1))]
        ids += {1: ["closed"], 2: ODD, 3: ODD, 4: ["closed", *ODD]}[version]
        found = scene.rows("SELECT id FROM accounts WHERE NOT _deleted")
        assert {row[0] for row in found} == {f"a-{one}" for one in ids} - {"a-4"}
        revision = scene.value("SELECT source_revision FROM accounts WHERE id = 'a-3'")
        assert revision == 3 + self._steps
        findings = audit(scene.settings).findings.kept
        assert [(one.kind, one.what) for one in findings] == []
        # status tells what the live version has made of each record, and of nothing else
        told = read_sink(scene.settings.postgres, timedelta(days=1)).outcomes
        number = scene.value(NAMED, version)
        counts = "SELECT counts FROM gapless.page_ledger WHERE mapping_version = %s"
        made = [row[0] for row in scene.rows(counts, number)]
        assert told["crm/accounts/north"] == [sum(each) for each in zip(*made, strict=True)]

    def refused(self, version: int, *words: str) -> None:
        """No worker starts with that version, and `gapless migrate` says the same."""
        definitions = self.define(version)
        with pytest.raises(NotPrepared) as started:
            self.scene.mappings()
        with pytest.raises(DefinitionError) as migrated:
            migrate_mappings(self.scene.db, definitions)
        for word in words:
            assert word in str(started.value)
            assert word in str(migrated.value)

    def swap(self, version: int, *, back: bool = False) -> None:
        report = run_shadow(self.scene.settings, self.define(version), "accounts", back=back)
        assert (report.swapped, report.back) == (True, version == 1)

    def drop(self, monkeypatch: pytest.MonkeyPatch) -> int:
        """Die before the first statement, then before the second, until it is through; how many there are."""
        scene = self.scene
        asked = (
            "SELECT array_agg((pipeline, partition, next_offset_to_apply)::text ORDER BY 1),"
            f" ({STATES}), (SELECT count(*) FROM gapless.exception WHERE state <> 'dismissed'),"
            " to_regclass('gapless_beside.accounts')::text FROM gapless.position"
        )
        before = scene.rows(asked)
        for statement in range(1, 100):
            try:
                with cut_before(scene, monkeypatch, statement):
                    drop_beside(scene.settings, "accounts")
            except SinkFault:
                assert scene.rows(asked) == before
            else:
                assert scene.value("SELECT to_regclass('gapless_beside.accounts')::text") is None
                return statement - 1
        raise AssertionError("it never came through")

    def sleeper(self, mappings: list[CompiledMapping]) -> int:
        """A worker that has run these and was asleep while all that happened wakes up: its exit code."""
        settings = self.scene.settings.model_copy(update={"worker": "sleeper"})
        return Service(settings, mappings, threading.Event(), hit=lambda _: None).run()


@contextmanager
def cut_before(scene: Scene, monkeypatch: pytest.MonkeyPatch, statement: int) -> Iterator[None]:
    """The connection of a drop ends before its n-th statement, as the server sees a kill -9."""

    class Cut:
        def __init__(self, connection: Connection) -> None:
            self._connection, self._left = connection, statement

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def __enter__(self) -> Cut:
            return self

        def __exit__(self, *_: object) -> None:
            self._connection.close()

        def execute(self, *asked: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                pid = self._connection.info.backend_pid
                assert scene.value("SELECT pg_terminate_backend(%s, 5000)", pid)
            return self._connection.execute(*asked)

    with monkeypatch.context() as patched:
        patched.setattr(shadow_drop, "connect", lambda *where: Cut(connect(*where)))
        yield


def test_live_goes_on_after_every_step_there_and_back(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = make_scene(partitions=1)
    walk, settings = Walk(scene), scene.settings
    with serving(scene):
        fill(scene)
        refused = [account(name, lifecycle=name) for name in ("closed", "never")]
        refused.append(account("odd2", lifecycle="odd"))
        first = page(refused, number=50, pass_="p2")
        scene.put(first, complete(first))
        scene.settle()
    assert scene.rows(OPEN) == [("a-never",), ("a-odd",), ("a-odd",), ("a-odd2",)]
    assert scene.rows(COVERED) == [("complete_with_errors", 2)]

    # built and dropped
    run_shadow(settings, walk.define(2), "accounts", swap=False)
    walk.refused(2, "is being built beside version 1, which is live", "--shadow` swaps it in")
    walk.live(1)
    assert walk.drop(monkeypatch) > 8
    assert scene.value(STATES) == "1 live"
    walk.live(1)

    # swapped
    walk.swap(2)
    walk.refused(1, "version 1 was swapped for version 2, which is live", "--swap-back`")
    walk.live(2)
    assert scene.rows(COVERED) == [("complete_with_errors", 1)]  # it reads one of the two
    running = scene.mappings()
    with pytest.raises(ReplayRefused, match=r"give the definitions of version 1 \(--definitions"):
        run_shadow(settings, walk.define(2), "accounts", back=True)

    there_and_back(walk)

    # what was swapped back is dropped: it is never live again, and stands in nobody's way
    assert walk.drop(monkeypatch) > 10
    assert scene.value(STATES) == "1 live, 2 retired"
    assert scene.rows(OPEN) == [
        ("a-never",),
        ("a-odd",),
        ("a-odd",),
        ("a-odd2",),
    ]  # as it was at first
    assert scene.rows(COVERED) == [("complete_with_errors", 2), ("complete", 0)]
    assert walk.sleeper(running) == REFUSED
    # its positions went with it; where a drop by an older Gapless has left them, they say nothing
    assert scene.value("SELECT count(*) FROM gapless.position WHERE pipeline LIKE '%:2'") == 0
    scene.db.execute(
        "INSERT INTO gapless.position (pipeline, partition, next_offset_to_apply, end_offset)"
        " VALUES ('replay:accounts:2', 0, 1, 1)"
    )
    # what it had refused, and the live version refuses, is tried by that one where somebody asks for it
    scene.db.execute(
        "UPDATE gapless.exception SET state = 'retryable', due_at = now() WHERE state = 'quarantined'"
    )
    walk.define(1)
    with serving(scene):
        scene.until(TRIED, scene.value(NAMED, 1))
    walk.live(1)
    walk.refused(2, "it was swapped back for version 1, which is live", "`version: 3`")
    the_next_one(walk, monkeypatch)


def there_and_back(walk: Walk) -> None:
    """From version 2, twice; neither way is taken by mistake."""
    scene, settings = walk.scene, walk.scene.settings
    walk.swap(1, back=True)
    assert scene.rows(COVERED) == [("complete_with_errors", 2)]  # which counts again
    walk.refused(2, "version 2 was swapped for version 1, which is live", "--swap-back`")
    walk.live(1)
    assert run_shadow(settings, walk.define(1), "accounts", back=True).resumed  # nothing is left
    with pytest.raises(ReplayRefused, match="version 1 is live already, brought back"):
        run_shadow(settings, walk.define(1), "accounts")
    walk.swap(2, back=True)  # its table stands there, so it is brought back just the same
    walk.live(2)
    with serving(scene):
        later = page([account("closed", 2, lifecycle="closed")], number=51, pass_="p3", scope=LATER)
        scene.put(later, complete(later))
        scene.settle()
    assert scene.rows(COVERED) == [("complete_with_errors", 1), ("complete_with_errors", 1)]
    walk.swap(1, back=True)


def the_next_one(walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 3, and what it replaced is dropped; then one in place."""
    scene = walk.scene
    walk.swap(3)
    walk.live(3)
    running = scene.mappings()
    assert walk.drop(monkeypatch) > 10
    assert scene.value(STATES) == "1 retired, 2 retired, 3 live"
    walk.live(3)
    walk.refused(1, "version 1 is older than version 3, which is in use", "`version: 4`")

    # in place: from its begin on the version before must step down
    migrate_mappings(scene.db, walk.define(4))
    with scene.applying():
        scene.settle()
    run_replay(scene.settings, scene.definitions, "accounts")
    assert walk.sleeper(running) == REFUSED
    walk.live(4)

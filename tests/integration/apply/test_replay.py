"""A replay applies the log again under a new version: resumable, silent, beside live apply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apply.faults import NotPrepared
from apply.replay import Progress, ReplayRefused, run_replay
from tests.integration.apply.scene import Scene, account, begin, complete, page

STRICTER = {"values: [active, closed]": "values: [active, closed, odd]"}


class Died(BaseException):
    """As good as kill -9: nothing of the product catches it."""


def fill(scene: Scene, pages: int = 10) -> None:
    for number in range(pages):
        records = [account(f"{number}-{n}") for n in range(5)]
        one = page([*records, account(f"{number}-odd", lifecycle="odd")], number=number + 1)
        scene.put(one, complete(one, run=str(number)))
    with scene.applying():
        scene.settle()


def test_a_replay_heals_what_the_new_version_can_read(scene: Scene) -> None:
    fill(scene)
    assert scene.balance() == {"applied": 50, "quarantined": 10}
    events = scene.value("SELECT count(*) FROM gapless.outbox")
    definitions = scene.define(2, **STRICTER)
    seen: list[Progress] = []
    report = run_replay(scene.settings, definitions, "accounts", progress=seen.append)
    assert report.outcomes == [60, 0, 0, 0, 0, 0]
    assert (report.pages, report.replaced, report.resumed) == (10, 10, False)
    assert seen[-1].done == seen[-1].total
    assert scene.value("SELECT count(*) FROM accounts") == 60
    assert scene.value("SELECT count(*) FROM accounts WHERE _mapping_version = 1") == 0
    assert scene.value("SELECT count(*) FROM gapless.outbox") == events
    assert scene.rows("SELECT DISTINCT state, decided_by FROM gapless.exception") == [
        ("dismissed", "replay")
    ]
    assert scene.rows("SELECT DISTINCT state FROM gapless.coverage") == [("complete",)]
    scene.balance()


def test_a_dry_run_counts_and_changes_nothing(scene: Scene) -> None:
    fill(scene, 3)
    definitions = scene.define(
        2,
        **STRICTER,
        **{"email: {type: text, personal: keep}": "email: {type: text, personal: hash}"},
    )
    report = run_replay(scene.settings, definitions, "accounts", dry_run=True)
    assert (report.added, report.changed, report.unchanged) == (3, 15, 0)
    assert report.changed_columns == {"email": 15}
    assert (report.newly_failing, report.healed) == (0, 3)
    assert scene.value("SELECT count(*) FROM accounts") == 15
    assert scene.value("SELECT max(_mapping_version) FROM accounts") == 1
    assert scene.value("SELECT count(*) FROM gapless.position WHERE pipeline <> 'live'") == 0


def test_a_replay_that_died_goes_on(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1, batch_records=6)
    fill(scene)
    definitions = scene.define(2, **STRICTER)
    left = [3]

    def hit(name: str) -> None:
        if name == "replay.after_commit":
            left[0] -= 1
            if not left[0]:
                raise Died

    with pytest.raises(Died):
        run_replay(scene.settings, definitions, "accounts", hit=hit)
    report = run_replay(scene.settings, definitions, "accounts")
    assert report.resumed
    assert report.pages == 7
    assert scene.value("SELECT count(*) FROM accounts") == 60
    assert scene.value("SELECT count(*) FROM gapless.page_ledger WHERE mapping_version = 3") == 10
    again = run_replay(scene.settings, definitions, "accounts")  # once more, from the start
    assert (again.resumed, again.pages) == (False, 10)
    assert scene.value("SELECT count(*) FROM accounts") == 60


def test_live_goes_on_beside_a_replay(scene: Scene) -> None:
    fill(scene)
    definitions = scene.define(2, **STRICTER)
    with scene.applying():
        scene.put(page([account("0-1", 9, balance="1")], number=50))
        report = run_replay(scene.settings, definitions, "accounts")
        scene.settle()
    assert report.pages >= 10
    assert scene.value("SELECT source_revision FROM accounts WHERE id = 'a-0-1'") == 9
    assert scene.value("SELECT count(*) FROM accounts") == 60


def test_a_replay_waits_for_live_to_run_the_version(scene: Scene) -> None:
    fill(scene, 1)
    with scene.applying():
        scene.until("SELECT count(*) FROM gapless.position WHERE owner IS NOT NULL", 2)
        definitions = scene.define(2, **STRICTER)
        with pytest.raises(ReplayRefused, match="start it again"):
            run_replay(scene.settings, definitions, "accounts")
    with pytest.raises(NotPrepared, match="no mapping"):
        run_replay(scene.settings, definitions, "none")


def test_nothing_below_a_sweep_comes_back_by_a_replay(scene: Scene) -> None:
    old = page([account(number) for number in range(20)])
    listed = page([account(n) for n in range(19)], plan="snapshot", scope="s1", pass_="s")
    scene.put(old, begin("s1"), listed, complete(listed, kind="snapshot_complete"))
    with scene.applying():
        scene.settle()
    assert scene.value("SELECT count(*) FROM accounts WHERE NOT _deleted") == 19
    definitions = scene.define(2, **STRICTER)
    report = run_replay(scene.settings, definitions, "accounts")
    assert report.outcomes[:2] == [19, 20]
    assert scene.rows("SELECT id FROM accounts WHERE _deleted") == [("a-19",)]
    assert (
        scene.value("SELECT count(*) FROM accounts WHERE NOT _deleted AND _mapping_version <> 3")
        == 0
    )

"""A replay applies the log again under a new version: resumable, silent, beside live apply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import psycopg.conninfo
import pytest

from apply import pacing
from apply.faults import NotPrepared
from apply.replay import run_dry, run_replay
from apply.replay_report import HIDDEN, Progress, ReplayRefused
from apply.scope import Scope
from apply.service import REFUSED, Service
from ops.facts.sink import read_sink
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


def outcomes(scene: Scene) -> dict[str, list[int]]:
    """What `gapless status` says of the last day."""
    return read_sink(scene.settings.postgres, timedelta(days=1)).outcomes


def test_a_replay_heals_what_the_new_version_can_read(scene: Scene) -> None:
    fill(scene)
    assert scene.balance() == {"applied": 50, "quarantined": 10}
    assert outcomes(scene) == {"crm/accounts/north": [50, 0, 0, 10, 0, 0]}
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
    # each record once, by the version that speaks for it now; what is older is no newer for that
    assert outcomes(scene) == {"crm/accounts/north": [60, 0, 0, 0, 0, 0]}
    older = "UPDATE gapless.page_ledger SET applied_at = now() - interval '2 days' WHERE mapping_version = 1"
    scene.db.execute(older)
    assert outcomes(scene) == {}


def test_a_dry_run_counts_and_changes_nothing(scene: Scene) -> None:
    fill(scene, 3)
    definitions = scene.define(
        2,
        **STRICTER,
        **{"email: {type: text, personal: keep}": "email: {type: text, personal: hash}"},
    )
    report = run_dry(scene.settings, definitions, "accounts")
    diff = report.diff
    assert diff is not None and report.how == "in_place"
    assert (diff.added, diff.changed, diff.unchanged) == (3, 15, 0)
    assert diff.changed_columns == {"email": 15}
    assert {(one.column, one.before, one.after) for one in diff.samples} == {
        ("email", HIDDEN, HIDDEN)
    }
    assert (diff.newly_quarantined, diff.healed, diff.removed) == ({}, {"unknown_value": 3}, {})
    assert scene.value("SELECT count(*) FROM accounts") == 15
    assert scene.value("SELECT max(_mapping_version) FROM accounts") == 1
    assert scene.value("SELECT count(*) FROM gapless.position WHERE pipeline <> 'live'") == 0


def test_a_dry_run_counts_what_live_has_written_since_it_began(scene: Scene) -> None:
    fill(scene, 2)
    scene.put(page([account("south")], owner="crm/accounts/south", number=30))
    with scene.applying():
        scene.settle()
        definitions = scene.write(2, **STRICTER)

        def live_goes_on(scope: str) -> Callable[[str], None]:
            """The first read of a scope finds these two rows written and one gone since."""
            left = [scope]

            def hit(name: str) -> None:
                if name == "apply.after_poll" and left:
                    revision = {"everything": 9, "tenant": 10}[left.pop()]
                    changed = account("0-1", revision, balance="1")
                    gone = account("0-2", revision, deleted=True)
                    scene.put(page([changed, gone, account("new", revision)], number=40 + revision))
                    south = account("south", revision)
                    scene.put(page([south], owner="crm/accounts/south", number=40 + revision))
                    scene.settle()

            return hit

        everything = run_dry(
            scene.settings, definitions, "accounts", hit=live_goes_on("everything")
        )
        north = run_dry(
            scene.settings, definitions, "accounts", scope=Scope(tenant="north"),
            hit=live_goes_on("tenant"),
        )  # fmt: skip
    assert everything.diff is not None and north.diff is not None
    assert (everything.diff.not_compared, north.diff.not_compared) == (4, 3)
    # a-new and the two others are written again behind the end of the second look
    assert (everything.diff.added, everything.diff.unchanged) == (2, 8)
    assert (north.diff.added, north.diff.unchanged) == (2, 8)
    assert everything.diff.removed == north.diff.removed == {}


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


def test_a_part_of_the_log_leaves_all_else_alone(scene: Scene) -> None:
    south = page([account("south")], owner="crm/accounts/south", number=30)
    first, second = page([account("1")], number=31), page([account("2")], number=32)
    [at] = scene.put(first)
    scene.put(south, second)
    with scene.applying():
        scene.settle()
    definitions = scene.define(2, **STRICTER)
    made = "SELECT id FROM accounts WHERE _mapping_version = 3 ORDER BY id"
    where = scene.partition("crm/accounts/north")
    for scope, pages in (
        (Scope(since=datetime.now(UTC)), 0),
        (Scope(start=(where, at + 1), tenant="north"), 1),
        (Scope(tenant="north"), 2),
    ):
        dry = run_dry(scene.settings, definitions, "accounts", scope=scope)
        report = run_replay(scene.settings, definitions, "accounts", scope=scope)
        assert (dry.pages, report.pages) == (pages, pages)
    assert scene.rows(made) == [("a-1",), ("a-2",)]
    assert scene.rows("SELECT id FROM accounts WHERE _mapping_version = 1") == [("a-south",)]
    for run in (run_dry, run_replay):
        with pytest.raises(
            ReplayRefused, match=r"crm/accounts/nroth was .* tenants: north, south$"
        ):
            run(scene.settings, definitions, "accounts", scope=Scope(tenant="nroth"))
    with pytest.raises(ReplayRefused, match="has offsets 0 to"):
        run_replay(scene.settings, definitions, "accounts", scope=Scope(start=(where, 99)))


def test_a_dry_run_needs_to_read_and_says_which_rows_nothing_stands_for(scene: Scene) -> None:
    fill(scene, 2)
    scene.db.execute("UPDATE accounts SET _offset = -5, id = 'a-lost' WHERE id = 'a-0-4'")
    reader = f"r{scene.settings.prefix.strip('.')}"
    scene.db.execute(
        f"CREATE ROLE {reader} LOGIN PASSWORD 'reads'; GRANT USAGE ON SCHEMA gapless TO {reader};"
        f" GRANT SELECT ON ALL TABLES IN SCHEMA gapless TO {reader};"
        f" GRANT SELECT ON accounts TO {reader}".encode()
    )
    own = psycopg.conninfo.make_conninfo(scene.settings.postgres, user=reader, password="reads")
    settings = scene.settings.model_copy(update={"postgres": own})
    definitions = scene.write(
        2,
        **{
            "  lifecycle: {type: text, values: [active, closed]}":
            "  lifecycle: {path: email, type: text, personal: false}",
            "balance: numeric(20,2)": "balance: {type: text, personal: false}",
            "deleted: {deleted: true}": "deleted: {id: a-0-0}\nwhere: {id: {not: a-0-1}}",
        },
    )  # fmt: skip
    try:
        report = run_dry(settings, definitions, "accounts")
    finally:
        scene.db.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}".encode())
    diff = report.diff
    assert diff is not None
    assert report.how == "shadow"
    assert report.why_shadow == ["column balance is numeric(20,2), would be text"]
    assert diff.removed == {"deleted": 1, "ignored": 1, "without_observation": 1}
    assert (diff.added, diff.changed, diff.healed) == (3, 7, {"unknown_value": 2})
    assert diff.changed_columns == {"lifecycle": 7}
    shown = [one for one in diff.samples if one.what == "changed"]
    assert len(shown) == 3
    assert all(one.before == "active" and "@example.org" in str(one.after) for one in shown)
    assert scene.value("SELECT count(*) FROM gapless.mapping_version WHERE version = 2") == 0


def test_it_rests_while_live_lags_and_no_longer_than_that(
    make_scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "_LOOK_S", 0.05)
    scene = make_scene(partitions=1, batch_records=5)
    fill(scene, 60)
    seen: list[Progress] = []
    with scene.applying(), psycopg.connect(scene.settings.postgres) as blocker:
        scene.until("SELECT count(*) FROM gapless.position WHERE owner IS NOT NULL", 1)

        def tell(progress: Progress) -> None:
            """Live cannot write from the first batch on, until the replay has backed off."""
            if not seen:
                blocker.execute("LOCK TABLE accounts IN SHARE MODE")
                scene.put(page([account("held")], number=99))
            seen.append(progress)
            if progress.rest_s >= 0.2:
                blocker.rollback()

        run_dry(
            scene.settings,
            scene.definitions,
            "accounts",
            progress=tell,
            pause_s=0.02,
            lag_max_s=0.4,
        )
        scene.settle()
    assert len(seen) >= 60
    rests = [one.rest_s for one in seen]
    assert rests[0] == 0.02
    assert max(rests) >= 0.2
    assert rests[-1] == 0.02  # live has caught up since
    worst = max(one.lag_s or 0.0 for one in seen)
    assert 0.4 < worst < 5
    assert seen[-1].lag_s == 0
    assert seen[-1].rate_per_s is not None and seen[-1].left_s == 0


def with_older_definitions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> tuple[threading.Thread, Service]:
    """A worker that was started before version 2, and asked who may write before the replay began."""
    monkeypatch.setattr("apply.store.still_ours", lambda *_: None)
    service = scene.service(worker="old")
    return threading.Thread(target=service.run, daemon=True), service


def once(act: Callable[[], None]) -> Callable[[str], None]:
    """A failpoint that acts at the first batch of a replay."""
    left = [act]

    def hit(name: str) -> None:
        if name == "replay.after_commit" and left:
            left.pop()()

    return hit


def test_it_goes_on_to_the_end_of_what_an_older_version_has_applied_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scene)
    old, service = with_older_definitions(scene, monkeypatch)
    definitions = scene.define(2, **STRICTER)
    elsewhere = 1 - scene.partition("crm/accounts/north")
    scene.db.execute("DELETE FROM gapless.position WHERE partition = %s", [elsewhere])

    def older_worker_comes_and_goes() -> None:
        scene.put(page([account("late", lifecycle="odd"), account("0-1", 7)], number=50))
        there = page([account("there")], owner="crm/accounts/harbour", number=51)
        assert scene.partition("crm/accounts/harbour") == elsewhere
        scene.put(there)
        old.start()
        scene.settle()
        service.stop()
        old.join(60)
        left = "SELECT count(*) FROM gapless.page_ledger WHERE mapping_version = 1"
        assert scene.value(left) == 12

    report = run_replay(
        scene.settings, definitions, "accounts", hit=once(older_worker_comes_and_goes)
    )
    assert report.pages == 12
    assert scene.value("SELECT count(*) FROM accounts") == 62
    assert scene.value("SELECT count(*) FROM accounts WHERE _mapping_version <> 3") == 0
    assert scene.value("SELECT source_revision FROM accounts WHERE id = 'a-0-1'") == 7
    assert scene.value("SELECT count(*) FROM gapless.exception WHERE state <> 'dismissed'") == 0
    unjudged = (
        "SELECT count(*) FROM gapless.page_ledger o WHERE NOT EXISTS (SELECT FROM gapless.page_ledger n"
        ' WHERE (n.partition, n."offset") = (o.partition, o."offset") AND n.mapping_version = 3)'
    )
    assert scene.value(unjudged) == 0
    open_ends = "SELECT count(*) FROM gapless.position WHERE next_offset_to_apply < end_offset"
    assert scene.value(open_ends) == 0


def test_it_refuses_to_end_while_an_older_version_is_applied_and_goes_on_from_there(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(scene)
    old, service = with_older_definitions(scene, monkeypatch)
    definitions = scene.define(2, **STRICTER)

    def older_worker_comes() -> None:
        old.start()
        scene.put(page([account("late")], number=50))
        scene.settle()

    with pytest.raises(
        ReplayRefused, match=r"worker old, partition 0, 1\).*run this command again"
    ):
        run_replay(scene.settings, definitions, "accounts", hit=once(older_worker_comes))
    with pytest.raises(ReplayRefused, match="start it again"):
        run_replay(scene.settings, definitions, "accounts")
    service.stop()
    old.join(60)
    report = run_replay(scene.settings, definitions, "accounts")
    assert (report.resumed, report.pages) == (True, 1)
    assert scene.value("SELECT count(*) FROM accounts WHERE _mapping_version <> 3") == 0
    assert not run_replay(scene.settings, definitions, "accounts").resumed


def test_a_worker_of_an_older_version_takes_nothing_over_once_a_replay_has_begun(
    scene: Scene,
) -> None:
    fill(scene, 1)
    old = scene.service(worker="old")
    definitions = scene.define(2, **STRICTER)
    run_replay(scene.settings, definitions, "accounts")
    scene.put(page([account("late")], number=50))
    assert old.run() == REFUSED
    assert old.swapped
    with scene.applying():
        scene.settle()
    assert scene.value("SELECT _mapping_version FROM accounts WHERE id = 'a-late'") == 3

"""A table beside the live one: filled from the log, swapped in with nothing lost, brought back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from apply.replay_report import Progress, ReplayRefused
from apply.service import REFUSED, serve
from apply.shadow import run_shadow
from apply.shadow_drop import drop_beside
from apply.tables import migrate_mappings
from ops.audit import audit
from schemas.failpoints import REPLAY
from schemas.records import Mark, Observation
from tests.integration.apply.scene import Scene, account, begin, complete, page
from tests.workers import wait_for, workers

TO_TEXT = {
    "balance: numeric(20,2)": "balance: text",
    "values: [active, closed]": "values: [active, closed, odd]",
}
BOTH = "id, tenant_id, lifecycle, balance::numeric, deleted_at, source_revision, _deleted, _offset, _began"


class Died(BaseException):
    """As good as kill -9: nothing of the product catches it."""


@contextmanager
def serving(scene: Scene, wanted: int = 0) -> Iterator[threading.Thread]:
    """Live apply as `gapless apply` runs it: with the definitions of its start."""
    stop, codes = threading.Event(), list[int]()
    loaded = scene.definitions
    thread = threading.Thread(
        target=lambda: codes.append(serve(scene.settings, loaded, stop)), daemon=True
    )
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(60)
    assert codes == [wanted]


def dying(*names: str) -> Callable[[str], None]:
    """Dies once at each of these."""
    left = set(names)

    def hit(name: str) -> None:
        if name in left:
            left.discard(name)
            raise Died

    return hit


def fill(scene: Scene) -> None:
    """New rows, one of two versions, one soft delete, and a row that a complete listing lacks."""
    records, odd = [account(number) for number in range(20)], account("odd", lifecycle="odd")
    scene.put(page([*records, odd]))
    listed = page([*records[:19], odd], plan="snapshot", scope="s1", pass_="s", number=2)
    scene.put(begin("s1"), listed, complete(listed, kind="snapshot_complete"))
    scene.put(page([account(3, 2, balance="7"), account(4, 2, deleted=True)], number=3))


def same(scene: Scene) -> None:
    """Both tables say the same, but for the record that only the new version can read."""
    old, new = (
        scene.rows(f"SELECT {BOTH} FROM {schema}.accounts WHERE id <> 'a-odd' ORDER BY 1")
        for schema in ("public", "gapless_beside")
    )
    assert old == new


def clean(scene: Scene) -> None:
    """Nothing is missing or unexplained."""
    settings, admin = scene.settings, AdminClient({"bootstrap.servers": scene.lane.kafka})
    topics = [
        NewTopic(settings.checkpoints, settings.partitions, 1),
        NewTopic(settings.control, 1, 1),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    findings = audit(settings).findings.kept
    assert [(one.kind, one.what) for one in findings] == []


def test_an_incompatible_change_is_swapped_in_and_back_beside_live(scene: Scene) -> None:
    with serving(scene):
        fill(scene)
        scene.settle()
        events = scene.value("SELECT count(*) FROM gapless.outbox")
        old, definitions = scene.definitions, scene.write(2, **TO_TEXT)
        late = [page([account("late")], number=10), page([account("later")], number=11)]
        ahead = [page([account("ahead"), account(5, 2, balance="9")], number=14)]

        def hit(name: str) -> None:
            """Live goes on when this has caught up, and until it holds live's positions."""
            if name == "replay.after_commit" and ahead:
                scene.put(ahead.pop())  # the comparison must not take live's lead for a loss
                scene.settle()
            if name == "replay.before_swap":
                assert migrate_mappings(scene.db, old) == []  # version 1 is still in use
                scene.put(late[0])
                scene.settle()
                same_before_late(scene)
                scene.put(late[1])

        report = run_shadow(scene.settings, definitions, "accounts", hit=hit)
        assert report.swapped and report.replaced == 2
        diff = report.diff
        assert diff is not None
        assert (diff.added, diff.changed_columns, diff.healed) == (
            1, {"balance": 1}, {"unknown_value": 1},
        )  # fmt: skip
        assert diff.removed == {}
        scene.settle()
        living = {row[0] for row in scene.rows("SELECT id FROM accounts WHERE NOT _deleted")}
        assert living == {f"a-{n}" for n in (*range(19), "odd", "ahead", "late", "later")} - {"a-4"}
        # only live's own events: for the rows that came since
        assert scene.value("SELECT count(*) FROM gapless.outbox") == events + 4
        # live goes on in the new table, and the old one learns of it only on its way back
        scene.put(page([account("after"), account(3, 3, balance="8")], number=12))
        scene.settle()
        assert scene.value("SELECT balance FROM accounts WHERE id = 'a-3'") == "8"
        assert run_shadow(scene.settings, scene.write(1), "accounts", back=True).swapped
        assert migrate_mappings(scene.db, scene.definitions) == []  # as every start does
        scene.settle()
        assert scene.value("SELECT balance FROM accounts WHERE id = 'a-3'") == 8
        assert scene.value("SELECT count(*) FROM accounts WHERE id = 'a-odd'") == 0
        # whom the new version had healed is missing again, and again somebody has to hear of it
        assert scene.rows(
            "SELECT v.version, e.state FROM gapless.exception e JOIN gapless.mapping_version v"
            " ON v.id = e.mapping_version WHERE e.state IN ('retryable', 'quarantined')"
        ) == [(1, "quarantined")]
        same(scene)
        scene.put(page([account("last")], number=13))
        scene.settle()
        assert scene.value("SELECT count(*) FROM accounts WHERE id IN ('a-after', 'a-last')") == 2
    clean(scene)
    assert "no way back" in drop_beside(scene.settings, "accounts")
    assert scene.value("SELECT to_regclass('gapless_beside.accounts')") is None
    assert scene.rows("SELECT version, state FROM gapless.mapping_version WHERE mapping = 'accounts'"
                      " ORDER BY version") == [(1, "live"), (2, "retired")]  # fmt: skip


def test_the_new_table_has_what_the_old_one_had(scene: Scene) -> None:
    with scene.applying():
        fill(scene)
        scene.settle()
    for statement in (
        "CREATE INDEX by_lifecycle ON accounts (lifecycle)",
        "ALTER TABLE accounts ADD CONSTRAINT known CHECK (lifecycle <> 'never')",
        "ALTER TABLE accounts ADD COLUMN short text GENERATED ALWAYS AS (left(email, 3)) STORED",
        "COMMENT ON TABLE accounts IS 'it''s \\ ours'",
        "COMMENT ON COLUMN accounts.lifecycle IS 'state'",
        "GRANT SELECT ON accounts TO PUBLIC",
        "GRANT UPDATE (email) ON accounts TO PUBLIC",
        "CREATE VIEW active AS SELECT id FROM accounts WHERE lifecycle = 'active'",
    ):
        scene.db.execute(statement.encode())
    asked = (
        "SELECT obj_description(c.oid), c.relacl::text,"
        " (SELECT array_agg(i.indexrelid::regclass::text ORDER BY i.indexrelid::regclass::text)"
        "  FROM pg_index i WHERE i.indrelid = c.oid),"
        " (SELECT array_agg(k.conname::text ORDER BY k.conname)"
        "  FROM pg_constraint k WHERE k.conrelid = c.oid),"
        " (SELECT array_agg((a.attname, a.attacl, col_description(c.oid, a.attnum))::text"
        "  ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT attisdropped)"
        " FROM pg_class c WHERE c.oid = 'accounts'::regclass"
    )
    before = scene.rows(asked)
    report = run_shadow(scene.settings, scene.write(2, **TO_TEXT), "accounts")
    assert report.swapped
    assert {"index by_lifecycle", "constraint known", "view public.active"} <= set(report.carried)
    assert len(report.carried) == len(set(report.carried))
    assert scene.rows(asked) == before
    kinds = scene.rows(
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'accounts'::regclass AND attname IN ('balance', 'short') ORDER BY 1"
    )
    assert kinds == [("balance", "text"), ("short", "text")]
    assert scene.value("SELECT count(*) FROM active WHERE id = 'a-odd'") == 0
    scene.db.execute("UPDATE accounts SET lifecycle = 'active' WHERE id = 'a-odd'")
    assert scene.value("SELECT count(*) FROM active WHERE id = 'a-odd'") == 1


def same_before_late(scene: Scene) -> None:
    rows = scene.rows(
        f"SELECT {BOTH} FROM public.accounts WHERE id NOT IN ('a-odd', 'a-late', 'a-ahead', 'a-5') EXCEPT"
        f" SELECT {BOTH} FROM gapless_beside.accounts"
    )
    assert rows == []


def test_a_shadow_that_died_anywhere_goes_on(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1, batch_records=6)
    with scene.applying():
        fill(scene)
        scene.settle()
    definitions = scene.write(2, **TO_TEXT)
    hit = dying(*REPLAY)
    for name in REPLAY:
        with pytest.raises(Died):
            run_shadow(scene.settings, definitions, "accounts", hit=hit)
        swapped = (
            scene.value("SELECT state FROM gapless.mapping_version WHERE version = 2") == "live"
        )
        assert swapped == (name == "replay.after_swap")
        if not swapped and name != "replay.after_prepare":
            assert scene.value("SELECT count(*) FROM gapless_beside.accounts") > 0
    seen: list[Progress] = []
    report = run_shadow(scene.settings, definitions, "accounts", hit=hit, progress=seen.append)
    assert report.swapped and report.resumed and report.replaced == 2
    assert scene.value("SELECT count(*) FROM gapless.page_ledger WHERE mapping_version = 3") == 3
    same(scene)
    with scene.applying():
        scene.put(page([account("after")], number=12))
        scene.settle()
    assert scene.value("SELECT count(*) FROM accounts WHERE id = 'a-after'") == 1
    clean(scene)


def test_the_verb_killed_inside_the_swap_leaves_live_as_it_was(
    scene: Scene, tmp_path: Path
) -> None:
    settings = scene.settings
    with serving(scene), workers(scene.environment, tmp_path) as group:
        fill(scene)
        scene.settle()
        scene.write(2, **TO_TEXT)
        verb = "replay accounts --shadow"
        killed = group.start(verb, "killed", "replay.before_swap_commit=1*kill")
        wait_for("it was killed", lambda: not killed.alive)
        assert killed.hits() == ["replay.before_swap_commit"]
        scene.put(page([account("between", balance="3")], number=10))
        scene.settle()
        assert scene.value("SELECT balance FROM accounts WHERE id = 'a-between'") == 3
        done = group.json(verb)
        assert (done["swapped"], done["resumed"], done["replaced"]) == (True, True, 2)
        scene.settle()
        assert scene.value("SELECT balance FROM accounts WHERE id = 'a-between'") == "3"
        # the way back needs the log since the swap
        scene.put(page([account("expired")], number=11), page([account("kept")], number=12))
        scene.settle()
        admin, ends = AdminClient({"bootstrap.servers": settings.kafka}), scene.ends()
        entry = ConfigEntry("cleanup.policy", "compact,delete")
        entry.incremental_operation = AlterConfigOpType.SET
        topic = ConfigResource(ConfigResource.Type.TOPIC, settings.observations)
        topic.add_incremental_config(entry)
        for altered in admin.incremental_alter_configs([topic]).values():
            altered.result(30)
        cut = [TopicPartition(settings.observations, n, end) for n, end in ends.items()]
        for deleted in admin.delete_records(cut).values():
            deleted.result(30)
        scene.write(1)
        said = group.run("replay accounts --swap-back")
        assert (said.returncode, "can no longer be caught up" in said.stderr) == (4, True)
        scene.write(2, **TO_TEXT)


def test_what_a_swap_would_lose_is_refused_by_name(scene: Scene) -> None:
    with scene.applying():
        fill(scene)
        scene.settle()
    definitions = scene.write(2, **TO_TEXT)
    scene.db.execute("CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM accounts")
    scene.db.execute("ALTER TABLE accounts ADD COLUMN note text")
    with pytest.raises(ReplayRefused, match="materialized view counted; column note"):
        run_shadow(scene.settings, definitions, "accounts")
    assert scene.value("SELECT to_regclass('gapless_beside.accounts')") is None
    scene.db.execute("DROP MATERIALIZED VIEW counted")
    scene.db.execute("ALTER TABLE accounts DROP COLUMN note")
    scene.db.execute("CREATE VIEW sums AS SELECT sum(balance) FROM accounts")
    with pytest.raises(ReplayRefused, match=r"view public\.sums cannot read the new table"):
        run_shadow(scene.settings, definitions, "accounts")
    assert scene.value("SELECT count(*) FROM sums") == 1
    scene.db.execute("DROP VIEW sums")
    # a row without an observation: its pages are gone from the log, as after a retention
    scene.db.execute("UPDATE accounts SET _offset = -5, id = 'a-lost' WHERE id = 'a-7'")
    with pytest.raises(ReplayRefused, match="1 living rows of accounts have no observation"):
        run_shadow(scene.settings, definitions, "accounts")
    report = run_shadow(scene.settings, definitions, "accounts", swap=False)
    assert report.diff is not None and not report.swapped
    assert report.diff.removed == {"without_observation": 1}
    assert report.diff.samples[-1].record.endswith(":-5 index 7")
    assert "number is free" in drop_beside(scene.settings, "accounts")
    assert scene.value("SELECT count(*) FROM gapless.page_ledger WHERE mapping_version = 3") == 0
    assert run_shadow(scene.settings, definitions, "accounts", accept_missing=True).swapped
    drop_beside(scene.settings, "accounts")
    with pytest.raises(ReplayRefused, match="live already: raise `version`"):
        run_shadow(scene.settings, definitions, "accounts")


def test_a_worker_of_the_old_version_writes_nothing_after_the_swap(scene: Scene) -> None:
    folder = scene.folder / "elsewhere"
    with serving(scene, wanted=REFUSED) as old_worker:
        fill(scene)
        scene.settle()
        old, scene.folder = scene.folder, folder
        folder.mkdir()
        definitions = scene.write(2, **TO_TEXT)  # its own folder still says version 1
        scene.folder = old
        assert run_shadow(scene.settings, definitions, "accounts").swapped
        scene.put(page([account("after")], number=12))
        old_worker.join(60)  # it ends by itself
    assert scene.value("SELECT count(*) FROM accounts WHERE id = 'a-after'") == 0


@pytest.mark.parametrize("kind", ["coarse", "exact"])
def test_whatever_the_log_holds_both_tables_say_the_same(
    make_scene: Callable[..., Scene], kind: str
) -> None:
    """Updates, deletes, entities made again at lower revisions, listings that shift and that do not;
    live is ahead, the table beside follows in two halves and with other batches."""
    dice = random.Random(kind)
    scene = make_scene(partitions=1, batch_records=20, kind=kind)
    with serving(scene):
        definitions = scene.definitions
        for half in range(2):
            for number in range(40):
                scene.put(*_some(dice, 100 * half + number))
            scene.settle()
            # the same meaning under another version, into a table of its own
            definitions = scene.write(2, **{"email: {type: text": "email: {type: varchar"})
            report = run_shadow(scene.settings, definitions, "accounts", swap=False)
            assert report.diff is not None and not report.swapped
            assert report.diff.removed == report.diff.changed_columns == {}
            columns = BOTH if kind == "coarse" else BOTH.replace(", _offset, _began", "")
            assert scene.value("SELECT count(*) FROM accounts WHERE _deleted") > 0
            for one, other in (("public", "gapless_beside"), ("gapless_beside", "public")):
                differing = scene.rows(
                    f"SELECT {columns} FROM {one}.accounts EXCEPT SELECT {columns} FROM {other}.accounts"
                )
                assert differing == []


def _some(dice: random.Random, number: int) -> list[Observation | Mark]:
    """A page of changes, or a whole listing."""
    ids = dice.sample(range(30), dice.randint(1, 6))
    if number % 10 != 9:
        records = [
            account(one, dice.randint(1, 5) + number // 20, deleted=dice.random() < 0.1)
            for one in ids
        ]
        return [page(records, number=number)]
    listed = page(
        [account(one, dice.randint(1, 5)) for one in range(30) if one not in ids[:2]],
        plan="snapshot", scope=f"s{number}", pass_=f"s{number}", number=number,
    )  # fmt: skip
    ended = complete(listed, kind="snapshot_complete", stable=dice.random() < 0.5)
    return [begin(f"s{number}"), listed, ended]

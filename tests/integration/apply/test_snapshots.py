"""Deletes by absence, with every rule that keeps them from deleting what is there."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import psycopg

from apply.snapshots import release_sweep
from schemas.records import Mark, Observation
from tests.integration.apply.scene import Scene, account, begin, complete, page

OWNER = "crm/accounts/north"
MANY = [account(number) for number in range(40)]


def listing(records: list[dict[str, object]], snapshot: str = "s1", number: int = 1) -> Observation:
    return page(records, plan="snapshot", scope=snapshot, pass_=f"{snapshot}-p", number=number)


def ended(*pages: Observation, stable: bool = True) -> Mark:
    return complete(*pages, kind="snapshot_complete", stable=stable)


def living(scene: Scene) -> set[str]:
    return {row[0] for row in scene.rows("SELECT id FROM accounts WHERE NOT _deleted")}


def states(scene: Scene) -> list[tuple[object, ...]]:
    return scene.rows("SELECT snapshot, state, swept FROM gapless.snapshot ORDER BY began")


def ids(*numbers: int) -> set[str]:
    return {f"a-{number}" for number in numbers}


def test_a_complete_listing_deletes_what_it_lacks(scene: Scene) -> None:
    listed = listing(MANY[:38])
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        began = scene.put(begin("s1"), listed)[0]
        scene.settle()
        assert len(living(scene)) == 40  # not before the mark
        scene.put(ended(listed))
        scene.settle()
        assert living(scene) == ids(*range(38))
        assert states(scene) == [("s1", "swept", 2)]
        assert scene.rows(
            "SELECT source_revision, _offset, deleted_at IS NOT NULL FROM accounts WHERE id = 'a-39'"
        ) == [(None, began, True)]
        events = scene.rows(
            "SELECT key, payload->'row'->>'balance' FROM gapless.outbox WHERE effect = 'deleted' ORDER BY key"
        )
        assert events == [('["a-38","north"]', "10.50"), ('["a-39","north"]', "10.50")]
        # a lower revision is news for a row that was deleted by absence
        scene.put(page([account(39, version=0)], number=9))
        scene.settle()
        assert "a-39" in living(scene)
    assert scene.value("SELECT count(*) FROM gapless.present_accounts") == 0


def test_other_tenants_keep_their_rows(scene: Scene) -> None:
    listed = listing(MANY[:20])
    with scene.applying():
        scene.put(page(MANY[:20]), page(MANY, owner="crm/accounts/south"))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
    assert scene.value("SELECT count(*) FROM accounts WHERE NOT _deleted") == 60


def test_no_sweep_before_every_page_is_there(scene: Scene) -> None:
    listed, late = listing(MANY[:20]), listing(MANY[20:39], number=2)
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed, late))
        scene.settle()
        assert len(living(scene)) == 40
        assert states(scene) == [("s1", "open", 0)]
        scene.put(late)
        scene.settle()
    assert living(scene) == ids(*range(39))


def test_what_changed_while_it_was_listed_is_not_absent(scene: Scene) -> None:
    listed = listing(MANY[:37])
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(
            begin("s1"),
            page([account(37, version=2)], number=2),
            page([account(38, lifecycle="odd")], number=3),  # quarantined, and there all the same
            listed,
            ended(listed),
        )
        scene.settle()
    assert living(scene) == ids(*range(39))


def test_an_unchanged_exact_row_seen_again_is_not_absent(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(kind="exact")
    listed = listing(MANY[:30])
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
        assert states(scene) == [("s1", "held", 0)]
        scene.put(page([MANY[35]], number=2))  # seen again, and nothing written
        scene.settle()
        with psycopg.connect(scene.lane.postgres, autocommit=True) as operator:
            assert release_sweep(operator, OWNER, "s1", by="op", note="checked") == 1
        scene.until("SELECT state FROM gapless.snapshot", "swept")
    assert living(scene) == ids(*range(30), 35)


def test_a_snapshot_that_is_over_leaves_the_keys_of_the_next(
    make_scene: Callable[..., Scene],
) -> None:
    """All in one batch, as after an outage of apply: pages are read before marks are judged."""
    scene = make_scene(kind="exact")  # a record that changes nothing leaves its row as it was
    first, second = listing(MANY), listing(MANY, "s2")
    half, rest = listing(MANY[:20], "s3"), listing(MANY[20:], "s3", number=2)
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
    scene.put(begin("s1"), first, ended(first), begin("s2"), second, ended(second))
    scene.put(begin("s3"), half)
    with scene.applying():
        scene.settle()
        assert states(scene) == [("s1", "swept", 0), ("s2", "swept", 0), ("s3", "open", 0)]
        scene.put(rest, ended(half, rest))
        scene.settle()
    assert states(scene)[-1] == ("s3", "swept", 0)
    assert len(living(scene)) == 40


def test_a_large_sweep_waits_for_an_operator(scene: Scene) -> None:
    listed = listing(MANY[:30])
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
        assert states(scene) == [("s1", "held", 0)]
        assert len(living(scene)) == 40
        with psycopg.connect(scene.lane.postgres, autocommit=True) as operator:
            assert release_sweep(operator, OWNER, "none", by="op", note="") == 0
            assert release_sweep(operator, OWNER, "s1", by="op", note="checked") == 1
        scene.until("SELECT state FROM gapless.snapshot", "swept")
    assert living(scene) == ids(*range(30))
    assert scene.value("SELECT count(*) FROM gapless.outbox WHERE effect = 'deleted'") == 10


def test_the_first_deletes_of_a_small_table_go(scene: Scene) -> None:
    listed = listing(MANY[:3])
    with scene.applying():
        scene.put(page(MANY[:5]))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
    assert states(scene) == [("s1", "swept", 2)]
    assert living(scene) == ids(*range(3))


def test_an_unreadable_key_withholds_the_sweep(scene: Scene) -> None:
    listed = listing([*MANY[:38], account(1, id=None)])
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
    assert len(living(scene)) == 40
    assert scene.rows("SELECT state, unreadable FROM gapless.snapshot") == [("kept", 1)]
    assert "readable key" in scene.value("SELECT note FROM gapless.snapshot")


def test_a_listing_that_can_shift_needs_a_second_one(scene: Scene) -> None:
    one, two = listing(MANY[:38]), listing([*MANY[:36], MANY[38]], "s2")
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), one, ended(one, stable=False))
        scene.settle()
        assert len(living(scene)) == 40
        scene.put(page([account(50)], number=2))  # between the two: one listing lacks it
        scene.put(begin("s2"), two, ended(two, stable=False))
        scene.settle()
    assert living(scene) == ids(*range(39), 50)
    assert states(scene) == [("s1", "kept", 0), ("s2", "swept", 1)]


def test_a_newer_snapshot_drops_one_that_never_ended(scene: Scene) -> None:
    one, two = listing(MANY[:10]), listing(MANY[:39], "s2")
    with scene.applying():
        scene.put(page(MANY))
        scene.settle()
        scene.put(begin("s1"), one, begin("s2"), two, ended(two), ended(one))
        scene.settle()
    assert states(scene) == [("s1", "dropped", 0), ("s2", "swept", 1)]
    assert living(scene) == ids(*range(39))
    assert scene.value("SELECT count(*) FROM gapless.mark WHERE state = 'pending'") == 0


def test_a_listed_lower_revision_wins(scene: Scene) -> None:
    listed = listing([account(1, version=1)])
    with scene.applying():
        scene.put(page([account(1, version=9)]))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
    assert scene.rows("SELECT source_revision, _deleted FROM accounts") == [(1, False)]


def test_nothing_observed_before_a_sweep_comes_back(scene: Scene) -> None:
    """Rule A, by way of an erasure that rewrites an old page."""
    old, listed = page([*MANY[:39], account(99, version=50)]), listing(MANY[:39])
    with scene.applying():
        offset = scene.put(old)[0]
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
        assert living(scene) == ids(*range(39))
        scene.put(msgspec.structs.replace(old, original_offset=offset))
        scene.settle()
    assert living(scene) == ids(*range(39))


def test_a_retry_below_the_sweep_is_superseded(scene: Scene) -> None:
    """Rule A, by way of a retry: the parent came after the note was gone at the source."""
    scene.db.execute("ALTER TABLE accounts ADD CHECK (balance < 100)")
    listed = listing(MANY[:39])
    with scene.applying():
        scene.put(page([*MANY[:39], account(99, balance="500")]))
        scene.settle()
        scene.put(begin("s1"), listed, ended(listed))
        scene.settle()
        scene.db.execute("ALTER TABLE accounts DROP CONSTRAINT accounts_balance_check")
        scene.db.execute("UPDATE gapless.exception SET state = 'retryable', due_at = now()")
        scene.until("SELECT state FROM gapless.exception", "resolved")
    assert living(scene) == ids(*range(39))
    assert scene.balance()["superseded"] == 1


def test_a_mapping_may_keep_absent_rows(scene: Scene) -> None:
    scene.define(2, **{"events:": "absent: keep\nevents:"})
    listed = listing(MANY[:38])
    scene.put(page(MANY), begin("s1"), listed, ended(listed))
    with scene.applying():
        scene.settle()
    assert len(living(scene)) == 40
    assert states(scene) == [("s1", "kept", 0)]


def test_a_new_owner_goes_on_with_an_open_snapshot(scene: Scene) -> None:
    one, two = listing(MANY[:20]), listing(MANY[20:39], number=2)
    with scene.applying():
        scene.put(page(MANY), begin("s1"), one)
        scene.settle()
    with scene.applying(worker="two"):
        scene.put(page([account(60)], number=5), two, ended(one, two))
        scene.settle()
    assert living(scene) == ids(*range(39), 60)


def test_a_new_mapping_version_goes_on_with_an_open_snapshot(scene: Scene) -> None:
    one, two = listing(MANY[:20]), listing(MANY[20:39], number=2)
    with scene.applying():
        scene.put(page(MANY), begin("s1"), one)
        scene.settle()
    scene.define(2, **{"numeric(20,2)": "numeric(20,2)\n  extra: text"})
    with scene.applying():
        scene.put(two, ended(one, two))
        scene.settle()
    assert living(scene) == ids(*range(39))
    assert states(scene) == [("s1", "swept", 1)]

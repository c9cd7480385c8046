"""Every record of every logged page ends in exactly one outcome, and the counts balance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import REGISTRY

from apply import straight
from apply.prefilter import Prefilter
from schemas.records import MissingRecord
from tests.integration.apply.scene import Scene, account, complete, page


def test_records_become_rows_with_their_lineage(scene: Scene) -> None:
    first = page([account(1), account(2)])
    offsets = scene.put(first, complete(first))
    with scene.applying():
        scene.settle()
    rows = scene.rows(
        "SELECT id, tenant_id, lifecycle, balance::text, source_revision, _offset, _index, _deleted"
        " FROM accounts ORDER BY id"
    )
    assert rows == [
        ("a-1", "north", "active", "10.50", 1, offsets[0], 0, False),
        ("a-2", "north", "active", "10.50", 1, offsets[0], 1, False),
    ]
    assert scene.balance() == {"applied": 2}
    assert scene.rows("SELECT state, pages, records, errors FROM gapless.coverage") == [
        ("complete", 1, 2, 0)
    ]


def test_duplicates_and_older_states_are_superseded(scene: Scene) -> None:
    scene.put(
        page([account(1, 5), account(1, 4), account(1, 5)]),
        page([account(1, 3), account(2)], number=2),
    )
    with scene.applying():
        scene.settle()
        scene.put(page([account(1, 2), account(1, 6)], number=3))
        scene.settle()
    assert scene.value("SELECT source_revision FROM accounts WHERE id = 'a-1'") == 6
    assert scene.balance() == {"applied": 3, "superseded": 4}


def test_a_tombstone_keeps_an_older_update_away(scene: Scene) -> None:
    scene.put(page([account(1, 1)]))
    with scene.applying():
        scene.settle()
        scene.put(page([account(1, 7, deleted=True)], number=2))
        scene.settle()
        scene.put(page([account(1, 6)], number=3))
        scene.settle()
    assert scene.rows("SELECT source_revision, _deleted FROM accounts") == [(7, True)]
    assert scene.balance() == {"applied": 2, "superseded": 1}


def test_bad_records_are_quarantined_alone_with_evidence(scene: Scene) -> None:
    broken = b'{"id": "a-9", "version": 1, "lifecycle": '
    first = page([account(1), account(2, lifecycle="odd"), broken, account(3, id=None), account(4)])
    offset = scene.put(first, complete(first))[0]
    with scene.applying():
        scene.settle()
    assert scene.balance() == {"applied": 2, "quarantined": 3}
    found = scene.rows(
        'SELECT "offset", index, reason, state, key, raw FROM gapless.exception ORDER BY index'
    )
    assert [row[:4] for row in found] == [
        (offset, 1, "unknown_value", "quarantined"),
        (offset, 2, "unreadable", "quarantined"),
        (offset, 3, "missing_key", "quarantined"),
    ]
    assert found[0][4] == {"id": "a-2", "tenant_id": "north"}
    assert found[1][5] == broken
    assert scene.rows("SELECT state, errors FROM gapless.coverage") == [("complete_with_errors", 3)]


def test_what_only_postgres_finds_is_isolated(scene: Scene) -> None:
    scene.db.execute("ALTER TABLE accounts ADD CHECK (balance < 100)")
    scene.db.execute("CREATE UNIQUE INDEX one_email ON accounts (email)")
    records = [account(number) for number in range(40)]
    records[7] = account(7, balance="500.00")
    records[23] = account(23, email="1@example.org")
    scene.put(page(records))
    with scene.applying():
        scene.settle()
    assert scene.balance() == {"applied": 38, "quarantined": 1, "retryable": 1}
    found = scene.rows("SELECT index, reason, state FROM gapless.exception ORDER BY index")
    assert found == [(7, "check", "quarantined"), (23, "unique", "retryable")]
    detail = scene.value("SELECT detail FROM gapless.exception WHERE index = 23")
    assert "one_email" in detail
    assert "1@example.org" not in detail
    # who holds the value gives it up, in whatever partition and whenever that is applied
    scene.put(page([account(1, 2, email="new@example.org")], number=2))
    with scene.applying():
        scene.settle()
        scene.db.execute("UPDATE gapless.exception SET due_at = now() WHERE index = 23")
        scene.until("SELECT state FROM gapless.exception WHERE index = 23", "resolved")
    assert scene.value("SELECT email FROM accounts WHERE id = 'a-23'") == "1@example.org"


def test_an_older_state_lands_when_its_newer_one_is_refused(scene: Scene) -> None:
    scene.db.execute("ALTER TABLE accounts ADD CHECK (balance < 100)")
    scene.put(page([account(1, 1), account(1, 2, balance="500"), account(2)]))
    with scene.applying():
        scene.settle()
    assert scene.value("SELECT source_revision FROM accounts WHERE id = 'a-1'") == 1
    assert scene.balance() == {"applied": 2, "quarantined": 1}


def test_a_deferred_constraint_fails_where_it_can_be_isolated(scene: Scene) -> None:
    scene.db.execute("ALTER TABLE accounts ADD UNIQUE (balance) DEFERRABLE INITIALLY DEFERRED")
    scene.put(page([account(1, balance="1"), account(2, balance="1"), account(3, balance="3")]))
    with scene.applying():
        scene.settle()
    assert scene.balance() == {"applied": 2, "retryable": 1}


def test_a_missing_parent_is_retried_until_it_is_there(scene: Scene) -> None:
    scene.db.execute("ALTER TABLE accounts ADD UNIQUE (id)")
    scene.db.execute("ALTER TABLE notes ADD FOREIGN KEY (account) REFERENCES accounts (id)")
    note = {"id": "n-1", "version": 1, "account": "a-1", "body": "hello"}
    first = page([note], owner="crm/notes/north")
    scene.put(first, complete(first))
    with scene.applying():
        scene.settle()
        assert scene.balance() == {"retryable": 1}
        assert scene.value("SELECT state FROM gapless.coverage") == "complete_with_errors"
        scene.put(page([account(1)]))
        scene.settle()
        scene.db.execute("UPDATE gapless.exception SET due_at = now()")
        scene.until("SELECT state FROM gapless.exception", "resolved")
    assert scene.value("SELECT body FROM notes") == "hello"
    assert scene.balance() == {"applied": 2}
    assert scene.rows("SELECT state, errors FROM gapless.coverage") == [("complete", 0)]


def test_streams_without_a_mapping_and_missing_slots_are_accounted_for(scene: Scene) -> None:
    gone = [
        MissingRecord(1, "erased", 100),
        MissingRecord(2, "oversized", 5_000_000, b"hash"),
    ]
    scene.put(
        page([{"any": 1}, b"", b""], owner="crm/unread/north", missing=gone),
        page([account(1), b"", b""], missing=gone),
        page([account(2)], plan="interval", number=2, owner="crm/accounts/south"),
    )
    with scene.applying():
        scene.settle()
    assert scene.balance() == {"applied": 2, "ignored": 1, "quarantined": 2, "erased": 2}
    assert scene.value("SELECT count(*) FROM gapless.page_ledger WHERE mapping_version = 0") == 1


def test_foreign_values_are_kept_as_evidence(scene: Scene) -> None:
    scene.put(("stray", b"not a record"), page([account(1)]), ("gone", None))
    with scene.applying():
        scene.settle()
    assert scene.balance() == {"applied": 1, "quarantined": 1}
    assert scene.value("SELECT raw FROM gapless.exception") == b"not a record"


def test_parts_of_one_page_have_indices_of_the_whole(scene: Scene) -> None:
    one = page([account(1), account(2)], part=1, parts=2)
    two = page([account(3), account(4, lifecycle="odd")], part=2, parts=2, first_index=2)
    scene.put(one, two, complete(one, two))
    with scene.applying():
        scene.settle()
    assert scene.rows("SELECT id, _index FROM accounts ORDER BY id") == [
        ("a-1", 0), ("a-2", 1), ("a-3", 2),
    ]  # fmt: skip
    assert scene.value("SELECT index FROM gapless.exception") == 3
    assert scene.rows("SELECT state, pages, records FROM gapless.coverage") == [
        ("complete_with_errors", 1, 4)
    ]


def test_events_tell_what_really_changed(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1)
    with scene.applying():
        for records in (
            [account(1, 1), account(2, 1)],
            [account(1, 1)],
            [account(1, 2, balance="99")],
            [account(1, 3, balance="99")],
            [account(1, 4, deleted=True)],
            [account(1, 5)],
        ):
            offset = scene.ends()[0]
            scene.put(page(records, number=offset + 1))
            scene.settle()
    found = scene.rows(
        "SELECT key, effect, type, payload->'row'->>'balance', payload->'row' ? 'email', payload->'changed'"
        " FROM gapless.outbox ORDER BY sequence"
    )
    assert found == [
        ('["a-1","north"]', "created", "account.opened", "10.50", False, None),
        ('["a-2","north"]', "created", "account.opened", "10.50", False, None),
        ('["a-1","north"]', "changed", "account.changed", "99.00", False, ["balance"]),
        ('["a-1","north"]', "deleted", "account.gone", "10.50", False, None),
        ('["a-1","north"]', "created", "account.opened", "10.50", False, None),
    ]


def _broken() -> float:
    return REGISTRY.get_sample_value("gapless_apply_broken_exact_revisions_total") or 0.0


@pytest.mark.parametrize("kind", ["coarse", "exact"])
def test_a_flood_of_older_states_is_superseded_before_it_is_sent(
    make_scene: Callable[..., Scene], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    split = Prefilter.split

    def counted(self: Prefilter, *given: Any) -> Any:
        found = split(self, *given)
        asked.append(len(found[1]))
        return found

    monkeypatch.setattr(Prefilter, "split", counted)
    scene = make_scene(kind=kind, partitions=1)
    with scene.applying():
        for number, version in enumerate((5, 4, 4, 3, 6), 1):
            scene.put(page([account(n, version) for n in range(300)], number=number))
            scene.settle()
        one_newer, broken = [account(n, 7 if n == 9 else 2) for n in range(300)], _broken()
        scene.put(page(one_newer, number=6))
        scene.settle()
        scene.put(page([*one_newer[:8], account(8, 6, balance="9"), *one_newer[9:]], number=7))
        scene.settle()
    assert _broken() - broken == (kind == "exact"), "counted where it is sent, once"
    again = 1 if kind == "coarse" else 0  # the same state again is a later observation of it
    assert scene.balance()["applied"] == 300 + 300 + 1 + 1 + again
    assert asked[0] == 300  # the first flood taught it
    assert scene.rows(
        "SELECT source_revision, count(*) FROM accounts GROUP BY 1 ORDER BY 1"
    ) == [(6, 299), (7, 1)]  # fmt: skip
    events = scene.rows("SELECT effect, count(*) FROM gapless.outbox GROUP BY 1 ORDER BY 1")
    assert events == [("changed", 1), ("created", 300)]  # nothing else that is mapped has changed


def test_new_rows_go_straight_into_the_table_and_others_never_do(
    make_scene: Callable[..., Scene],
    straight_tries: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = straight_tries
    monkeypatch.setattr(straight, "REST_BATCHES", 0)
    scene = make_scene(partitions=1)

    def put(number: int, versions: Mapping[int, int]) -> None:
        notes = [
            {"id": f"n-{at}", "version": version, "account": "a", "body": str(version)}
            for at, version in versions.items()
        ]
        scene.put(page(notes, owner="crm/notes/north", number=number))
        scene.settle()

    mixed = {at: 2 if at < 100 else 0 for at in range(200)} | dict.fromkeys(range(900, 950), 1)
    with scene.applying():
        put(1, dict.fromkeys(range(300), 1))
        assert tried == []
        put(2, dict.fromkeys(range(300, 600), 1))
        assert tried == [True]
        put(3, dict.fromkeys(range(600, 700), 1))  # too few to be worth it
        put(4, mixed)
        assert tried == [True, False]
        put(5, dict.fromkeys(range(1000, 1300), 1))
        put(6, dict.fromkeys(range(1300, 1600), 1))
        assert tried == [True, False], "one that failed asks for two batches of new rows"
        put(7, dict.fromkeys(range(1600, 1900), 1))
        assert tried == [True, False, True]
    assert scene.balance() == {"applied": 300 + 300 + 100 + 150 + 900, "superseded": 100}
    found = scene.rows("SELECT source_revision, body, count(*) FROM notes GROUP BY 1, 2 ORDER BY 1")
    assert found == [(1, "1", 1_550), (2, "2", 100)]
    [lineage] = scene.rows("SELECT count(DISTINCT (_offset, _index)), min(_index) FROM notes")
    assert lineage == (1_650, 0)

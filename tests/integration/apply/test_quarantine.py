"""What becomes of records in quarantine: merged, tried again, overtaken, decided about, let go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from apply import chores, ownership
from apply.claim import LIVE
from apply.evidence import expire
from apply.exception_states import TABLE, Event, State, sources
from apply.exceptions import Said, move
from apply.gaps import NothingHalted, accept_gap
from apply.requests import request
from apply.retry import Retries
from apply.same_record import Where
from apply.store import Store
from apply.tries import Due, Tried
from ops.deciding import About, decide, watch
from ops.relay import outbox
from schemas import failpoints
from tests.integration.apply.scene import Scene, account, complete, page

ODD: dict[str, Any] = {"lifecycle": "odd"}
CAN_BE_ODD = {"[active, closed]": "[active, closed, odd]"}
OPEN = (
    "SELECT index, state, sightings, reason FROM gapless.exception"
    " WHERE state IN ('quarantined', 'retryable') ORDER BY \"offset\", index"
)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner looks about every second, so that no test waits for it."""
    monkeypatch.setattr(chores, "_LOOK_S", 0.5)
    monkeypatch.setattr(ownership, "_HALTED_S", 0.2)


def states(scene: Scene) -> dict[str, int]:
    return dict(scene.rows("SELECT state, count(*) FROM gapless.exception GROUP BY state"))


def fitting(scene: Scene) -> None:
    """Outcomes and exceptions say the same of every record, as the audit demands."""
    expected = {4: ("quarantined", "repeated", "dismissed"), 5: ("retryable",)}
    known = {
        (row[0], row[1], row[2], row[3]): row[4]
        for row in scene.rows(
            'SELECT mapping_version, partition, "offset", index, state FROM gapless.exception'
        )
    }
    for version, partition, offset, outcomes in scene.rows(
        'SELECT mapping_version, partition, "offset", outcomes FROM gapless.page_ledger'
    ):
        for index, byte in enumerate(outcomes):
            state = known.pop((version, partition, offset, index), "resolved")
            assert state in expected.get(byte, ("resolved",)), (offset, index, byte, state)
    assert not known
    scene.balance()


@contextmanager
def decided(scene: Scene, action: str, **which: Any) -> Iterator[int]:
    """An operator's word; the number of exceptions that it concerned."""
    with psycopg.connect(scene.lane.postgres) as connection:
        now = datetime.now(UTC)
        yield len(request(connection, action, by="op", note="looked", now=now, **which))


def test_a_record_that_is_read_again_is_one_open_row_until_it_is_overtaken(scene: Scene) -> None:
    first = page([account(1, 3, **ODD), b"{broken", account(2)])
    again = [
        page([account(1, 3, **ODD), b"{broken"], pass_=f"p{number}", number=number)
        for number in (2, 3)
    ]
    scene.put(first, complete(first))
    with scene.applying():
        scene.settle()
        scene.put(*again)
        scene.settle()
        assert scene.rows(OPEN) == [
            (0, "quarantined", 3, "unknown_value"), (1, "quarantined", 3, "unreadable"),
        ]  # fmt: skip
        assert states(scene) == {"quarantined": 2, "repeated": 4}
        assert scene.balance() == {"applied": 1, "quarantined": 6}
        fitting(scene)
        # copies that are still to be published have their bytes, which other rows stand for now
        with outbox.connect(scene.lane.postgres, 30) as relay:
            ids = [
                row[0] for row in scene.rows("SELECT id FROM gapless.outbox WHERE key LIKE '%/%/%'")
            ]
            assert [one.body for one in outbox.lock(relay, ids)] == first.records[:2]
        assert scene.value("SELECT count(raw) FROM gapless.exception WHERE state = 'repeated'") == 0
        # an older state of the entity, observed later, takes nothing from what is known of it
        scene.put(page([account(1, 2)], number=4))
        scene.settle()
        scene.until("SELECT count(*) FROM accounts", 2)
        scene.put(page([account(2, 2)], number=5))
        scene.settle()
        assert scene.rows(OPEN)[0][1] == "quarantined"
        scene.put(page([account(1, 4)], number=6))
        scene.until(
            "SELECT count(*) FROM gapless.exception WHERE state = 'resolved'", 3, timeout_s=30
        )
    assert scene.rows(OPEN) == [(1, "quarantined", 3, "unreadable")]
    assert scene.balance() == {"applied": 4, "superseded": 3, "quarantined": 3}
    said = scene.value("SELECT DISTINCT decided_note FROM gapless.exception WHERE index = 0")
    assert said is not None
    fitting(scene)
    assert scene.value("SELECT errors FROM gapless.coverage") == 1


def test_a_new_mapping_tries_what_the_older_one_refused(scene: Scene) -> None:
    """All contents of a record are tried, so the newest revision wins, whichever was seen last."""
    scene.put(
        page([account(1, 5, **ODD), account(2, lifecycle="strange")]),
        page([account(1, 4, **ODD), account(3, **ODD, id=None)], number=2),
    )
    with scene.applying():
        scene.settle()
        assert states(scene) == {"quarantined": 3, "repeated": 1}
    scene.define(2, **CAN_BE_ODD)
    scene.db.execute("DELETE FROM gapless.outbox")
    _remap_and_die(scene)
    assert states(scene) == {"retryable": 4}
    fitting(scene)
    with scene.applying():
        scene.until("SELECT count(*) FROM gapless.exception WHERE state = 'resolved'", 2)
        scene.until("SELECT count(*) FROM gapless.exception WHERE tried_version = 3", 4)
        scene.until("SELECT count(*) FROM gapless.exception WHERE state = 'retryable'", 0)
    assert scene.rows("SELECT id, lifecycle, source_revision FROM accounts") == [("a-1", "odd", 5)]
    assert states(scene) == {"resolved": 2, "quarantined": 2}
    assert scene.balance() == {"applied": 1, "superseded": 1, "quarantined": 2}
    fitting(scene)
    history = scene.rows(
        "SELECT event, by, note FROM gapless.exception_history WHERE index = 1 ORDER BY id LIMIT 1"
    )
    assert history == [("new mapping", "apply", "version 2 is in use")]
    # events fire for what really changed, and a mapping that cannot cure it is not tried twice
    assert scene.rows("SELECT effect FROM gapless.outbox") == [("created",)]
    tried = "SELECT count(*) FROM gapless.exception_history"
    before = scene.value(tried)
    with scene.applying():
        scene.put(page([account(9)], number=3))
        scene.settle()
    assert scene.value(tried) == before


def _remap_and_die(scene: Scene) -> None:
    """As a worker that ends between what it decided and what it then tries."""
    mappings = scene.mappings()
    dying = Store(scene.lane.postgres, LIVE, "dying", mappings, hit=failpoints.none)
    dying.connect()
    dying.claim(scene.partition("crm/accounts/north"))
    assert Retries(mappings).remap(dying, datetime.now(UTC)) == 4
    dying.close()


def test_what_is_dismissed_while_it_is_mapped_stays_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.put(page([account(1, **ODD)]))
    with scene.applying():
        scene.settle()
    scene.define(2, **CAN_BE_ODD)
    mappings = scene.mappings()
    store = Store(scene.lane.postgres, LIVE, "slow", mappings, hit=failpoints.none)
    store.connect()
    store.claim(scene.partition("crm/accounts/north"))
    retries, now = Retries(mappings), datetime.now(UTC)
    assert retries.remap(store, now) == 1
    mapped = retries._mapped

    def slowly(due: Sequence[Due]) -> list[Tried]:
        found = mapped(due)
        if found:
            assert len(
                request(scene.db, "dismiss", by="op", note="no", now=now, reason=due[0].reason)
            )
        return found

    monkeypatch.setattr(retries, "_mapped", slowly)
    assert retries.do(store, now) == 0
    store.close()
    assert states(scene) == {"dismissed": 1}
    assert scene.value("SELECT count(*) FROM accounts") == 0
    fitting(scene)


def test_a_child_lands_by_itself_and_one_without_parent_ends_in_quarantine(scene: Scene) -> None:
    scene.db.execute("ALTER TABLE accounts ADD UNIQUE (id)")
    scene.db.execute("ALTER TABLE notes ADD FOREIGN KEY (account) REFERENCES accounts (id)")
    notes = [
        {"id": f"n-{number}", "version": 1, "account": f"a-{number}", "body": "x"}
        for number in (1, 2)
    ]
    scene.put(page(notes, owner="crm/notes/north"))
    with scene.applying():
        scene.settle()
        due = scene.rows("SELECT index, due_at - created_at FROM gapless.exception")
        assert all(timedelta(0) < wait < timedelta(seconds=30) for _, wait in due)
        assert scene.value("SELECT count(*) FROM gapless.outbox WHERE effect = 'quarantined'") == 0
        scene.put(page([account(1)]))
        scene.settle()
        # minutes later: one parent came, the other never does
        scene.db.execute("UPDATE gapless.exception SET due_at = now(), attempts = 9 - index")
        scene.until("SELECT state FROM gapless.exception WHERE index = 0", "resolved")
        scene.until("SELECT attempts FROM gapless.exception WHERE index = 1", 9)
        scene.db.execute("UPDATE gapless.exception SET due_at = now() WHERE index = 1")
        scene.until("SELECT state FROM gapless.exception WHERE index = 1", "quarantined")
        # read again: the parent is still missing, and it does not begin to wait anew
        scene.put(page(notes[1:], owner="crm/notes/north", number=2))
        scene.settle()
        assert scene.rows(OPEN) == [(0, "quarantined", 2, "foreign_key")]
        fitting(scene)
        scene.put(page([account(2)], number=2))
        scene.settle()
        asked = About({"mapping": "notes", "tenant": "north"})
        moved = decide(scene.lane.postgres, "retry", asked, by="op", note="looked")
        said = watch(scene.lane.postgres, moved, 30)
        assert said.splitlines()[0].startswith("1 record is due now")
        assert said.splitlines()[1:] == ["1 record is resolved."]
        scene.until("SELECT count(*) FROM gapless.exception WHERE state = 'resolved'", 3)
    assert scene.rows("SELECT id FROM notes ORDER BY id") == [("n-1",), ("n-2",)]
    events = scene.rows(
        "SELECT event, by FROM gapless.exception_history h WHERE EXISTS (SELECT FROM"
        ' gapless.exception e WHERE e."offset" = h."offset" AND e.index = 1 AND h.index = 1)'
        " ORDER BY id"
    )
    assert [event for event, _ in events] == ["failed", "exhausted", "superseded"]
    headers = scene.rows("SELECT headers FROM gapless.outbox WHERE effect = 'quarantined'")
    assert len(headers) == 1  # one copy, however often it is read and refused
    ((copied,),) = headers
    assert copied["__connect.errors.topic"] == scene.settings.observations
    assert copied["__connect.errors.stage"] == "TASK_PUT"
    assert copied["__connect.errors.exception.class.name"] == "gapless.foreign_key"
    fitting(scene)


def test_faults_halt_a_partition_until_somebody_decides(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1)
    scene.define(1)
    tolerant = scene.mappings()
    scene.define(1, **{"key: id\n": "key: id\nfaults: {max: 1}\n"})  # no new version is needed
    assert [one.version_id for one in scene.mappings()] == [one.version_id for one in tolerant]
    scene.put(
        page([account(1), account(2, **ODD)]),
        page([account(3)], number=2),
        page([account(4, **ODD), account(5)], number=3),
        page([account(6)], number=4),
    )
    halted = "SELECT halted->>'cause' FROM gapless.position"
    with scene.applying():
        scene.until(halted, "record_faults")
        assert scene.value("SELECT next_offset_to_apply FROM gapless.position") == 3
        assert scene.rows("SELECT id FROM accounts ORDER BY id") == [("a-1",), ("a-3",), ("a-5",)]
        assert len(scene.rows(OPEN)) == 2
    with scene.applying():  # another worker finds it as it was left
        with decided(scene, "dismiss", partition=0, offset=0, index=1) as number:
            assert number == 1
        scene.until("SELECT count(*) FROM accounts", 4)
        # what was dismissed stays so; the very same record halts nobody again
        scene.put(page([account(2, **ODD), account(7)], number=5), page([account(8)], number=6))
        scene.settle()
        assert states(scene) == {"dismissed": 2, "quarantined": 1}
        scene.put(page([account(2, 2, **ODD)], number=7), page([account(9)], number=8))
        scene.until(halted, "record_faults")
        fitting(scene)
    with pytest.raises(NothingHalted, match="nothing of partition 0 is lost"):
        accept_gap(scene.settings, 0, by="op", note="no", now=datetime.now(UTC))
    scene.define(2, **CAN_BE_ODD, **{"key: id\n": "key: id\nfaults: halt\n"})
    with scene.applying():  # and a new mapping cures what stopped it
        scene.settle()
        scene.until("SELECT count(*) FROM accounts WHERE lifecycle = 'odd'", 2)
    assert scene.value(halted) is None
    fitting(scene)


def test_every_transition_on_postgres(scene: Scene) -> None:
    """Each state under each event: the row, the ledger's byte and the history follow the table."""
    scene.put(page([account(1, **ODD)]))
    with scene.applying():
        scene.settle()
    ((version, partition, offset),) = scene.rows(
        'SELECT mapping_version, partition, "offset" FROM gapless.exception'
    )
    where = Where(version, partition, 0, offset, 0)
    said = Said(datetime.now(UTC), "op", "walk")
    for state in set(State) - {State.GONE}:
        for event in set(Event) - {Event.EXPIRE}:
            scene.db.execute("UPDATE gapless.exception SET state = %s", (state,))
            scene.db.execute("DELETE FROM gapless.exception_history")
            moved = move(scene.db, event, [where], said)
            after = TABLE[state][event]
            assert scene.value("SELECT state FROM gapless.exception") == (after or state)
            assert [one.before for one in moved] == ([state] if after else [])
            told = event not in (Event.REPEAT, Event.KNOWN)
            wanted = [(event.value, after.value)] if after and told else []
            assert scene.rows("SELECT event, state FROM gapless.exception_history") == wanted
            if after:
                fitting(scene)


def test_evidence_goes_when_it_is_old_and_decided(scene: Scene) -> None:
    scene.put(page([account(number, **ODD) for number in range(4)]))
    with scene.applying():
        scene.settle()
    long_ago = datetime.now(UTC) - timedelta(days=91)
    for index, state in enumerate((State.RESOLVED, State.DISMISSED)):
        scene.db.execute(
            "UPDATE gapless.exception SET state = %s, decided_at = %s WHERE index = %s",
            (state, long_ago, index),
        )
    scene.db.execute("UPDATE gapless.exception SET decided_at = %s WHERE index = 2", (long_ago,))
    numbers, mappings = [0, 1], scene.mappings()
    now = datetime.now(UTC)
    assert expire(scene.db, numbers, mappings, now - timedelta(days=2)) == 0
    assert expire(scene.db, numbers, mappings, now) == 2
    assert expire(scene.db, numbers, mappings, now) == 0
    assert scene.rows(
        "SELECT index, state, raw IS NULL, key IS NULL FROM gapless.exception ORDER BY index"
    ) == [(1, "dismissed", True, True), (2, "quarantined", False, False),
          (3, "quarantined", False, False)]  # fmt: skip
    assert sources(Event.EXPIRE) == (State.RESOLVED, State.DISMISSED)

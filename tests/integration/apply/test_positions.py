"""The claim fences every batch: whoever was replaced changes nothing and steps down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import psycopg
import pytest

from apply.batch import Batch, Part
from apply.claim import LIVE
from apply.decode import Decoder
from apply.faults import SinkFault
from apply.listings import Listings
from apply.report import Lost
from apply.store import Store
from apply.versions import by_stream
from ops.facts.log import mirrored
from schemas import codec, keys
from schemas.failpoints import none
from schemas.log.pause import Pause
from schemas.log.reader import LogRecord
from tests.integration.apply.scene import Scene, account, page
from tests.waiting import wait_until

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Hits:
    """A failpoint function that can wait or raise at one name."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fail: str | None = None
        self.hold: str | None = None
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if name == self.hold:
            self.hold = None
            self.reached.set()
            assert self.go.wait(30)
        if name == self.fail:
            self.fail = None
            raise ConnectionResetError(name)


def store(scene: Scene, owner: str, hit: Callable[[str], None] = none) -> Store:
    found = Store(scene.lane.postgres, LIVE, owner, scene.mappings(), hit=hit)
    found.connect()
    return found


def batch(scene: Scene, held: Store, *numbers: int, partition: int = 0) -> Batch:
    """A batch that follows on the store's position, as the reading thread would cut it."""
    position = held.positions[partition]
    observation = page([account(number) for number in numbers], number=position.next_offset + 1)
    record = LogRecord(
        partition, position.next_offset, keys.page_key(observation), codec.encode(observation), 0, 0
    )
    ids = {"crm/accounts/north": 1}
    scene.db.execute(
        "INSERT INTO gapless.partition_id (text, source, stream, tenant, partition)"
        " VALUES ('crm/accounts/north', 'crm', 'accounts', 'north', 0) ON CONFLICT DO NOTHING"
    )
    decoder = Decoder(by_stream(scene.mappings()), lambda text, _: ids[text], unmapped=True)
    work = decoder.decode(record, 0, Listings())
    part = Part(partition, 1, 0, record.offset, record.offset + 1, 0, record.offset, record.key, 0)
    part.pages.append(work)  # type: ignore[arg-type]
    return Batch([part], len(numbers), 1)


def test_a_zombies_batch_changes_nothing(scene: Scene) -> None:
    old = store(scene, "old")
    old.claim(0)
    late = batch(scene, old, 1, 2)
    new = store(scene, "new")
    new.claim(0)
    with pytest.raises(Lost) as lost:
        old.write(late, NOW)
    assert lost.value.partitions == {0}
    assert scene.value("SELECT count(*) FROM accounts") == 0
    new.write(batch(scene, new, 3), NOW)
    assert scene.rows("SELECT id FROM accounts") == [("a-3",)]
    assert scene.rows("SELECT claim, owner, next_offset_to_apply FROM gapless.position") == [
        (2, "new", 1)
    ]


def test_a_backend_that_keeps_the_row_locked_is_ended(scene: Scene) -> None:
    hits = Hits()
    hits.hold = "apply.after_compare_and_set"
    old = store(scene, "old", hits)
    old.claim(0)
    late = batch(scene, old, 1)
    raised: list[BaseException] = []

    def write() -> None:
        try:
            old.write(late, NOW)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert hits.reached.wait(10)
    new = store(scene, "new")
    assert new.claim(0).claim == 2
    hits.go.set()
    thread.join(10)
    assert isinstance(raised[0], SinkFault)
    assert old.connect() == {0}  # it steps down
    assert scene.value("SELECT count(*) FROM accounts") == 0


def test_a_lost_partition_is_dropped_and_the_rest_lands(scene: Scene) -> None:
    one = store(scene, "one")
    one.claim(0)
    one.claim(1)
    both = Batch([batch(scene, one, 1).parts[0], batch(scene, one, 2, partition=1).parts[0]], 2, 2)
    store(scene, "two").claim(1)
    with pytest.raises(Lost) as lost:
        one.write(both, NOW)
    one.write(both.without(lost.value.partitions), NOW)
    assert scene.rows("SELECT id FROM accounts") == [("a-1",)]


@pytest.mark.parametrize(
    ("name", "landed"),
    [
        ("apply.after_compare_and_set", False),
        ("apply.after_first_upsert", False),
        ("apply.after_ledger", False),
        ("apply.before_commit", False),
        ("apply.answer_lost", True),
        ("apply.after_commit", True),
    ],
)
def test_after_a_fault_the_position_says_what_happened(
    scene: Scene, name: str, landed: bool
) -> None:
    hits = Hits()
    held = store(scene, "one", hits)
    held.claim(0)
    work = batch(scene, held, 1)
    hits.fail = name
    with pytest.raises(SinkFault):
        held.write(work, NOW)
    assert held.connect() == frozenset()
    assert held.positions[0].next_offset == (1 if landed else 0)
    if not landed:
        held.write(work, NOW)
    assert scene.balance() == {"applied": 1}


def test_a_released_position_leaves_no_backend_to_end(scene: Scene) -> None:
    held = store(scene, "one")
    held.claim(0)
    held.release([0])
    assert scene.rows("SELECT owner, backend_pid FROM gapless.position") == [(None, None)]


def test_a_row_of_another_partition_id_is_a_record_fault(scene: Scene) -> None:
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
        scene.db.execute("UPDATE accounts SET _partition_id = 999")
        scene.put(page([account(1, 2), account(2)], number=2))
        scene.settle()
    assert scene.value("SELECT reason FROM gapless.exception") == "foreign_owner"
    assert scene.balance() == {"applied": 2, "quarantined": 1}


def test_two_workers_share_and_one_takes_over(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=4)
    tenants = ("north", "south", "harbour")
    with scene.applying(worker="one"):
        with scene.applying(worker="two"):
            for number in range(1, 6):
                scene.put(
                    *(
                        page([account(number)], owner=f"crm/accounts/{tenant}", number=number)
                        for tenant in tenants
                    )
                )
            scene.settle()
        scene.put(*(page([account(9)], owner=f"crm/accounts/{t}", number=9) for t in tenants))
        scene.settle()
    assert scene.balance() == {"applied": 18}
    assert scene.value("SELECT count(*) FROM accounts") == 18


def test_mirrored_offsets_follow_the_sink(scene: Scene) -> None:
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
    found = mirrored(scene.settings, scene.settings.partitions)
    number = scene.partition("crm/accounts/north")
    assert found[number].offset == scene.value(
        "SELECT next_offset_to_apply FROM gapless.position WHERE partition = %s", number
    )


def test_kafka_hears_why_apply_waits_and_that_it_goes_on(scene: Scene) -> None:
    number = scene.partition("crm/accounts/north")

    def pause() -> Pause | None:
        found = mirrored(scene.settings, scene.settings.partitions).get(number)
        return found.pause if found else None

    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
        scene.db.execute("ALTER TABLE accounts RENAME COLUMN balance TO other")
        scene.put(page([account(2)], number=2))
        wait_until(lambda: pause() is not None, 30, "the note in Kafka")
        said = pause()
        assert said is not None
        assert (said.reason, said.worker) == ("missing_column", "one")
        scene.db.execute("ALTER TABLE accounts RENAME COLUMN other TO balance")
        scene.settle()
        wait_until(lambda: pause() is None, 30, "the note to be taken back")


def test_a_refused_start_says_what_to_do(scene: Scene) -> None:
    from apply.service import run

    with psycopg.connect(scene.lane.postgres, autocommit=True) as connection:
        connection.execute("UPDATE gapless.mapping_version SET hash = 'other'")
    assert run(scene.settings, scene.definitions) == 4
    scene.db.execute("DROP SCHEMA gapless CASCADE")
    assert run(scene.settings, scene.definitions) == 4

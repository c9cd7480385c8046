"""Trouble of the sink or of the log: the stage pauses or halts, and no record pays for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from apply.gaps import NothingHalted, accept_gap
from apply.service import serve
from ops.stack import Stack
from tests.conftest import Lane
from tests.integration.apply.scene import Scene, account, complete, page
from tests.waiting import wait_until

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HALTED = "SELECT halted->>'cause' FROM gapless.position WHERE partition = 0"


def test_a_backend_that_is_ended_mid_way_costs_nothing(scene: Scene) -> None:
    ended = threading.Event()

    def hit(name: str) -> None:
        if name == "apply.after_last_upsert" and not ended.is_set():
            ended.set()
            with psycopg.connect(scene.lane.postgres, autocommit=True) as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(backend_pid) FROM gapless.position"
                    " WHERE backend_pid IS NOT NULL"
                )

    scene.put(page([account(1)]))
    with scene.applying(hit=hit):
        scene.settle()
    assert ended.is_set()
    assert scene.balance() == {"applied": 1}


@pytest.mark.parametrize("name", ["apply.after_poll", "apply.after_claim", "apply.answer_lost",
                                  "apply.after_commit", "apply.after_kafka_offset"])  # fmt: skip
def test_an_exception_anywhere_is_survived(scene: Scene, name: str) -> None:
    raised = threading.Event()

    def hit(at: str) -> None:
        if at == name and not raised.is_set():
            raised.set()
            raise RuntimeError(name)

    scene.put(page([account(1)]), page([account(2)], number=2))
    with scene.applying(hit=hit):
        scene.settle()
        scene.put(page([account(3)], number=3))
        scene.settle()
    assert raised.is_set()
    assert scene.balance() == {"applied": 3}


def test_a_missing_column_pauses_and_quarantines_nothing(scene: Scene) -> None:
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
        scene.db.execute("ALTER TABLE accounts RENAME COLUMN balance TO other")
        scene.put(page([account(2)], number=2))
        wait_until(lambda: _paused() is not None, 60, "apply says that it waits")
        assert _paused() == "missing_column"
        assert scene.value("SELECT count(*) FROM gapless.exception") == 0
        scene.db.execute("ALTER TABLE accounts RENAME COLUMN other TO balance")
        scene.settle()
        wait_until(lambda: _paused() is None, 60, "apply goes on")
    assert scene.balance() == {"applied": 2}


def _paused() -> str | None:
    from apply.metrics import PAUSED

    found = [s.labels["reason"] for m in PAUSED.collect() for s in m.samples if s.value]
    return found[0] if found else None


def test_one_row_that_somebody_keeps_locked_holds_up_nobody(scene: Scene) -> None:
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
        with psycopg.connect(scene.lane.postgres) as other:
            other.execute("SET lock_timeout = 0")
            other.execute("SELECT FROM accounts WHERE id = 'a-1' FOR UPDATE")
            scene.put(page([account(number, 2) for number in range(6)], number=2))
            scene.settle()
            assert scene.balance() == {"applied": 6, "retryable": 1}
            assert scene.value("SELECT reason FROM gapless.exception") == "timed_out"
            # nor when it is tried again: the row is to blame, so the sink is not waited for
            scene.db.execute("UPDATE gapless.exception SET due_at = now()")
            scene.until("SELECT attempts FROM gapless.exception WHERE due_at > now()", 1)
            assert scene.value("SELECT state FROM gapless.exception") == "retryable"
            assert _paused() is None
        scene.db.execute("UPDATE gapless.exception SET due_at = now()")
        scene.until("SELECT state FROM gapless.exception", "resolved")
    assert scene.balance() == {"applied": 7}


def test_what_retention_deleted_halts_until_it_is_accepted(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(partitions=1)
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
    scene.put(page([account(2)], number=2), page([account(3)], number=3))
    _delete_before(scene, 2)
    with scene.applying():
        scene.until(HALTED, "deleted_by_retention")
        assert scene.rows("SELECT cause, from_text, to_text, accepted_by FROM gapless.gap") == [
            ("deleted_by_retention", "1", "2", None)
        ]
        found = accept_gap(scene.settings, 0, by="op", note="known", now=NOW)
        assert (found.generation, found.next_offset) == (0, 2)
        scene.settle()
        with pytest.raises(NothingHalted):
            accept_gap(scene.settings, 0, by="op", note="again", now=NOW)
    assert scene.rows("SELECT id FROM accounts ORDER BY id") == [("a-1",), ("a-3",)]
    assert scene.value("SELECT accepted_by FROM gapless.gap") == "op"


def _delete_before(scene: Scene, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": scene.lane.kafka})
    where = TopicPartition(scene.settings.observations, 0, offset)
    # only topics with the policy delete allow this
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    policy = ConfigEntry(
        "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(
        ResourceType.TOPIC, scene.settings.observations, incremental_configs=[policy]
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    admin.delete_records([where])[where].result(10)


def test_a_topic_made_anew_halts_and_goes_on_as_a_new_generation(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(partitions=1)
    scene.put(page([account(1, 5)]), page([account(2)], number=2))
    with scene.applying():
        scene.settle()
    topic = scene.settings.observations
    admin = AdminClient({"bootstrap.servers": scene.lane.kafka, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    _create_again(admin, topic)
    scene.put(page([account(1, 5, balance="77")], pass_="new"), page([account(3)], number=2))
    with scene.applying():
        scene.until(HALTED, "topic_recreated")
        found = accept_gap(scene.settings, 0, by="op", note="disaster", now=NOW)
        assert (found.generation, found.next_offset) == (1, 0)
        scene.settle()
    rows = scene.rows("SELECT id, balance::text, _generation FROM accounts ORDER BY id")
    assert rows == [("a-1", "77.00", 1), ("a-2", "10.50", 0), ("a-3", "10.50", 1)]


def test_a_topic_made_anew_under_a_running_worker_halts_it_too(
    make_scene: Callable[..., Scene],
) -> None:
    """Its positions mean nothing there: once the new topic is longer, they would skip its start."""
    scene = make_scene(partitions=1)
    scene.put(page([account(1)]), page([account(2)], number=2))
    topic = scene.settings.observations
    admin = AdminClient({"bootstrap.servers": scene.lane.kafka, "log_level": 0})
    with scene.applying():
        scene.settle()
        admin.delete_topics([topic])[topic].result(30)
        _create_again(admin, topic)
        scene.put(*(page([account(n)], number=n, pass_="new") for n in range(1, 6)))
        scene.until(HALTED, "topic_recreated")
        accept_gap(scene.settings, 0, by="op", note="disaster", now=NOW)
        scene.settle()
    assert scene.value("SELECT count(*) FROM accounts WHERE _generation = 1") == 5


def _create_again(admin: AdminClient, topic: str) -> None:
    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        except Exception as error:
            assert "TOPIC_ALREADY_EXISTS" in str(error), error
            return False
        return True

    wait_until(created, 30, "the topic can be created again")


def test_a_log_that_was_cut_resumes_where_it_agrees(make_scene: Callable[..., Scene]) -> None:
    """A cut log, as apply sees one: the ledger knows pages that the log no longer has."""
    scene = make_scene(partitions=1)
    pages = [page([account(number)], number=number) for number in range(1, 6)]
    scene.put(*pages)
    with scene.applying():
        scene.settle()
    # as if two more pages had been applied, and then cut and written over
    scene.db.execute(
        'INSERT INTO gapless.page_ledger SELECT mapping_version, partition, generation, "offset" + 2,'
        " partition_id, plan, scope, 'lost', page, part, parts, original_offset, records, counts,"
        ' outcomes, fetched_at FROM gapless.page_ledger WHERE "offset" >= 3'
    )
    scene.db.execute(
        "UPDATE gapless.position SET next_offset_to_apply = 7, last_offset = 6, last_key = 'lost'"
    )
    scene.put(*(page([account(n)], number=n) for n in range(6, 9)))
    with scene.applying():
        scene.until(HALTED, "truncated")
        found = accept_gap(scene.settings, 0, by="op", note="unclean stop", now=NOW)
        assert (found.generation, found.next_offset) == (1, 5)
        scene.settle()
    assert scene.value("SELECT count(*) FROM accounts") == 8


def test_an_end_below_the_position_halts(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(partitions=1)
    scene.put(page([account(1)]))
    with scene.applying():
        scene.settle()
    scene.db.execute("UPDATE gapless.position SET next_offset_to_apply = 50, last_offset = 49")
    with scene.applying():
        scene.until(HALTED, "truncated")


def test_a_value_of_a_newer_schema_waits_and_is_not_skipped(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(partitions=1)
    scene.put(
        page([account(1)]), ("k", b"\xc3\x01" + b"\x07" * 8 + b"body"), page([account(2)], number=2)
    )
    with scene.applying():
        scene.until(HALTED, "unknown_schema")
        assert scene.value("SELECT next_offset_to_apply FROM gapless.position") == 1
    with scene.applying():
        scene.until(HALTED, "unknown_schema")
    assert scene.balance() == {"applied": 1}


def test_postgres_may_go_away_and_come_back(own_stack: Stack, tmp_path: Path) -> None:
    addresses = own_stack.start()
    lane = Lane(addresses.kafka, addresses.postgres, "lane.", {})
    scene = Scene(lane, tmp_path, partitions=1)
    first = page([account(1)])
    scene.put(first, complete(first))
    with scene.applying():
        scene.settle()
        own_stack.postgres.kill()
        for number in range(2, 30):
            one = page([account(number), account("bad", lifecycle="odd")], number=number)
            scene.put(one, complete(one))
        wait_until(lambda: _paused() is not None, 60, "apply says that it waits")
        own_stack.postgres.start()
        scene.db = psycopg.connect(addresses.postgres, autocommit=True)
        scene.settle()
    assert scene.balance() == {"applied": 29, "quarantined": 28}
    assert scene.value("SELECT count(*) FROM gapless.mark WHERE state = 'pending'") == 0


def test_an_unreachable_postgres_is_waited_for(own_stack: Stack, tmp_path: Path) -> None:
    addresses = own_stack.start()
    scene = Scene(Lane(addresses.kafka, addresses.postgres, "lane.", {}), tmp_path, partitions=1)
    scene.put(page([account(1)]))
    own_stack.postgres.stop()
    stop, codes = threading.Event(), list[int]()
    thread = threading.Thread(
        target=lambda: codes.append(serve(scene.settings, scene.definitions, stop)), daemon=True
    )
    thread.start()
    wait_until(lambda: _paused() == "unreachable", 60, "apply says that it waits")
    own_stack.postgres.start()
    scene.db = psycopg.connect(addresses.postgres, autocommit=True)
    scene.settle()
    stop.set()
    thread.join(30)
    assert codes == [0]

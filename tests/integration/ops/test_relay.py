"""The relay on real servers: order per key, dead letters, two at once, the same id every time."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition
from psycopg.types.json import Jsonb

from apply.copies import Copies
from apply.same_record import Where
from ops.relay import outbox
from ops.relay.answers import ReceiverAway
from ops.relay.decisions import decide
from ops.relay.service import Relay
from schemas.settings import Settings
from tests.integration.ops.verbs import read, run
from tests.integration.ops.written import Deployment
from tests.proxy import Proxy
from tests.waiting import wait_until

PLAIN = """
SELECT id FROM (
  SELECT DISTINCT ON (mapping, key) * FROM gapless.outbox WHERE state IN ('unsent', 'dead')
  ORDER BY mapping, key, id) head
WHERE state = 'unsent' AND due_at <= now() AND CASE WHEN %(mapping)s::text IS NULL
  THEN topic IS NOT NULL ELSE topic IS NULL AND mapping = %(mapping)s END ORDER BY mapping, key"""
QUICK = {"message_timeout_ms": 2_000}


def put(deployment: Deployment, key: str, sequence: int, topic: str | None = None) -> int:
    with deployment.database() as db:
        row = db.execute(
            "INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic,"
            " idempotency_key, payload) VALUES ('orders', %s, %s, 'changed', 'order.changed', %s,"
            " %s, %s) RETURNING id",
            (
                key, sequence, topic or deployment.settings.events, f"{key}/{sequence}",
                Jsonb({"key": key, "sequence": sequence}),
            ),
        ).fetchone()  # fmt: skip
    assert row is not None
    return int(row[0])


def published(deployment: Deployment) -> list[dict[str, str]]:
    """Headers of all events in the topic, and their value as Python shows it, each partition in order."""
    found = messages(deployment, deployment.settings.events)
    return [headers | {"value": repr(value)} for headers, value in found]


def messages(deployment: Deployment, topic: str) -> list[tuple[dict[str, str], bytes | None]]:
    """Headers and value of everything in a topic, each partition in order."""
    settings = deployment.settings
    consumer = Consumer(
        {"bootstrap.servers": settings.kafka, "group.id": "t", "enable.auto.commit": False}
    )
    found = []
    try:
        for number in range(settings.partitions):
            where = TopicPartition(topic, number, 0)
            ends = consumer.get_watermark_offsets(where, 10)
            assert ends is not None
            consumer.assign([where])
            left = ends[1]
            while left:
                for message in consumer.consume(left, 1.0):
                    assert message.error() is None
                    headers = message.headers()
                    assert isinstance(headers, list)
                    named = {n: v.decode() for n, v in headers if isinstance(v, bytes)}
                    value = message.value()
                    assert value is None or isinstance(value, bytes)
                    found.append((named, value))
                    left -= 1
    finally:
        consumer.close()
    return found


def once(settings: Settings) -> None:
    Relay(settings).run(threading.Event(), once=True)


def states(deployment: Deployment) -> dict[int, str]:
    with deployment.database() as db:
        return dict(db.execute("SELECT id, state FROM gapless.outbox ORDER BY id").fetchall())


def test_events_of_a_key_come_in_order_as_cloudevents(deployment: Deployment) -> None:
    for sequence in range(1, 6):
        for key in ("a", "b"):
            put(deployment, key, sequence)
    done = run(deployment.environment, "relay", "--once")
    assert done.returncode == 0, done.stderr
    by_key: dict[str, list[int]] = defaultdict(list)
    for headers in published(deployment):
        by_key[headers["ce_subject"]].append(int(headers["ce_sequence"]))
        assert headers["ce_type"] == "order.changed"
        assert headers["ce_id"] == f"{headers['ce_subject']}/{headers['ce_sequence']}"
        assert headers["ce_source"] == "gapless/orders"
        assert headers["ce_specversion"] == "1.0"
    assert by_key == {"a": [1, 2, 3, 4, 5], "b": [1, 2, 3, 4, 5]}
    assert set(states(deployment).values()) == {"sent"}


def test_only_the_oldest_unsent_event_of_a_key_is_eligible(deployment: Deployment) -> None:
    first, second = put(deployment, "a", 1), put(deployment, "a", 2)
    with deployment.database() as db:
        db.execute(
            "UPDATE gapless.outbox SET due_at = now() + interval '1 h' WHERE id = %s", (first,)
        )
    once(deployment.settings)
    assert states(deployment) == {first: "unsent", second: "unsent"}


def test_a_dead_event_holds_up_its_key_until_somebody_decides(deployment: Deployment) -> None:
    bad = put(deployment, "a", 1, topic=f"{deployment.lane.prefix}no-such-topic")
    behind, other = put(deployment, "a", 2), put(deployment, "b", 1)
    with deployment.database() as db:
        db.execute("UPDATE gapless.outbox SET attempts = 9 WHERE id = %s", (bad,))
    once(deployment.settings)
    assert states(deployment) == {bad: "dead", behind: "unsent", other: "sent"}
    (row, _) = read(deployment.environment, "events", "list")
    assert (row["id"], row["state"], row["attempts"]) == (bad, "dead", 10)
    found = read(deployment.environment, "status")
    assert found["dead_events"] == 1
    assert "dead events" in {trouble["kind"] for trouble in found["troubles"]}
    assert run(deployment.environment, "events", "skip", str(bad)).returncode == 2
    assert run(deployment.environment, "events", "skip", str(behind), "--note", "x").returncode == 1
    done = run(deployment.environment, "events", "skip", str(bad), "--note", "topic is gone")
    assert done.returncode == 0, done.stderr
    once(deployment.settings)
    assert states(deployment) == {bad: "skipped", behind: "sent", other: "sent"}


def test_a_dead_event_can_be_tried_again(deployment: Deployment) -> None:
    event = put(deployment, "a", 1)
    with deployment.database() as db:
        db.execute("UPDATE gapless.outbox SET state = 'dead', attempts = 10")
        assert decide(db, "retry", event, by="me", note="")
        assert not decide(db, "retry", event, by="me", note="")
    once(deployment.settings)
    assert states(deployment) == {event: "sent"}


def test_two_relays_share_the_work_and_keep_the_order(deployment: Deployment) -> None:
    for sequence in range(1, 9):
        for key in "abcdefgh":
            put(deployment, key, sequence)
    stop = threading.Event()
    threads = [
        threading.Thread(target=Relay(deployment.settings).run, args=(stop,)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    try:
        with deployment.database() as db:
            for _ in range(600):
                left = db.execute("SELECT count(*) FROM gapless.outbox WHERE state = 'unsent'")
                row = left.fetchone()
                if row == (0,):
                    break
                stop.wait(0.05)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    by_key: dict[str, list[int]] = defaultdict(list)
    for headers in published(deployment):
        by_key[headers["ce_subject"]].append(int(headers["ce_sequence"]))
    assert dict(by_key) == {key: list(range(1, 9)) for key in "abcdefgh"}


def test_an_event_published_twice_has_the_same_id(deployment: Deployment) -> None:
    put(deployment, "a", 1)
    once(deployment.settings)
    with deployment.database() as db:  # as after a crash between Kafka and Postgres
        db.execute("UPDATE gapless.outbox SET state = 'unsent', sent_at = NULL")
    once(deployment.settings)
    first, second = published(deployment)
    assert first["ce_id"] == second["ce_id"] == "a/1"


def test_headers_and_a_value_of_the_row_are_sent_as_they_are(deployment: Deployment) -> None:
    event = put(deployment, "3/17/0", 1)
    with deployment.database() as db:
        db.execute(
            "UPDATE gapless.outbox SET effect = 'quarantined', value = %s, headers = %s WHERE id = %s",
            (
                b"\xff{raw",
                Jsonb({"__connect.errors.topic": "gapless.observations", "content-type": "x/y"}),
                event,
            ),
        )
    once(deployment.settings)
    (headers,) = published(deployment)
    assert headers["__connect.errors.topic"] == "gapless.observations"
    assert (headers["content-type"], headers["value"]) == ("x/y", repr(b"\xff{raw"))


def test_heads_are_what_a_plain_reading_of_the_outbox_says(deployment: Deployment) -> None:
    """The walk along the indexes against the definition: the oldest event that is not done."""
    chance = random.Random(5)
    rows = [
        (
            chance.choice(("orders", "refunds")), f"k{chance.randrange(60)}", number,
            chance.choice(("t", None)), str(number),
            chance.choice(("unsent", "unsent", "sent", "dead", "skipped")), chance.choice((0, 0, 1)),
        )
        for number in range(400)
    ]  # fmt: skip
    with deployment.database() as db:
        db.cursor().executemany(
            "INSERT INTO gapless.outbox (mapping, key, sequence, effect, type, topic,"
            " idempotency_key, payload, state, due_at) VALUES"
            " (%s, %s, %s, 'changed', 't', %s, %s, '{}', %s, now() + %s * interval '1 h')",
            rows,
        )
        db.execute("ANALYZE gapless.outbox")
    with closing(outbox.connect(deployment.settings.postgres, 60)) as connection:
        for mapping in (None, "orders", "refunds"):
            plain = connection.execute(PLAIN, {"mapping": mapping})
            expected = [row["id"] for row in plain]
            assert len(expected) > 5
            found: list[int] = []
            after, most = None, 7
            while True:
                heads = outbox.heads(connection, mapping, after, most)
                found += [head.id for head in heads if head.due]
                if len(heads) < most:
                    break
                after = (heads[-1].mapping, heads[-1].key)
            assert found == expected


def test_a_link_that_keeps_open_and_moves_nothing_is_given_up(deployment: Deployment) -> None:
    silenced, stop = threading.Event(), threading.Event()
    with Proxy(deployment.settings.postgres) as proxy:

        def hit(name: str) -> None:
            if name == "relay.after_publish" and not silenced.is_set():
                assert proxy.silence()
                silenced.set()

        settings = deployment.settings.model_copy(update={"postgres": proxy.address, **QUICK})
        put(deployment, "a", 1)
        thread = threading.Thread(target=Relay(settings, hit=hit).run, args=(stop,))
        thread.start()
        try:
            assert silenced.wait(30)
            wait_until(lambda: set(states(deployment).values()) == {"sent"}, 60, "it is sent")
        finally:
            stop.set()
            thread.join(60)
    assert [headers["ce_id"] for headers in published(deployment)] == ["a/1", "a/1"]


def test_trouble_of_kafka_counts_no_attempt(deployment: Deployment) -> None:
    event = put(deployment, "a", 1)
    away = deployment.settings.model_copy(update={"kafka": "127.0.0.1:9", **QUICK})
    with pytest.raises(ReceiverAway, match="topics: Kafka: "):
        once(away)
    (row,) = read(deployment.environment, "events", "list")
    assert (row["id"], row["state"], row["attempts"]) == (event, "unsent", 0)
    assert row["error"].startswith("Kafka: ")


def test_a_copy_of_a_quarantined_record_has_its_bytes_and_connects_headers(
    deployment: Deployment,
) -> None:
    settings, offset = deployment.settings, deployment.offsets[1]
    copies = Copies(settings.quarantine, settings.observations, "gapless.apply")
    places = [Where(1, deployment.number, 0, offset, 0)]
    now = datetime.now(UTC)
    with deployment.database() as db:
        assert copies.write(db, places, now) == 1
        assert copies.write(db, places, now) == 0  # once, whatever is retried
    found = read(deployment.environment, "status")
    assert (found["unsent_events"], found["unrelayed_copies"]) == (0, 1)  # no relay is to run
    once(settings)
    ((headers, value),) = messages(deployment, settings.quarantine)
    prefix = "__connect.errors."
    assert headers[f"{prefix}topic"] == settings.observations
    assert headers[f"{prefix}partition"] == str(deployment.number)
    assert headers[f"{prefix}offset"] == str(offset)
    assert headers[f"{prefix}stage"] == "TRANSFORMATION"
    assert headers[f"{prefix}exception.class.name"] == "gapless.unknown_value"
    assert "refunded" in headers[f"{prefix}exception.message"]
    assert not any("mail.example" in text for text in headers.values())
    assert value is not None
    assert b"o-3@mail.example" in value
    with deployment.database() as db:  # evidence that is gone is a tombstone, not a lost event
        db.execute("UPDATE gapless.exception SET raw = NULL")
        put(deployment, "a", 1)
        once(settings)  # so there is a relay, and what it does not send waits for it
        db.execute("UPDATE gapless.outbox SET state = 'unsent' WHERE effect = 'quarantined'")
        db.commit()
    found = read(deployment.environment, "status")
    assert (found["unsent_events"], found["unrelayed_copies"]) == (0, 0)
    assert (found["unsent_copies"], found["unsent_since"]) == (1, None)
    assert found["unsent_copies_since"].endswith("Z")
    assert (
        "1 copy of a quarantined record to publish" in run(deployment.environment, "status").stdout
    )
    once(settings)
    assert [value is None for _, value in messages(deployment, settings.quarantine)] == [
        False,
        True,
    ]

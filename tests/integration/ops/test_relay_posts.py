"""Events posted to a real receiver: headers, answers, order, deaths, and an inbox that acts once."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from ops.relay.answers import ReceiverAway
from ops.relay.service import Relay, posts_of
from schemas.definitions.load import load_folder
from tests.integration.ops.verbs import REPOSITORY, read, run
from tests.integration.ops.written import MAPPING, Deployment
from tests.receiver import Received, Receiver, Reply, receiving
from tests.waiting import wait_until

TOKEN = "hook-token-0451"
EVENTS = (
    "events: {to: {post: {env: HOOK_URL}, auth: {bearer: {env: HOOK_TOKEN}}}, changed: changed}"
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def posting(
    deployment: Deployment, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """A deployment whose orders are posted to the receiver."""
    (deployment.settings.definitions / "mappings/orders.yaml").write_text(MAPPING + EVENTS)
    for name, value in (("HOOK_URL", receiver.url), ("HOOK_TOKEN", TOKEN)):
        deployment.environment[name] = value
        monkeypatch.setenv(name, value)
    return deployment


def put(posting: Deployment, key: str, sequence: int, **columns: Any) -> int:
    values = {
        "mapping": "orders", "key": f'["{key}"]', "sequence": sequence, "effect": "changed",
        "type": "order.changed", "topic": None, "idempotency_key": f"{key}-{sequence}",
        "payload": Jsonb({"key": [key]}),
    } | columns  # fmt: skip
    names = ", ".join(values)
    marks = ", ".join(["%s"] * len(values))
    with posting.database() as db:
        row = db.execute(
            f"INSERT INTO gapless.outbox ({names}) VALUES ({marks}) RETURNING id".encode(),
            list(values.values()),
        ).fetchone()
    assert row is not None
    return int(row[0])


def relay_of(posting: Deployment, **changed: Any) -> Relay:
    settings = posting.settings.model_copy(update={"message_timeout_ms": 4_000, **changed})
    return Relay(settings, posts_of(load_folder(settings.definitions).check().mappings))


def once(posting: Deployment) -> None:
    relay_of(posting).run(threading.Event(), once=True)


def rows(posting: Deployment) -> dict[int, tuple[str, int, str | None]]:
    with posting.database() as db:
        found = db.execute("SELECT id, state, attempts, error FROM gapless.outbox ORDER BY id")
        return {row[0]: row[1:] for row in found}


def test_an_event_is_a_post_in_cloudevents_binary_mode(
    posting: Deployment, receiver: Receiver
) -> None:
    with posting.database() as db:  # a number that no float holds
        payload = db.execute(
            "SELECT '{\"total\": 12345678901234567890.10}'::jsonb::text"
        ).fetchone()
    assert payload is not None
    put(posting, "ä", 1, payload=payload[0])
    done = run(posting.environment, "relay", "--once")
    assert done.returncode == 0, done.stderr
    (came,) = receiver.came
    assert came.body == b'{"total": 12345678901234567890.10}'
    expected = {
        "authorization": f"Bearer {TOKEN}", "ce-specversion": "1.0", "ce-type": "order.changed",
        "ce-source": "gapless/orders", "ce-subject": "[%22%C3%A4%22]", "ce-sequence": "1",
        "content-type": "application/json",
    }  # fmt: skip
    assert expected.items() <= came.headers.items()
    assert came.id == "%C3%A4-1"
    assert came.headers["ce-id"] == came.id
    assert TOKEN not in done.stdout + done.stderr
    assert receiver.url not in done.stdout + done.stderr
    assert rows(posting) == {1: ("sent", 0, None)}


def test_answers_decide_and_a_dead_event_holds_up_its_key_alone(
    posting: Deployment, receiver: Receiver
) -> None:
    # so long that it still waits when it is retried by hand
    statuses: dict[str, Reply] = {"refused-1": 422, "broken-1": (500, {"Retry-After": "1000"})}
    receiver.answer = lambda came: statuses.get(came.id, 204)
    refused, behind = put(posting, "refused", 1), put(posting, "refused", 2)
    broken, fine = put(posting, "broken", 1), put(posting, "fine", 1)
    once(posting)
    assert rows(posting) == {
        refused: ("dead", 1, "the receiver answered 422"),
        behind: ("unsent", 0, None),
        broken: ("unsent", 1, "the receiver answered 500"),
        fine: ("sent", 0, None),
    }
    shown = read(posting.environment, "events", "show", str(refused))
    assert (shown["state"], shown["behind"], shown["error"]) == (
        "dead", 1, "the receiver answered 422",
    )  # fmt: skip
    assert "payload" not in shown
    assert "key" not in shown
    assert read(posting.environment, "events", "show", str(behind))["waits_for"] == refused
    statuses.clear()
    done = run(posting.environment, "events", "skip", str(refused), "--by", "ann", "--note", "test")
    assert done.returncode == 0, done.stderr
    assert run(posting.environment, "events", "retry", "orders").returncode == 0
    once(posting)
    assert {state for state, _, _ in rows(posting).values()} == {"sent", "skipped"}
    decided = read(posting.environment, "events", "show", str(refused), "--payload")
    assert [(one["by"], one["note"]) for one in decided["decisions"]] == [("ann", "test")]
    assert decided["payload"] == {"key": ["refused"]}
    text = run(posting.environment, "events", "show", str(refused), "--payload").stdout
    assert 'payload          {"key": ["refused"]}\n' in text


def test_a_receiver_that_is_away_costs_no_event_an_attempt(
    posting: Deployment, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = put(posting, "a", 1)
    for reply, said in (
        ((429, {"Retry-After": "1000"}), "answered 429"),
        (401, "correct `auth`"),
        (503, "answered 503"),
    ):
        receiver.answer = lambda _, reply=reply: reply  # type: ignore[misc]
        with pytest.raises(ReceiverAway, match=said):
            once(posting)
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/x")
    with pytest.raises(ReceiverAway, match="no connection"):
        once(posting)
    monkeypatch.delenv("HOOK_TOKEN")
    with pytest.raises(ReceiverAway, match=r"\{env: HOOK_TOKEN\}: the environment has no variable"):
        once(posting)
    (state, attempts, error) = rows(posting)[event]
    assert (state, attempts) == ("unsent", 0)
    assert error is not None
    assert TOKEN not in error


def test_a_receiver_that_hangs_holds_up_nothing_but_its_own(
    posting: Deployment, receiver: Receiver
) -> None:
    hangs, let_go = threading.Event(), threading.Event()

    def hang(_: Received) -> int:
        hangs.set()
        let_go.wait(20)
        return 204

    receiver.answer = hang
    stop = threading.Event()
    slow = put(posting, "slow", 1)
    thread = threading.Thread(target=relay_of(posting, message_timeout_ms=20_000).run, args=(stop,))
    thread.start()
    try:
        assert hangs.wait(20)
        put(posting, "quick", 1, topic=posting.settings.events)
        blocked = put(posting, "slow", 2, topic=posting.settings.events)
        wait_until(lambda: "sent" in {row[0] for row in rows(posting).values()}, 20, "a sent event")
        assert rows(posting)[slow][0] == "unsent"
        assert rows(posting)[blocked][0] == "unsent", "its entity waits, whatever the way out"
        let_go.set()
        wait_until(lambda: {row[0] for row in rows(posting).values()} == {"sent"}, 20, "all sent")
    finally:
        let_go.set()
        stop.set()
        thread.join(30)


def pattern() -> dict[str, Any]:
    """The receiver that the documentation shows, as it stands there."""
    text = (REPOSITORY / "ops/docs/events.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace


def test_the_documented_inbox_charges_once_whoever_dies(
    posting: Deployment, receiver: Receiver, tmp_path: Path
) -> None:
    documented = pattern()
    names = {"idempotency-key": "Idempotency-Key"}

    def inbox() -> sqlite3.Connection:
        db = sqlite3.connect(tmp_path / "inbox.db", timeout=20, isolation_level=None)
        db.executescript(documented["TABLES"])
        return db

    def store(came: Received) -> int:
        headers = {names.get(name, name): value for name, value in came.headers.items()}
        status: int = documented["receive"](inbox(), headers, came.body)
        return status

    receiver.answer = store
    for key in "ab":
        for sequence in (1, 2):
            put(posting, key, sequence)
    # the relay dies when the first of both were accepted and nothing is written down
    dies = posting.environment | {"GAPLESS_FAILPOINTS": "relay.after_publish=1*kill"}
    assert run(dies, "relay", "--once").returncode == -9
    once(posting)
    assert Counter(came.id for came in receiver.came) == {"a-1": 2, "b-1": 2, "a-2": 1, "b-2": 1}
    late = Received(
        "/", {**receiver.came[0].headers, "idempotency-key": "a-0", "ce-sequence": "0"}, b""
    )
    assert store(late) == 204

    charges: Counter[str] = Counter()
    known: set[str] = set()

    def charge(key: str, _: bytes) -> None:
        if key not in known:  # a provider that takes idempotency keys
            known.add(key)
            charges[key] += 1
        if key == "b-1" and "crashed" not in known:
            known.add("crashed")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        documented["work"](inbox(), charge)
    assert documented["after_a_crash"](inbox(), repeatable=False) == ["b-1"], "left to a person"
    assert documented["after_a_crash"](inbox(), repeatable=True) == []
    documented["work"](inbox(), charge)
    assert charges == {"a-1": 1, "b-1": 1, "a-2": 1, "b-2": 1}

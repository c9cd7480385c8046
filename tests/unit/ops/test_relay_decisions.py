"""What answers mean, what becomes of events after a round, and how CloudEvents writes them."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from ops.relay.answers import ACCEPTED, Kind, Result, of_status
from ops.relay.event import Event
from ops.relay.kafka import result_of
from ops.relay.post import Receiver
from ops.relay.schedule import ATTEMPTS, Head, Turn, settle
from schemas.definitions.mapping import PostSpec
from schemas.definitions.secrets import Secrets

NOW = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))
NOW_US = int(NOW.timestamp() * 1e6)


def event(number: int = 1, attempts: int = 0, **more: object) -> Event:
    values = {
        "id": number, "mapping": "orders", "key": '["o-1","näh 5%"]', "sequence": 7,
        "type": "order.changed", "topic": None, "idempotency_key": f"id-{number}", "body": b"{}",
        "attempts": attempts, "created_at": NOW,
    }  # fmt: skip
    return Event(**(values | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, Kind.ACCEPTED), (204, Kind.ACCEPTED), (301, Kind.REFUSED), (400, Kind.REFUSED),
     (401, Kind.AWAY), (403, Kind.AWAY), (404, Kind.REFUSED), (408, Kind.FAULT), (409, Kind.FAULT),
     (410, Kind.REFUSED), (413, Kind.REFUSED), (422, Kind.REFUSED), (425, Kind.FAULT),
     (429, Kind.AWAY), (500, Kind.FAULT), (502, Kind.GATEWAY), (503, Kind.GATEWAY),
     (504, Kind.GATEWAY), (599, Kind.FAULT)],
)  # fmt: skip
def test_whose_matter_an_answer_is(status: int, kind: Kind) -> None:
    assert of_status(status, {}, NOW_US).kind is kind


@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize("told", ["120", "Mon, 01 Jan 2024 11:02:00 GMT"])
def test_retry_after_is_heard_in_both_its_forms(status: int, told: str) -> None:
    assert of_status(status, {"retry-after": told}, NOW_US).wait_s == 120


def test_what_is_refused_is_dead_at_once_and_a_fault_after_so_many_attempts() -> None:
    refused = settle([event()], {1: Result(Kind.REFUSED, "no")}, 0).later[0]
    assert (refused.state, refused.attempts, refused.error) == ("dead", 1, "no")
    waits = []
    for attempts in range(ATTEMPTS):
        marks = settle([event(attempts=attempts)], {1: Result(Kind.FAULT, "500")}, 0)
        assert marks.pause_s is None
        waits.append(marks.later[0])
    assert [one.state for one in waits] == ["unsent"] * (ATTEMPTS - 1) + ["dead"]
    assert [one.wait_s for one in waits][:4] == [1, 2, 4, 8]
    assert max(one.wait_s for one in waits) == 300


def test_the_longer_of_backoff_and_what_was_asked_for_counts() -> None:
    marks = settle([event(attempts=3)], {1: Result(Kind.FAULT, "500", 900.0)}, 0)
    assert marks.later[0].wait_s == 900
    marks = settle([event(attempts=3)], {1: Result(Kind.FAULT, "500", 1.0)}, 0)
    assert marks.later[0].wait_s == 8


def test_nobody_is_waited_for_longer_than_an_hour() -> None:
    year = of_status(429, {"retry-after": "86400000"}, NOW_US)
    assert year.wait_s is not None
    assert year.wait_s > 3600
    assert settle([event()], {1: year}, 0).pause_s == 3600
    fault = of_status(500, {"retry-after": "86400000"}, NOW_US)
    assert settle([event()], {1: fault}, 0).later[0].wait_s == 3600


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Kind.REFUSED),
        (KafkaError.INVALID_RECORD, Kind.FAULT),  # no key, for a topic that is compacted
        (KafkaError.POLICY_VIOLATION, Kind.FAULT),
        (KafkaError.RECORD_LIST_TOO_LARGE, Kind.FAULT),
        (KafkaError._QUEUE_FULL, Kind.AWAY),
        (KafkaError._ALL_BROKERS_DOWN, Kind.AWAY),
    ],
)
def test_what_a_broker_has_against_one_event_holds_up_no_other(code: int, kind: Kind) -> None:
    assert result_of(KafkaError(code)).kind is kind


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20 + b"HTTP/1.1 202 Accepted\r\n\r\n",
    ],
)
def test_what_is_accepted_is_accepted_whatever_else_is_said(answer: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            taken, _ = server.accept()
            with taken:
                while not taken.recv(65_536).endswith(b"{}"):
                    continue
                taken.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        receiver = Receiver("orders", PostSpec(url), Secrets(folder=tmp_path), give_up_s=10.0)
        with closing(receiver):
            assert receiver.prepare() is None
            assert receiver.publish([event()]) == {1: ACCEPTED}
        serving.join()


def test_a_receiver_that_is_away_costs_no_attempt_and_pauses_longer_each_time() -> None:
    away = {1: Result(Kind.AWAY, "no connection")}
    pauses = []
    for before in range(8):
        marks = settle([event()], away, before)
        assert marks.away
        assert (marks.later[0].state, marks.later[0].attempts) == ("unsent", 0)
        pauses.append(marks.pause_s)
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert settle([event()], {1: Result(Kind.AWAY, "429", 90.0)}, 0).pause_s == 90


def test_a_bad_gateway_is_the_events_fault_only_where_others_were_accepted() -> None:
    gateway = Result(Kind.GATEWAY, "502")
    alone = settle([event(1), event(2)], {1: gateway, 2: gateway}, 0)
    assert alone.away
    assert [one.attempts for one in alone.later] == [0, 0]
    beside = settle([event(1), event(2)], {1: gateway, 2: ACCEPTED}, 0)
    assert (beside.sent, beside.pause_s) == ([2], None)
    assert [one.attempts for one in beside.later] == [1]


def test_too_many_requests_beside_accepted_ones_pauses_as_long_as_asked() -> None:
    results = {1: Result(Kind.AWAY, "429", 5.0), 2: ACCEPTED}
    marks = settle([event(1), event(2)], results, 0)
    assert (marks.sent, marks.pause_s, marks.away) == ([2], 5.0, False)


def test_what_was_not_tried_stays_as_it_is() -> None:
    marks = settle([event(1), event(2)], {1: ACCEPTED}, 0)
    assert (marks.sent, marks.later) == ([1], [])


def test_a_turn_goes_on_behind_what_it_chose_and_begins_again() -> None:
    turn = Turn()
    heads = [Head(number, "m", f"k{number}", number != 2) for number in range(1, 5)]
    assert turn.choose(heads, 4, 2) == [1, 3]
    assert (turn.after, turn.quiet(2)) == (("m", "k3"), False)
    assert turn.choose(heads[3:], 4, 2) == [4]
    assert not turn.quiet(1), "something was tried in this turn"
    assert turn.choose([], 4, 2) == []
    assert turn.quiet(0)


def test_cloudevents_in_http_escapes_what_a_header_cannot_hold() -> None:
    assert event().http_headers() == {
        "ce-specversion": "1.0",
        "ce-id": "id-1",
        "ce-source": "gapless/orders",
        "ce-type": "order.changed",
        "ce-subject": "[%22o-1%22,%22n%C3%A4h%205%25%22]",
        "ce-time": "2024-01-01T11:00:00+00:00",
        "ce-sequence": "7",
        "Content-Type": "application/json",
        "Idempotency-Key": "id-1",
    }


def test_headers_of_the_row_win_over_a_default_of_the_same_name() -> None:
    own = {"__connect.errors.topic": "observations", "content-type": "text/plain"}
    found = dict(event(headers=own).kafka_headers())
    assert found["__connect.errors.topic"] == "observations"
    assert found["content-type"] == "text/plain"
    assert found["ce_subject"] == '["o-1","näh 5%"]'
    assert found["ce_time"] == datetime(2024, 1, 1, 11, tzinfo=UTC).isoformat()

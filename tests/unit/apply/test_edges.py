"""Small pure parts of the apply edge: queries, faults, listings, the inbox, waits of retries."""

from __future__ import annotations

import re
import threading
from importlib import resources
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from apply.batch import Batch
from apply.faults import SinkFault, check_filled, refusal, sink_fault
from apply.inbox import Assigned, Inbox, Stopped
from apply.listings import KnownSnapshot, Listings
from apply.outcomes import Outcome, Reason
from apply.queries import load, parse
from apply.tries import LONGEST_S, wait_s
from schemas.records import Mark, Observation

FILES = sorted(
    f.name.removesuffix(".sql") for f in resources.files("apply").joinpath("sql").iterdir()
)


@pytest.mark.parametrize("file", FILES)
def test_every_query_has_a_name_and_stands_alone(file: str) -> None:
    found = load(file)
    assert found
    for name, statement in found.items():
        assert ";" not in statement, name
        assert re.match(r"(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|COPY)\b", statement), name


def test_a_query_without_a_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        parse("-- name: lost\n-- nothing here\n")
    with pytest.raises(ValueError, match="twice"):
        parse("-- name: one\nSELECT 1\n-- name: one\nSELECT 2\n")


@pytest.mark.parametrize(
    ("error", "reason", "outcome"),
    [
        (psycopg.errors.ForeignKeyViolation, Reason.FOREIGN_KEY, Outcome.RETRYABLE),
        (psycopg.errors.UniqueViolation, Reason.UNIQUE, Outcome.RETRYABLE),
        (psycopg.errors.ExclusionViolation, Reason.UNIQUE, Outcome.RETRYABLE),
        (psycopg.errors.CheckViolation, Reason.CHECK, Outcome.QUARANTINED),
        (psycopg.errors.NotNullViolation, Reason.CHECK, Outcome.QUARANTINED),
        (psycopg.errors.NumericValueOutOfRange, Reason.REFUSED_BY_SINK, Outcome.QUARANTINED),
        (psycopg.errors.RaiseException, Reason.REFUSED_BY_SINK, Outcome.QUARANTINED),
    ],
)
def test_a_records_fault(error: type[psycopg.Error], reason: Reason, outcome: Outcome) -> None:
    found = refusal(error("x"))
    assert found is not None
    assert (found.reason, found.outcome) == (reason, outcome)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (psycopg.errors.DiskFull, "disk_full"),
        (psycopg.errors.LockNotAvailable, "lock_timeout"),
        (psycopg.errors.AdminShutdown, "shut_down"),
        (psycopg.errors.SerializationFailure, "serialization"),
        (psycopg.errors.DeadlockDetected, "deadlock"),
        (psycopg.errors.UndefinedTable, "missing_table"),
        (psycopg.errors.UndefinedColumn, "missing_column"),
        (psycopg.errors.QueryCanceled, "timed_out"),
        (psycopg.errors.OutOfMemory, "out_of_memory"),
        (psycopg.OperationalError, "unreachable"),
        (KeyError, "internal"),
    ],
)
def test_the_sinks_trouble_is_no_records_fault(error: type[Exception], reason: str) -> None:
    assert refusal(error("x")) is None
    assert sink_fault(error("x")).reason == reason


class _NotNull(psycopg.errors.NotNullViolation):
    """As the server says it of the column `owner` of `orders`."""

    @property
    def diag(self) -> Any:
        return SimpleNamespace(table_name="orders", column_name="owner")


@pytest.mark.parametrize(
    "filled", [{"orders": {"id", "owner"}}, {"other": {"id"}}, {}], ids=["mapped", "other", "none"]
)
def test_a_null_in_a_mapped_column_is_the_records_fault(filled: dict[str, set[str]]) -> None:
    check_filled(_NotNull("x"), filled)


def test_a_column_that_nobody_fills_is_the_sinks_trouble() -> None:
    check_filled(psycopg.errors.CheckViolation("x"), {"orders": {"id"}})
    with pytest.raises(SinkFault, match="column owner of orders is NOT NULL") as caught:
        check_filled(_NotNull("x"), {"orders": {"id"}})
    assert caught.value.reason == "column_not_filled"


def test_a_sink_fault_stays_what_it_is() -> None:
    fault = SinkFault("disk_full", "no space")
    assert sink_fault(fault) is fault


def observation(plan: str, scope: str) -> Observation:
    return Observation(
        partition_id="s/t", plan=plan, scope=scope, pass_="p", page=1, reason="", method="GET",
        url="", definition_hash="", status=200, requested_at=0, received_at=0,
    )  # fmt: skip


def mark(kind: str, scope: str) -> Mark:
    return Mark(kind=kind, partition_id="s/t", plan="snapshot", scope=scope, at=0)  # type: ignore[arg-type]


def test_listings_follow_the_marks() -> None:
    listings = Listings.of([KnownSnapshot("s/t", "s0", 5, open=False)])
    changes, listed = observation("interval", "a~b"), observation("snapshot", "s1")
    assert listings.present_in(changes) == ()
    assert listings.began(observation("snapshot", "s0")) == 5
    assert listings.present_in(listed) == ()  # its begin mark was not seen
    listings.saw_mark(mark("snapshot_begin", "s1"), 10)
    listings.saw_mark(mark("snapshot_begin", "s1"), 12)  # written again after a crash
    assert listings.began(listed) == 10
    assert listings.present_in(listed) == listings.present_in(changes) == ("s1",)
    listings.saw_mark(mark("snapshot_complete", "s1"), 20)
    assert listings.present_in(changes) == ("s1",)  # its sweep may have to wait
    listings.saw_mark(mark("snapshot_begin", "s2"), 30)
    assert listings.present_in(changes) == ("s2",)
    assert listings.began(changes) is None


def test_the_inbox_bounds_batches_and_prefers_events() -> None:
    inbox = Inbox(batches=2)
    one, two = Batch(), Batch()
    assert inbox.put_batch(one, 0)
    assert inbox.put_batch(two, 0)
    assert not inbox.put_batch(Batch(), 0.01)
    event = Assigned(frozenset([1]))
    inbox.put_event(event)
    assert inbox.take(0) is event
    assert inbox.take(0) is one
    assert inbox.put_batch(Batch(), 0)


def test_a_closed_inbox_lets_go_of_whoever_waits() -> None:
    inbox = Inbox(batches=1)
    inbox.put_batch(Batch(), 0)
    ended = threading.Event()

    def put() -> None:
        with pytest.raises(Stopped):
            inbox.put_batch(Batch(), 30)
        ended.set()

    thread = threading.Thread(target=put)
    thread.start()
    inbox.close()
    assert ended.wait(10)
    thread.join(10)
    assert inbox.take(0) is None


def test_retries_wait_longer_each_time_up_to_a_bound() -> None:
    waits = [wait_s(attempts) for attempts in range(40)]
    assert waits == sorted(waits)
    assert waits[1] == 2 * waits[0]
    assert waits[-1] == LONGEST_S

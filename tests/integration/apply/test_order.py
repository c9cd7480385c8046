"""The hard cases of order, on the whole of apply: every kind of revision, always with child tables.

All cases of one kind share one worker and one deployment; each has a tenant of its own. Where else
each case is proved is written in `ops/docs/hard-cases.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from apply.requests import request
from schemas import keys
from schemas.records import Mark, MissingRecord, Observation, PassRange
from tests.conftest import Lane
from tests.integration.apply.scene import Scene, account, begin, complete, page

CARDS = """children:
  cards:
    path: cards[*]
    key: number
    columns: {number: text, spent: integer}
events:"""
_UNDATED = {"{path: version, type: bigint, kind: none}": "{kind: none}"}
Stood = dict[str, int]
"""What lives, by the end of its id."""


class Order:
    """One deployment with a worker that can be stopped and started again under another name."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.kind = scene, scene.kind
        self._workers, self._started = ExitStack(), 0

    def start(self) -> None:
        """A worker that has never been here."""
        self._started += 1
        self._workers.enter_context(self.scene.applying(worker=f"worker-{self._started}"))

    def stop(self) -> None:
        """Gracefully: whoever comes next takes over."""
        self._workers.close()

    def state(self, name: str, content: int, version: int | None = None, **more: Any) -> Any:
        """An account whose balance is its content, with one card that follows it.

        Revisions follow the content where they are exact, and are all the same where they are
        coarse: states of one tick.
        """
        if version is None:
            version = content if self.kind == "exact" else 1
        cards = [{"number": f"c{content}", "spent": content}]
        return account(name, version, **{"balance": str(content), "cards": cards, **more})

    def settle(self, *put: Observation | Mark) -> list[int]:
        """Write this, and wait until it is applied. Their offsets."""
        offsets = self.scene.put(*put)
        self.scene.settle()
        return offsets

    def stood(self, tenant: str) -> Stood:
        """What lives now; asserts that it has exactly the cards of its own content."""
        rows = self.scene.rows(
            "SELECT id, balance::int FROM accounts WHERE tenant_id = %s AND NOT _deleted", tenant
        )
        cards = self.scene.rows(
            "SELECT parent_id, number, spent FROM cards WHERE parent_tenant_id = %s", tenant
        )
        assert sorted(cards) == sorted((id_, f"c{content}", content) for id_, content in rows)
        return {id_.removeprefix("a-"): content for id_, content in rows}

    def snapshots(self, tenant: str) -> list[tuple[Any, ...]]:
        return self.scene.rows(
            "SELECT s.snapshot, s.state FROM gapless.snapshot s JOIN gapless.partition_id p"
            " ON p.id = s.partition_id WHERE p.tenant = %s ORDER BY s.began",
            tenant,
        )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=pytest.mark.xdist_group(f"order-{kind}"))
        for kind in ("exact", "coarse", "none")
    ],
)
def order(
    request: pytest.FixtureRequest,
    lanes: Callable[[], AbstractContextManager[Lane]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Order]:
    changed = {**(_UNDATED if request.param == "none" else {}), "events:": CARDS}
    with lanes() as lane:
        folder = tmp_path_factory.mktemp("order")
        scene = Scene(lane, folder, kind=request.param, changed=changed)
        found = Order(scene)
        found.start()
        try:
            yield found
        finally:
            found.stop()
            scene.close()


class Pages:
    """The log of one tenant, page by page."""

    def __init__(self, tenant: str) -> None:
        self.owner = f"crm/accounts/{tenant}"
        self._number = 0

    def polled(self, *records: Mapping[str, Any], **more: Any) -> Observation:
        self._number += 1
        return page(records, owner=self.owner, number=self._number, **more)

    def begins(self, snapshot: str, **more: Any) -> Mark:
        return msgspec.structs.replace(begin(snapshot, self.owner), **more)

    def listed(self, snapshot: str, *records: Mapping[str, Any], **more: Any) -> Observation:
        self._number += 1
        how = {"scope": snapshot, "pass_": f"{snapshot}-p", **more}
        return page(records, owner=self.owner, plan="snapshot", number=self._number, **how)

    def ends(self, *pages: Observation, **more: Any) -> Mark:
        return complete(*pages, kind="snapshot_complete", **more)

    def snapshot(self, name: str, *records: Mapping[str, Any]) -> list[Observation | Mark]:
        """A whole one on one page."""
        one = self.listed(name, *records)
        return [self.begins(name), one, self.ends(one)]


def _again(one: Observation, offset: int, **more: Any) -> Observation:
    """The page as it stands in the log once it was rewritten there."""
    return msgspec.structs.replace(one, original_offset=offset, **more)


def test_a_late_page_of_the_same_revision_behind_newer_content(order: Order) -> None:
    at, log = order.state, Pages("late")
    old = log.polled(at("x", 1), at("y", 1))
    [offset] = order.settle(old)
    order.settle(log.polled(at("x", 2)))
    order.settle(_again(old, offset))
    assert order.stood("late") == {"x": 2, "y": 1}
    other = log.polled(at("v", 1), at("w", 1))
    [offset] = order.scene.put(other)
    order.settle(log.polled(at("v", 2)), _again(other, offset), log.polled(at("w", 3)))
    assert order.stood("late") == {"x": 2, "y": 1, "v": 2, "w": 3}


def test_an_erasure_leaves_newer_states_of_others_alone(order: Order) -> None:
    at, log = order.state, Pages("erased")
    old = log.polled(at("subject", 1), *(at(name, 1) for name in "wxyz"))
    [offset] = order.settle(old)
    order.settle(log.polled(at("x", 2), at("y", 2, deleted=True)))
    order.settle(*log.snapshot("s1", at("subject", 1), at("w", 1), at("x", 2)))
    assert order.stood("erased") == {"subject": 1, "w": 1, "x": 2}
    gone = [MissingRecord(0, "erased", 100)]
    order.settle(_again(old, offset, records=[b"", *old.records[1:]], missing=gone))
    assert order.stood("erased") == {"subject": 1, "w": 1, "x": 2}


@pytest.mark.parametrize(("table", "column"), [("accounts", "balance"), ("cards", "spent")])
def test_a_retried_older_record_after_a_newer_unchanged_one(
    order: Order, table: str, column: str
) -> None:
    """What was refused in between; the state before it was seen again behind it."""
    at, db, tenant = order.state, order.scene.db, f"retried-{table}"
    log = Pages(tenant)
    order.settle(log.polled(at("x", 2)))
    db.execute(f"ALTER TABLE {table} ADD CONSTRAINT low CHECK ({column} < 100)".encode())
    try:
        order.settle(log.polled(at("x", 100, version=1)))
        order.settle(log.polled(at("x", 2)))
    finally:
        db.execute(f"ALTER TABLE {table} DROP CONSTRAINT low".encode())
    state = "SELECT state FROM gapless.exception WHERE partition_id = %s"
    number = order.scene.value("SELECT id FROM gapless.partition_id WHERE tenant = %s", tenant)
    if (order.kind, table) == ("exact", "cards"):  # beaten before anybody looks at its cards
        assert order.scene.rows(state, number) == []
    else:
        assert order.scene.rows(state, number) == [("quarantined",)]
        request(db, "retry", by="op", note="", now=datetime.now(UTC), tenant=tenant)
        order.scene.until(state, "resolved", number)
    assert order.stood(tenant) == {"x": 2}


def test_rows_change_and_are_made_again_while_a_snapshot_runs(order: Order) -> None:
    at, log = order.state, Pages("polls")
    order.settle(log.polled(*(at(name, 1) for name in "deuk"), at("again", 6, version=6)))
    first = log.listed("s1", at("u", 1), at("d", 1), at("k", 1))
    second = log.listed("s1", at("e", 2), at("again", 1, version=1))
    order.settle(log.begins("s1"), first)
    order.settle(log.polled(at("u", 2), at("d", 2, deleted=True), at("n", 2)))
    order.settle(log.polled(at("d", 3), at("e", 2)), log.polled(at("again", 7, 7, deleted=True)))
    order.settle(second, log.ends(first, second))
    there = {"u": 2, "d": 3, "e": 2, "k": 1, "n": 2}
    found = order.stood("polls")
    assert found.pop("again", None) in (None, 1)  # its revision is lower than what a poll has shown
    assert found == there
    listed = (at(name, content) for name, content in there.items())
    order.settle(*log.snapshot("s2", *listed, at("again", 1, version=1)))
    assert order.stood("polls") == {**there, "again": 1}


def test_a_snapshot_goes_on_after_a_take_over_of_both_stages(order: Order) -> None:
    """Ingest goes on with a pass of its own; apply's new worker knows what was listed before."""
    at, log = order.state, Pages("taken")
    order.settle(log.polled(*(at(name, 1) for name in "xyzv")))
    first = log.listed("s1", at("x", 1), at("y", 2))
    order.settle(log.begins("s1"), first)
    order.stop()
    order.start()
    second = log.listed("s1", at("v", 1), pass_="s1-q")
    order.settle(log.polled(at("x", 3), at("n", 1)), second)
    passes = [
        PassRange(pass_=one.pass_, first=one.page, last=one.page, parts=1, records=len(one.records))
        for one in (first, second)
    ]
    order.settle(log.ends(first, passes=passes))
    assert order.stood("taken") == {"x": 3, "y": 2, "v": 1, "n": 1}
    assert order.snapshots("taken") == [("s1", "swept")]


def test_a_listed_record_that_is_quarantined_is_not_absent(order: Order) -> None:
    at, log = order.state, Pages("listed")
    order.settle(log.polled(*(at(name, 1) for name in "wxyz")))
    twice = [{"number": "same", "spent": 1}] * 2
    bad = at("y", 2, lifecycle="odd"), at("w", 2, cards=twice)
    order.settle(*log.snapshot("s1", at("x", 1), *bad))
    assert order.stood("listed") == {"w": 1, "x": 1, "y": 1}
    order.settle(*log.snapshot("s2", at("x", 1), bad[0]))
    assert order.stood("listed") == {"x": 1, "y": 1}


@pytest.mark.parametrize("tombstoned", [False, True])
def test_apply_lags_behind_two_whole_snapshots(order: Order, tombstoned: bool) -> None:
    """`tombstoned`: as the log is once ingest has cleared the older one away."""
    at, tenant = order.state, f"lagging-{tombstoned}"
    log = Pages(tenant)
    order.settle(log.polled(*(at(name, 1) for name in "xyz")))
    order.stop()
    first = log.snapshot("s1", at("x", 1), at("y", 1))
    assert isinstance(first[1], Observation) and isinstance(first[2], Mark)
    if tombstoned:
        where = order.scene.partition(log.owner)
        order.scene.put(
            first[0],
            (keys.page_key(first[1]), None), (keys.mark_key(first[2]), None),
            partition=where,
        )  # fmt: skip
    else:
        order.scene.put(*first)
    order.scene.put(log.polled(at("z", 2)), *log.snapshot("s2", at("x", 1), at("z", 2)))
    order.start()
    order.scene.settle()
    assert order.stood(tenant) == {"x": 1, "z": 2}
    assert order.snapshots(tenant) == [
        ("s1", "dropped" if tombstoned else "swept"), ("s2", "swept"),
    ]  # fmt: skip


def test_what_absence_deleted_comes_back_at_a_lower_revision(order: Order) -> None:
    at, log = order.state, Pages("lower")
    old = log.polled(at("x", 5, version=5), at("y", 1))
    [offset] = order.settle(old)
    order.settle(*log.snapshot("s1", at("y", 1)))
    assert order.stood("lower") == {"y": 1}
    order.settle(log.polled(at("x", 1, version=1)))
    order.settle(_again(old, offset))
    assert order.stood("lower") == {"x": 1, "y": 1}


def test_what_absence_deleted_comes_back_though_apply_lags(order: Order) -> None:
    """All that is left is small enough for one batch, in which rows are written before sweeps."""
    at, log = order.state, Pages("late")
    order.settle(log.polled(at("x", 5, version=5), at("y", 1)))
    order.stop()
    order.scene.put(*log.snapshot("s1", at("y", 1)), log.polled(at("x", 1, version=1)))
    order.scene.put(log.polled(at("x", 2, version=2)))
    order.start()
    order.scene.settle()
    assert order.stood("late") == {"x": 2, "y": 1}
    assert order.snapshots("late") == [("s1", "swept")]


def test_a_collection_is_made_again_at_the_provider(order: Order) -> None:
    """Its revisions begin again: what was fetched before says nothing any more, however late."""
    at, log = order.state, Pages("again")
    old = log.polled(at("x", 5, version=5), at("y", 5, version=5))
    [offset] = order.settle(old)
    order.settle(log.polled(at("x", 1, version=1), source_epoch=1))
    order.settle(log.polled(at("x", 6, version=6)))
    one = log.listed("s1", at("x", 1, version=1), source_epoch=1)
    order.settle(log.begins("s1", source_epoch=1), one, log.ends(one, source_epoch=1))
    assert order.stood("again") == {"x": 1}
    order.settle(_again(old, offset))
    assert order.stood("again") == {"x": 1}


def test_a_collection_is_made_again_and_only_a_listing_shows_it(order: Order) -> None:
    at, log = order.state, Pages("unsaid")
    old = log.polled(at("x", 5, version=5), at("y", 5, version=5))
    [offset] = order.settle(old)
    order.settle(*log.snapshot("s1", at("x", 1, version=1)))
    order.settle(_again(old, offset))
    assert order.stood("unsaid") == {"x": 1}

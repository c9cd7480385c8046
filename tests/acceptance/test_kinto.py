"""Kinto, synced while clients write to it and both stages are killed again and again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from tests.acceptance.kinto.server import (
    COLLECTION,
    HERE,
    PASSWORD,
    TENANTS,
    Kinto,
    installed_kinto,
)
from tests.acceptance.scene import Scene, differing, scene, writing
from tests.acceptance.writing import Writer
from tests.conftest import Lane
from tests.oracle.judge import Fact, Watched, micros, seen
from tests.oracle.sink import Row
from tests.workers import wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def kinto(tmp_path: Path) -> Iterator[Kinto]:
    with Kinto(installed_kinto(), tmp_path) as server:
        yield server


def same(record: dict[str, Any], row: Row) -> str | None:
    return differing(
        {
            "source_revision": (row["source_revision"], record["last_modified"]),
            "title": (row["title"], record["title"]),
            "pages": (row["pages"], record["pages"]),
            "price": (row["price"], Decimal(record["price"])),
            "tags": (row["tags"], record["tags"]),
            "author": (row["author"], record["author"]["name"]),
            "email": (row["email"], record["author"]["contact"]["email"]),
            "modified_at": (_millis(row["modified_at"]), record["last_modified"]),
        }
    )


def _millis(moment: datetime) -> int:
    return micros(moment.isoformat()) // 1000


WATCHED = tuple(
    Watched(
        partition_id=f"kinto/records/{tenant}",
        tenant=tenant,
        collection=COLLECTION,
        table="records",
        entity=lambda record: (record["id"], record["last_modified"]),
        row_id=lambda row: str(row["id"]),
        deletes=True,
        compare=same,
    )
    for tenant in TENANTS
)


@contextmanager
def kinto_scene(lane: Lane, folder: Path, kinto: Kinto) -> Iterator[Scene]:
    """A scene whose collections begin with a hundred records each, of which some are deleted."""
    for tenant in TENANTS:
        fill(kinto, tenant, 100, seed=len(tenant))
    environment = {"KINTO_URL": kinto.url, "KINTO_PASSWORD": PASSWORD}
    with scene(lane, folder, kinto, WATCHED, HERE, **environment) as at:
        at.sink.watch_revisions("records")
        yield at


def fill(kinto: Kinto, tenant: str, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        kinto.create(tenant, chance)
        if number % 10 == 9:
            kinto.delete(tenant, chance)


def claims_ahead(at: Scene) -> list[str]:
    """Entities whose last state a cursor claims, and no page of the feed has it.

    What was changed again behind the cursor is left out: its older state cannot be had any more.
    """
    faults = []
    checkpoints = {w.partition_id: at.checkpoint(w.partition_id) for w in WATCHED}
    pages = at.pages("cursor")
    for watched in WATCHED:
        checkpoint = checkpoints[watched.partition_id]
        cursor = checkpoint and checkpoint["plans"]["cursor"]["cursor"]
        if not cursor:
            continue
        logged = seen(watched, pages)
        states = at.upstream.ledger(watched.tenant, watched.collection)
        for state in {state.id: state for state in states}.values():
            claimed = revision(state) <= int(json.loads(cursor))
            never_shown = state.deleted and state.id not in logged
            if claimed and not never_shown and revision(state) not in logged[state.id]:
                faults.append(f"the cursor {cursor} claims {state.id} at {revision(state)}")
    return faults


def claimed_too_little(at: Scene) -> bool:
    """Whether some cursor still stands before a write."""
    for watched in WATCHED:
        checkpoint = at.checkpoint(watched.partition_id)
        assert checkpoint
        cursor = int(json.loads(checkpoint["plans"]["cursor"]["cursor"] or "0"))
        states = at.upstream.ledger(watched.tenant, watched.collection)
        if cursor < max(map(revision, states)):
            return True
    return False


def revision(state: Fact) -> int:
    return int(state.body["last_modified"])


def judge(at: Scene, kinto: Kinto) -> None:
    """Everything that Kinto lists is a row, everything deleted that was seen a row that says so."""
    at.judge_final()
    wait_for("the cursors are behind every write", lambda: not claimed_too_little(at), 30)
    assert claims_ahead(at) == []
    rows = at.sink.table("records")
    records = at.pages()
    for watched in WATCHED:
        tenant = watched.tenant
        dead = {row["id"] for row in rows if row["_deleted"] and row["tenant_id"] == tenant}
        noticeable = kinto.tallies.deleted(tenant, COLLECTION) & seen(watched, records).keys()
        assert noticeable
        assert dead == noticeable


def test_definitions_are_valid() -> None:
    assert load_folder(HERE).problems == ()


def test_kinto_is_synced_while_workers_are_killed(kinto: Kinto, lane: Lane, tmp_path: Path) -> None:
    with kinto_scene(lane, tmp_path, kinto) as at:
        at.start("ingest")
        at.start("apply")
        with writing(*(Writer(kinto.actions(t), seed=7, every_s=0.1) for t in TENANTS)):
            at.kill_again_and_again(rounds=4, seed=11)
            faults = at.judge.live() + claims_ahead(at)
            assert not faults, "\n".join(faults[:20])
        judge(at, kinto)


def test_a_collection_that_was_created_anew_is_read_again(
    kinto: Kinto, lane: Lane, tmp_path: Path
) -> None:
    """The old cursor would be answered with 200 and nothing, and no tombstone tells what is gone."""
    with kinto_scene(lane, tmp_path, kinto) as at:
        at.start("ingest")
        at.start("apply")
        at.judge_final()
        for _ in range(5):
            kinto.delete("films", random.Random(9))
        kinto.create_anew("papers")
        fill(kinto, "papers", 40, seed=3)
        at.kill_again_and_again(rounds=1, seed=5)
        judge(at, kinto)
        epochs = {w.tenant: at.checkpoint(w.partition_id) for w in WATCHED}
        assert {t: c and c["source_epoch"] for t, c in epochs.items()} == {"papers": 1, "films": 0}

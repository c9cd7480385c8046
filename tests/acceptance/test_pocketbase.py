"""PocketBase, synced while many clients write to it at once and both stages are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from tests.acceptance.pocket.server import (
    COLLECTION,
    HERE,
    PASSWORD,
    USER,
    Pocket,
    installed_pocketbase,
)
from tests.acceptance.scene import Scene, definitions_with, differing, scene, writing
from tests.acceptance.writing import Writer
from tests.conftest import Lane
from tests.oracle.judge import Watched, micros, seen
from tests.oracle.sink import Row
from tests.workers import wait_for

pytestmark = pytest.mark.timeout(900)

TABLE = "pocket_items"
CLIENTS = ("ada", "bela", "cleo", "dora", "emil", "fritz")


@pytest.fixture
def pocket(tmp_path: Path) -> Iterator[Pocket]:
    with Pocket(installed_pocketbase(), tmp_path) as server:
        yield server


def same(record: dict[str, Any], row: Row) -> str | None:
    updated = datetime.fromisoformat(record["updated"])
    return differing(
        {
            "source_revision": (row["source_revision"], updated),
            "n": (row["n"], Decimal(str(record["n"]))),
            "v": (row["v"], record["v"]),
            "name": (row["name"], record["name"]),
            "updated": (row["updated"], updated),
        }
    )


WATCHED = Watched(
    partition_id="pocket/items",
    tenant="",
    collection=COLLECTION,
    table=TABLE,
    entity=lambda record: (record["id"], record["updated"]),
    row_id=lambda row: str(row["id"]),
    deletes=True,
    compare=same,
)


def fill(pocket: Pocket, count: int) -> None:
    """Some records of each client."""
    chance = random.Random(count)
    for number in range(count):
        pocket.create(CLIENTS[number % len(CLIENTS)], chance)


def test_definitions_are_valid() -> None:
    assert load_folder(HERE).problems == ()


def test_pocketbase_is_synced_while_workers_are_killed(
    pocket: Pocket, lane: Lane, tmp_path: Path
) -> None:
    fill(pocket, 150)
    environment = {"POCKET_URL": pocket.url, "POCKET_USER": USER}
    definitions = definitions_with(tmp_path, HERE, {"pocket": PASSWORD})
    with scene(lane, tmp_path, pocket, (WATCHED,), definitions, **environment) as at:
        at.sink.watch_revisions(TABLE)
        at.start("ingest")
        at.start("apply")
        clients = enumerate(CLIENTS)
        writers = [Writer(pocket.actions(c), seed=n, every_s=0.2) for n, c in clients]
        slow = Writer([(1, partial(pocket.sign_up, "gerd"))], seed=23, every_s=2)
        with writing(*writers, slow):
            at.kill_again_and_again(rounds=4, seed=17)
            faults = at.judge.live()
            assert not faults, "\n".join(faults[:20])
        at.judge_final()
        assert_keyset_alone_found_every_record(at)
        assert_deletes_were_noticed(at, pocket)


def assert_keyset_alone_found_every_record(at: Scene) -> None:
    """At its last time stamp, without the help of snapshots, which would hide a leak between two."""
    state = at.upstream.state("", COLLECTION)
    newest = max(micros(record.updated_at) for record in state.values())

    def claimed() -> bool:
        checkpoint = at.checkpoint(WATCHED.partition_id)
        assert checkpoint
        return micros(checkpoint["plans"]["keyset"]["complete_before"]) > newest

    wait_for("every record is claimed", claimed, 30)
    logged = seen(WATCHED, at.pages("keyset"))
    lost = [name for name, record in state.items() if record.updated_at not in logged[name]]
    assert lost == []


def assert_deletes_were_noticed(at: Scene, pocket: Pocket) -> None:
    """Each record that was deleted has a row that says so, or none ever saw it."""
    rows = {row["id"]: row for row in at.sink.table(TABLE)}
    known = pocket.tallies.deleted("", COLLECTION) & rows.keys()
    assert known, "the clients deleted nothing that had been seen"
    assert {name for name, row in rows.items() if row["_deleted"]} == known
    assert all(rows[name]["deleted_at"] for name in known)
    assert known == pocket.tallies.deleted("", COLLECTION) & seen(WATCHED, at.pages()).keys()

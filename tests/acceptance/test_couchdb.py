"""A CouchDB-protocol server, synced while clients write to it and both stages are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from tests.acceptance.couch.server import (
    COLLECTION,
    HERE,
    PASSWORD,
    TENANTS,
    USER,
    Couch,
    installed_couch,
)
from tests.acceptance.scene import Scene, definitions_with, differing, scene, writing
from tests.acceptance.writing import Writer
from tests.conftest import Lane
from tests.oracle import log
from tests.oracle.judge import Watched, seen
from tests.oracle.sink import Row
from tests.workers import wait_for

pytestmark = pytest.mark.timeout(600)

TABLE = "couch_docs"
LATER = "songs"


@pytest.fixture
def couch(tmp_path: Path) -> Iterator[Couch]:
    with Couch(installed_couch(), tmp_path) as server:
        yield server


def stated(record: dict[str, Any]) -> tuple[str, int]:
    """Name and generation, as the feed or the listing shows them."""
    rev = record["changes"][0]["rev"] if "changes" in record else record["value"]["rev"]
    return record["id"], int(rev.split("-")[0])


def same(record: dict[str, Any], row: Row) -> str | None:
    doc = record["doc"]
    return differing(
        {
            "source_revision": (row["source_revision"], stated(record)[1]),
            "kind": (row["kind"], doc["type"]),
            "title": (row["title"], doc["title"]),
            "price": (row["price"], Decimal(doc["price"])),
            "tags": (row["tags"], doc["tags"]),
            "doc": (row["doc"], doc),
        }
    )


def watched(tenant: str) -> Watched:
    return Watched(
        partition_id=f"couch/docs/{tenant}",
        tenant=tenant,
        collection=COLLECTION,
        table=TABLE,
        entity=stated,
        row_id=lambda row: str(row["id"]),
        deletes=True,
        compare=same,
    )


@contextmanager
def couch_scene(lane: Lane, folder: Path, couch: Couch, *tenants: str) -> Iterator[Scene]:
    """A scene whose databases begin with a hundred documents each, of which some are deleted."""
    for tenant in TENANTS:
        fill(couch, tenant, 100)
    environment = {"COUCH_URL": couch.url, "COUCH_USER": USER}
    definitions = definitions_with(folder, HERE, {"couch": PASSWORD})
    judged = tuple(watched(tenant) for tenant in tenants)
    with scene(lane, folder, couch, judged, definitions, **environment) as at:
        at.sink.watch_revisions(TABLE)
        yield at


def fill(couch: Couch, tenant: str, count: int) -> None:
    chance = random.Random(count)
    for number in range(count):
        couch.create(tenant, chance)
        if number % 10 == 9:
            couch.delete(tenant, chance)


def claims_ahead(at: Scene, couch: Couch) -> list[str]:
    """Documents whose last change a cursor claims, and no page of the feed has it."""
    faults = []
    checkpoints = {w.tenant: at.checkpoint(w.partition_id) for w in at.judge.watched}
    pages = at.pages("cursor")
    for one in at.judge.watched:
        checkpoint = checkpoints[one.tenant]
        if checkpoint is None:
            continue
        cursor, epoch = cursor_of(checkpoint), checkpoint["source_epoch"]
        logged = seen(one, (page for page in pages if page.value["source_epoch"] == epoch))
        for change in couch.changes(one.tenant):
            name, generation = stated(change)
            if change["seq"] <= cursor and generation not in logged[name]:
                faults.append(f"{one.partition_id}: the cursor {cursor} claims {change}")
    return faults


def cursor_of(checkpoint: dict[str, Any]) -> int:
    """A sequence number, which is kept as JSON."""
    return int((checkpoint["plans"]["cursor"]["cursor"] or "0").removeprefix("json:"))


def judge(at: Scene, couch: Couch) -> None:
    """Everything that lives is a row, everything deleted that was shown a row that says so."""
    at.judge_final()

    def claimed() -> bool:
        checkpoints = {w.tenant: at.checkpoint(w.partition_id) for w in at.judge.watched}
        return all(c and cursor_of(c) == couch.head(tenant) for tenant, c in checkpoints.items())

    wait_for("the cursors are behind every write", claimed, 30)
    assert claims_ahead(at, couch) == []
    rows, pages = at.sink.table(TABLE), at.pages()
    for one in at.judge.watched:
        mine = [row for row in rows if row["tenant_id"] == one.tenant]
        dead = {row["id"] for row in mine if row["_deleted"]}
        noticeable = couch.tallies.deleted(one.tenant, COLLECTION) & seen(one, pages).keys()
        assert noticeable
        assert dead == noticeable
        assert all(row["deleted_at"] for row in mine if row["_deleted"])


def test_definitions_are_valid() -> None:
    assert load_folder(HERE).problems == ()


def test_databases_are_synced_while_workers_are_killed(
    couch: Couch, lane: Lane, tmp_path: Path
) -> None:
    """One of them is made, and named in the file of tenants, while the workers run."""
    with couch_scene(lane, tmp_path, couch, *TENANTS, LATER) as at:
        at.start("ingest")
        at.start("apply")
        at.wait_for_work("ingest")
        couch.create_database(LATER)
        fill(couch, LATER, 30)
        with (tmp_path / "definitions/tenants/databases.yaml").open("a") as file:
            file.write(f"- id: {LATER}\n")
        everyone = (*TENANTS, LATER)
        with writing(*(Writer(couch.actions(t), seed=7, every_s=0.1) for t in everyone)):
            at.kill_again_and_again(rounds=4, seed=19)
            faults = at.judge.live() + claims_ahead(at, couch)
            assert not faults, "\n".join(faults[:20])
        judge(at, couch)


def test_a_database_that_was_created_anew_is_read_again(
    couch: Couch, lane: Lane, tmp_path: Path
) -> None:
    """Its feed would answer the old cursor with 200 and nothing; its revisions begin again."""
    with couch_scene(lane, tmp_path, couch, *TENANTS) as at:
        at.start("ingest")
        at.start("apply")
        at.judge_final()
        couch.delete("films", random.Random(9))
        couch.create_anew("papers")
        fill(couch, "papers", 40)
        at.kill_again_and_again(rounds=1, seed=5)
        judge(at, couch)
        epochs = {w.tenant: at.checkpoint(w.partition_id) for w in at.judge.watched}
        assert {t: c and c["source_epoch"] for t, c in epochs.items()} == {"papers": 1, "films": 0}
        gaps = [r for r in log.read(lane.kafka, f"{lane.prefix}observations") if is_gap(r)]
        assert [gap.value["partition_id"] for gap in gaps] == ["couch/docs/papers"]
        assert "re-created" in gaps[0].value["reason"]
        assert at.sink.rows("SELECT cause FROM gapless.gap")


def test_a_database_that_has_passed_the_old_cursor_is_set_right_by_its_listing(
    couch: Couch, lane: Lane, tmp_path: Path
) -> None:
    """Nothing that this server says tells that it was made anew: the feed goes on in its middle."""
    chance = random.Random(3)
    with couch_scene(lane, tmp_path, couch, "papers") as at:
        for _ in range(20):
            couch.change("papers", chance)
        at.start("ingest")
        at.start("apply")
        at.judge_final()
        at.kill("ingest")
        before = couch.head("papers")
        couch.create_anew("papers")
        fill(couch, "papers", 150)
        assert couch.head("papers") > before
        at.start("ingest")
        at.judge_final()
        checkpoint = at.checkpoint("couch/docs/papers")
        assert checkpoint
        assert checkpoint["source_epoch"] == 0


def is_gap(record: log.Raw) -> bool:
    return record.type == "Mark" and bool(record.value["kind"] == "gap")

"""A foreign Singer tap reads a provider that is written to, while both stages are killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from tests.acceptance.scene import Scene, differing, scene
from tests.acceptance.singer.tap import HERE, installed_tap
from tests.conftest import Lane
from tests.oracle.judge import Watched, micros, seen
from tests.oracle.sink import Row
from tests.upstream import Provider
from tests.workers import wait_for, workers

pytestmark = pytest.mark.timeout(600)
OWNER, TENANT, COLLECTION = "tapped/accounts/north", "north", "accounts"
# A run of the tap gives one page: these are met in every run.
DEATHS = {
    "ingest": ("ingest.after_fetch", "ingest.after_flush", "ingest.after_checkpoints"),
    "apply": ("apply.after_first_upsert", "apply.after_ledger", "apply.after_commit"),
}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider.start(accounts=120, record_bytes=200) as found:
        yield found


@pytest.fixture
def environment(provider: Provider, tmp_path: Path) -> dict[str, str]:
    """What workers need to find the tap; its private folders lie in one that the test can see."""
    private = tmp_path / "private"
    private.mkdir()
    path = f"{installed_tap()}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, "TAPPED_URL": provider.url, "TMPDIR": str(private)}


def same(record: dict[str, Any], row: Row) -> str | None:
    return differing(
        {
            "source_revision": (row["source_revision"], record["version"]),
            **{n: (row[n], record[n]) for n in ("external_id", "lifecycle", "plan", "email")},
            "name": (row["name"], record["profile"]["name"]),
            "city": (row["city"], record["profile"]["address"]["city"]),
            "balance": (row["balance"], Decimal(record["balance"])),
            "updated_at": (micros(row["updated_at"].isoformat()), micros(record["updated_at"])),
        }
    )


WATCHED = Watched(
    partition_id=OWNER,
    tenant=TENANT,
    collection=COLLECTION,
    table="tapped_accounts",
    entity=lambda record: (record["id"], record["version"]),
    row_id=lambda row: str(row["id"]),
    compare=same,
)


def claimed(at: Scene) -> int | None:
    """Up to which stamp the stored STATE claims everything, in microseconds."""
    checkpoint = at.checkpoint(OWNER)
    state = checkpoint and checkpoint["plans"]["singer"]["state"]
    if not state:
        return None
    bookmark = json.loads(state).get("bookmarks", {}).get("accounts", {})
    value = bookmark.get("replication_key_value")
    return None if value is None else micros(value)


def claims_ahead(at: Scene) -> list[str]:
    """Accounts whose last state the STATE claims, and no page of the log has it."""
    before = claimed(at)
    if before is None:
        return []
    logged = seen(WATCHED, at.pages("singer"))
    facts = at.upstream.state(TENANT, COLLECTION).values()
    return [
        f"the STATE of {before} claims {fact.id} at {fact.body['version']}"
        for fact in facts
        if micros(fact.updated_at) <= before and fact.body["version"] not in logged[fact.id]
    ]


def test_definitions_are_valid() -> None:
    assert load_folder(HERE).errors == ()


def test_a_mapping_is_drafted_from_the_taps_own_words(
    environment: dict[str, str], tmp_path: Path
) -> None:
    full = {**environment, "GAPLESS_DEFINITIONS": str(HERE)}
    with workers(full, tmp_path) as group:
        done = group.run("init --from-singer tapped/accounts")
        assert done.returncode == 0, done.stderr
        checked = group.run("check tapped --json")
        assert checked.returncode == 0, checked.stderr
    assert "\nkey: id\n" in done.stdout
    assert "\n  version: bigint\n" in done.stdout
    assert "\n  profile_address_city: text\n" in done.stdout
    [told] = json.loads(checked.stdout)
    [sample] = told["streams"][0]["samples"]
    assert sample["outcomes"] == {"applied": 120}


def test_a_tap_is_synced_while_workers_are_killed(
    lane: Lane, provider: Provider, environment: dict[str, str], tmp_path: Path
) -> None:
    with scene(lane, tmp_path, provider, (WATCHED,), HERE, **environment) as at:
        at.sink.watch_revisions("tapped_accounts")
        at.start("ingest")
        at.start("apply")
        provider.traffic(6, weights={"delete": 0, "event": 0})
        at.kill_again_and_again(rounds=2, seed=13, deaths=DEATHS)
        faults = at.judge.live() + claims_ahead(at)
        assert not faults, "\n".join(faults[:20])
        provider.traffic(0)
        newest = max(micros(fact.updated_at) for fact in provider.state(bodies=False).values())
        wait_for("the STATE is behind every write", lambda: claimed(at) == newest, 60)
        at.judge_final()
        assert claims_ahead(at) == []
        for worker in at.running.values():
            assert worker.terminate() == 0
    assert list((tmp_path / "private").glob("gapless-tap-*")) == []

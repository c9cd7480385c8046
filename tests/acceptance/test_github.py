"""The GitHub API of emulate, synced while clients write to it and both stages are killed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from tests.acceptance.github.server import (
    HERE,
    READER,
    TENANTS,
    GitHub,
    installed_emulate,
)
from tests.acceptance.scene import Scene, differing, scene, writing
from tests.acceptance.writing import Writer
from tests.conftest import Lane
from tests.oracle.judge import Watched, micros, seen
from tests.oracle.sink import Row
from tests.workers import wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    with GitHub(installed_emulate(), tmp_path) as server:
        yield server


def same_issue(record: dict[str, Any], row: Row) -> str | None:
    plain = ("number", "title", "body", "state", "comments", "locked")
    return differing(
        {
            **{name: (row[name], record[name]) for name in plain},
            **_times(record, row, "created_at", "updated_at", "closed_at"),
            "source_revision": (row["source_revision"], _time(record["updated_at"])),
            "reason": (row["reason"], record["state_reason"]),
            "author": (row["author"], record["user"]["login"]),
            "labels": (row["labels"], [label["name"] for label in record["labels"]]),
        }
    )


def same_comment(record: dict[str, Any], row: Row) -> str | None:
    return differing(
        {
            **_times(record, row, "created_at", "updated_at"),
            "body": (row["body"], record["body"]),
            "commit": (row["commit"], record["commit_id"]),
            "author": (row["author"], record["user"]["login"]),
        }
    )


def same_label(record: dict[str, Any], row: Row) -> str | None:
    names = ("name", "color", "description")
    return differing({name: (row[name], record[name]) for name in names})


def _times(record: dict[str, Any], row: Row, *names: str) -> dict[str, tuple[object, object]]:
    return {name: (row[name], _time(record[name])) for name in names}


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def stamped(record: dict[str, Any]) -> tuple[str, Any]:
    return str(record["id"]), record["updated_at"]


def unstamped(record: dict[str, Any]) -> tuple[str, Any]:
    return str(record["id"]), (record["name"], record["color"], record["description"])


WATCHED = tuple(
    Watched(
        partition_id=f"github/{collection}/{tenant}",
        tenant=tenant,
        collection=collection,
        table=collection,
        entity=entity,
        row_id=lambda row: str(row["id"]),
        deletes=True,
        compare=compare,
    )
    for tenant in TENANTS
    for collection, entity, compare in (
        ("issues", stamped, same_issue),
        ("comments", stamped, same_comment),
        ("labels", unstamped, same_label),
    )
)


def fill(github: GitHub, repo: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        github.create_label(repo, chance)
    for _ in range(45):
        github.open_issue(repo, chance)
    for _ in range(90):
        github.comment(repo, chance)


def test_definitions_are_valid() -> None:
    assert load_folder(HERE).problems == ()


def test_github_is_synced_while_workers_are_killed(
    github: GitHub, lane: Lane, tmp_path: Path
) -> None:
    for tenant in TENANTS:
        fill(github, tenant, seed=len(tenant))
    environment = {"GITHUB_URL": github.url, "GITHUB_TOKEN": READER}
    with scene(lane, tmp_path, github, WATCHED, HERE, **environment) as at:
        for table in ("issues", "comments"):
            at.sink.watch_revisions(table)
        at.start("ingest")
        at.start("apply")
        with writing(*(Writer(github.actions(t), seed=7, every_s=0.15) for t in TENANTS)):
            at.kill_again_and_again(rounds=4, seed=13)
        at.judge_final()
        assert_windows_alone_found_every_issue(at)
        for tenant in TENANTS:
            assert_deletes_were_noticed(at.sink.table("comments"), github, tenant)


def assert_windows_alone_found_every_issue(at: Scene) -> None:
    """At its last time stamp, without the help of snapshots, which would hide a leak between two."""

    def complete_before(tenant: str) -> int:
        checkpoint = at.checkpoint(f"github/issues/{tenant}")
        assert checkpoint
        return micros(checkpoint["plans"]["interval"]["complete_before"])

    issues = {tenant: at.upstream.state(tenant, "issues") for tenant in TENANTS}
    newest = {t: max(micros(state.updated_at) for state in issues[t].values()) for t in TENANTS}
    wait_for(
        "every issue is claimed",
        lambda: all(complete_before(tenant) > newest[tenant] for tenant in TENANTS),
        30,
    )
    pages = at.pages("interval")
    for watched in WATCHED:
        if watched.collection == "issues":
            logged = seen(watched, pages)
            known = issues[watched.tenant].items()
            lost = [name for name, state in known if state.updated_at not in logged[name]]
            assert lost == []


def assert_deletes_were_noticed(rows: list[Row], github: GitHub, tenant: str) -> None:
    """Every comment that was deleted has a row that says so, or never had one."""
    gone = github.tallies.deleted(tenant, "comments")
    mine = {str(row["id"]): row for row in rows if row["tenant_id"] == tenant}
    known = gone & mine.keys()
    assert known, "the clients deleted nothing that had been seen"
    assert all(mine[name]["_deleted"] and mine[name]["deleted_at"] for name in known)

"""The shipped definitions of GitHub and Stripe read servers that nobody here wrote."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.acceptance.github import server as github_server
from tests.acceptance.github.server import GitHub, installed_emulate
from tests.acceptance.stripe import server as stripe_server
from tests.acceptance.stripe.server import Stripe, installed_localstripe
from tests.contract.syncing import Read, read
from tests.workers import wait_for

# A repository that is there, pages that are turned, no minute to wait for the newest change.
GITHUB = {
    "repo: example-org/example": "repo: octocat/kernel",
    "size: 100, cap: 100": "size: 7, cap: 100",
}
QUICK_ISSUES = {"order: asc, lookback: 1h": "order: asc, lookback: 1h, settle: 1s"}
QUICK_PULLS = {"order: desc, lookback: 1h": "order: desc, lookback: 1h, settle: 1s"}
STRIPE = {"size: 100, cap: 100": "size: 4, cap: 100", "settle: 5m": "settle: 1s"}


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    with GitHub(installed_emulate(), tmp_path) as server:
        chance = random.Random(11)
        for _ in range(4):
            server.create_label("kernel", chance)
        for number in range(17):
            server.open_issue("kernel", chance)
            server.close_or_open("kernel", chance)
            server.open_pull("kernel", f"topic-{number}", chance)
        settle()
        yield server


@pytest.fixture
def stripe(tmp_path: Path) -> Iterator[Stripe]:
    """Nine customers, two of them changed and one deleted."""
    with Stripe(installed_localstripe(), tmp_path) as server:
        address = {"city": "Oslo", "country": "NO"}
        names = [
            server.create(
                "customers", email=f"{n}@shop.example", name=f"Number {n}", address=address
            )
            for n in range(9)
        ]
        for name in names[:2]:
            server.change("customers", name, email="changed@shop.example")
        server.delete("customers", names[8])
        settle()
        yield server


def settle() -> None:
    """Until all that was written is older than `settle`, by a clock that tells whole seconds."""
    written = time.time()
    wait_for("the newest change is old enough", lambda: time.time() > written + 3, 10)


def check(read: Read, *, listing: bool) -> None:
    """Windows and, where there is one, the listing were read to their ends, over several pages."""
    assert read.blocked == ""
    assert read.marks("interval_complete")
    assert bool(read.marks("snapshot_complete")) == listing
    for plan in ("interval", "snapshot") if listing else ("interval",):
        assert max(page.page for page in read.pages(plan)) >= 2, f"{plan} turned no page"


def moment(text: str | None) -> str | None:
    """A time of GitHub as rows show it."""
    if text is None:
        return None
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("stream", "mapping", "quick"),
    [
        ("issues", "github_issues", QUICK_ISSUES),
        ("pulls", "github_pull_requests", QUICK_PULLS),
    ],
)
def test_github_reads_emulate(
    github: GitHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stream: str,
    mapping: str,
    quick: dict[str, str],
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", github_server.READER)
    found = read(
        tmp_path, f"github/{stream}/example", github.url, monkeypatch.setenv, {**GITHUB, **quick}
    )
    check(found, listing=True)
    wanted = {name: one.body for name, one in github.state("kernel", stream).items()}
    assert len(wanted) == 17
    told = {(str(one["id"]), one["updated_at"]) for one in found.found("interval")}
    assert {(name, one["updated_at"]) for name, one in wanted.items()} <= told
    stored = found.stored(mapping)
    assert (stored.faults, stored.gone) == ([], {})
    assert stored.rows.keys() == wanted.keys()
    for name, one in wanted.items():
        row = stored.rows[name]
        assert {field: row[field] for field in ("number", "title", "body", "state")} == {
            field: one[field] for field in ("number", "title", "body", "state")
        }
        assert row["author"] == one["user"]["login"]
        assert row["labels"] == [label["name"] for label in one["labels"]]
        assert [row["updated_at"], row["closed_at"]] == [
            moment(one["updated_at"]),
            moment(one["closed_at"]),
        ]
        if stream == "pulls":
            assert (row["head_branch"], row["base_branch"]) == (one["head"]["ref"], "main")
            assert row["head_sha"] == one["head"]["sha"]


def sync_stripe(
    stripe: Stripe,
    folder: Path,
    setenv: Callable[[str, str], None],
    stream: str,
    changes: dict[str, str],
) -> Read:
    setenv("STRIPE_KEY", stripe_server.KEY)
    url = stripe.url.removesuffix("/v1")
    return read(folder, f"stripe/{stream}", url, setenv, {**STRIPE, **changes})


def test_stripes_events_from_localstripe(
    stripe: Stripe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sync_stripe(stripe, tmp_path, monkeypatch.setenv, "events", {})
    check(found, listing=False)
    wanted = stripe.listed("events")
    assert len(wanted) == 12 and "customer.deleted" in {one["type"] for one in wanted.values()}
    stored = found.stored("stripe_events")
    assert stored.faults == []
    assert {name: (row["type"], row["object_id"]) for name, row in stored.rows.items()} == {
        name: (one["type"], one["data"]["object"]["id"]) for name, one in wanted.items()
    }


@pytest.mark.parametrize("kind", ["customer.created", "customer.updated", "customer.deleted"])
def test_stripes_customers_from_localstripe(
    stripe: Stripe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It filters by one whole type only, so the stream is shown the changes of one."""
    kinds = '"types[]": [customer.created, customer.updated, customer.deleted]'
    found = sync_stripe(stripe, tmp_path, monkeypatch.setenv, "customers", {kinds: f"type: {kind}"})
    assert found.blocked == ""
    assert found.marks("snapshot_complete")
    assert max(page.page for page in found.pages("snapshot")) >= 2, "it turned no page"
    events = [one for one in stripe.listed("events").values() if one["type"] == kind]
    told = {one["data"]["object"]["id"] for one in events}
    assert {one["data"]["object"]["id"] for one in found.found("interval")} == told
    stored = found.stored("stripe_customers")
    assert stored.faults == []
    wanted = stripe.listed("customers")
    assert len(wanted) == 8
    gone = told if kind == "customer.deleted" else set()
    assert stored.gone.keys() == gone
    assert stored.rows.keys() - told == wanted.keys() - told
    columns = ("email", "name", "currency", "delinquent")
    for name, one in wanted.items():
        row = stored.rows[name]
        assert {field: row[field] for field in columns} == {field: one[field] for field in columns}
        assert row["country"] == "NO"

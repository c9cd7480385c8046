"""Ingest from a real provider over HTTP into a real log, as the command runs it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from ingest.budget import SHUTDOWN_S
from ingest.process import BLOCKED, MORE_TO_DO, OK
from ingest.service import horizon_of, run
from schemas.definitions.load import load_folder
from schemas.records import Mark, Observation
from schemas.routing import route
from schemas.settings import Settings
from tests.conftest import Lane
from tests.integration.ingest import log
from tests.integration.ingest.conftest import small_settings, with_topics
from tests.upstream import Provider

OWNER = "shop/accounts/north"
SOURCE = """
gapless: 1
source: shop
base_url: {env: SHOP_URL}
tenants: {list: [{id: north}]}
limits: {timeout: 5s, attempts: 2, wait_max: 1s, reserve: 2s}
upstream_retention: 900d
streams:
  accounts:
    get: /t/{tenant.id}/accounts
    params: {changed_from: "{start}", changed_to: "{end}", page_token: "{token}", limit: "{size}"}
    records: body.items
    pages: {next: body.next_page_token, size: 20}
    plan:
      interval:
        time: updated_at
        format: rfc3339_ms
        start: 2026-01-01
        bounds: "[)"
        settle: 500ms
        lookback: none
        width: 400d
    schedule: {every: 10m}
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "shop.yaml").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def settings(lane: Lane) -> Settings:
    return with_topics(small_settings(lane, partitions=2))


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider.start(accounts=150, record_bytes=100) as found:
        monkeypatch.setenv("SHOP_URL", found.url)
        yield found


def once(settings: Settings, folder: Path, budget_s: float | None = None) -> int:
    return asyncio.run(run(settings, load_folder(folder), once=True, budget_s=budget_s))


def stored_ids(settings: Settings) -> set[str]:
    found: set[str] = set()
    for seen in log.observations(settings, route(OWNER, 2)):
        if isinstance(seen.content, Observation):
            found |= {json.loads(record)["id"] for record in seen.content.records}
    return found


def test_everything_due_is_in_the_log_and_a_second_run_adds_what_is_new(
    settings: Settings, definitions: Path, provider: Provider
) -> None:
    assert once(settings, definitions) == OK
    there = {fact.id for fact in provider.ledger("north", "accounts")}
    assert len(there) == 150
    assert stored_ids(settings) == there
    checkpoint = log.checkpoints(settings, route(OWNER, 2))[OWNER]
    plan = checkpoint.plans["interval"]
    assert plan.complete_before is not None and plan.open == []
    marks = [
        seen.content.kind
        for seen in log.observations(settings, route(OWNER, 2))
        if isinstance(seen.content, Mark)
    ]
    assert marks == ["interval_complete"]
    requests = len(provider.requests())
    assert once(settings, definitions) == OK
    assert len(provider.requests()) == requests, "nothing was due"


def test_a_budget_that_is_spent_leaves_more_to_do(
    settings: Settings, definitions: Path, provider: Provider
) -> None:
    provider.faults({"path": "/accounts", "kind": "delay", "delay_s": 0.7})
    assert once(settings, definitions, budget_s=7) == MORE_TO_DO
    left_s = REGISTRY.get_sample_value("gapless_ingest_budget_left_seconds")
    assert left_s is not None and 0 < left_s < 5
    first = stored_ids(settings)
    assert first and len(first) < 150
    checkpoint = log.checkpoints(settings, route(OWNER, 2))[OWNER]
    assert checkpoint.headway["interval"].records == len(first)
    assert max(checkpoint.answer_s) >= 0.7
    provider.faults()
    assert once(settings, definitions, budget_s=60) == OK
    assert len(stored_ids(settings)) == 150
    reserve_s = REGISTRY.get_sample_value("gapless_ingest_budget_reserve_seconds")
    assert reserve_s is not None and reserve_s >= 0.7 + SHUTDOWN_S, "answers were slow yesterday"
    assert log.checkpoints(settings, route(OWNER, 2))[OWNER].headway == {}, "the poll is over"


def test_wrong_credentials_at_the_source_are_blocked_and_say_so(
    settings: Settings, definitions: Path, provider: Provider
) -> None:
    provider.faults({"path": "/accounts", "kind": "status", "status": 401})
    assert once(settings, definitions) == BLOCKED
    blocked = log.checkpoints(settings, route(OWNER, 2))[OWNER].blocked
    assert blocked is not None and "401" in blocked.reason
    provider.faults()


def test_what_the_definition_declares_is_the_horizon(definitions: Path) -> None:
    os.environ.setdefault("SHOP_URL", "http://127.0.0.1:9")
    loaded = load_folder(definitions)
    assert horizon_of(loaded, OWNER).upstream_s == 900 * 86_400
    assert horizon_of(loaded, "gone/stream").upstream_s is None

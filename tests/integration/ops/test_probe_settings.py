"""`gapless probe` and settings of the simulated provider that must not lead it astray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ops.probing import probe
from tests.integration.ops.test_probe import undeclared
from tests.integration.ops.verbs import run
from tests.upstream import Provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider.start(tenants=2, accounts=60, events=60) as found:
        yield found


@pytest.fixture
def environment(tmp_path: Path, provider: Provider) -> dict[str, str]:
    return undeclared(tmp_path, provider)


@pytest.mark.parametrize(
    "habits",
    [
        {"compress": True, "odd_tokens": True, "end_token": "empty", "default_limit": 7},
        {"end_token": "same", "empty_pages": True, "visibility_jitter_ms": 300},
        {"repeated_pages": True},
    ],
    ids=["tokens", "ends", "repeated_pages"],
)
def test_habits_that_change_no_verdict(
    environment: dict[str, str], provider: Provider, habits: dict[str, Any]
) -> None:
    provider.settings(**habits)
    found, told = probe(environment, code=0)
    assert told["requests"] == len(provider.requests()) <= 60
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["filter, direction"] == "works"
    assert observed["bounds"] == "[)"
    assert observed["granularity"] == "1ms, stored 1ms"
    assert observed["same walk again"] == "same, 3 of 3"
    assert observed["token, used twice"] == "same page"
    assert told["streams"][0]["would_write"] == {"plan.interval.bounds": "[)"}


def test_a_filter_that_means_nothing(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(ignore_filter=True)
    found, told = probe(environment, code=0)
    assert found["filter, direction"]["observed"] == "{start} and {end} ignored"
    assert found["filter, direction"]["would_lose"] == "nothing"
    assert found["bounds"]["observed"] == "unknown"
    assert "plan.interval.bounds" not in told["streams"][0]["would_write"]


@pytest.mark.parametrize("fault", [{"kind": "reset", "nth": [3]}, {"kind": "bom"}], ids=str)
def test_answers_that_come_whole_at_last(
    environment: dict[str, str], provider: Provider, fault: dict[str, Any]
) -> None:
    provider.faults({"path": "/accounts", **fault})
    found, told = probe(environment, code=0)
    assert told["requests"] == len(provider.requests()) <= 60
    assert found["bounds"]["observed"] == "[)"


def test_answers_that_are_no_pages(environment: dict[str, str], provider: Provider) -> None:
    provider.faults({"path": "/accounts", "kind": "html"})
    done = run(environment, "probe", "demo_crm", "--json")
    assert done.returncode == 3, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["requests"] == len(provider.requests()) <= 60
    assert "not a page" in str(told["streams"])

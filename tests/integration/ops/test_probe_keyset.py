"""`gapless probe` asks the simulated provider by keyset: positions that go on, and ones that do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.ops.verbs import REPOSITORY, run
from tests.upstream import Provider

DEFINITIONS = REPOSITORY / "tests/faults/more_definitions/keyset"
NOWHERE = {"GAPLESS_KAFKA": "127.0.0.1:9", "GAPLESS_POSTGRES": "postgresql://127.0.0.1:9/none"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Some of its accounts share their time."""
    with Provider.start(tenants=1, accounts=30) as found:
        moment = max(fact.updated_at for fact in found.state(bodies=False).values())
        found.put_together([{"id": f"tie-{n:02}", "updated_at": moment} for n in range(12)])
        yield found


def probe(provider: Provider) -> dict[str, dict[str, Any]]:
    """The findings by `plan: name`."""
    environment = {**NOWHERE, "GAPLESS_DEFINITIONS": str(DEFINITIONS), "CRM_URL": provider.url}
    done = run(environment, "probe", "crm", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (stream,) = json.loads(done.stdout)["streams"]
    return {f"{f['plan']}: {f['name']}": f for f in stream["findings"]}


def test_a_keyset_that_goes_on(provider: Provider) -> None:
    found = probe(provider)
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["keyset: filter, direction"] == "works"
    assert observed["keyset: bounds"] == "[)"
    assert observed["keyset: granularity"] == "1ms, stored 1ms"
    assert observed["keyset: order"] == "asc"
    assert observed["keyset: order of ties"] == "by id"
    assert observed["keyset: position"] == "goes on"
    assert observed["keyset: same walk again"] == "same, 3 of 3"
    assert observed["snapshot: lists all"] == "all 20"
    assert {finding["would_lose"] for finding in found.values()} <= {
        "nothing",
        "unknown",
        "found by snapshot",
    }


def test_a_position_that_is_ignored(provider: Provider) -> None:
    provider.settings(ignore_filter=True)
    found = probe(provider)
    ignored = found["keyset: filter, direction"]
    assert ignored["observed"] == "{after.time} and {until} ignored"
    for finding in (ignored, found["keyset: position"]):
        assert finding["would_lose"] == "nothing, but its pages go in a circle"
    assert found["keyset: position"]["observed"] == "begins again"
    assert found["keyset: bounds"]["observed"] == "unknown"

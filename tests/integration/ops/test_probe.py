"""`gapless probe` against the simulated provider: every habit that it can be given has its verdict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.definitions.load import load_folder
from schemas.definitions.source import Bounds, IntervalSpec
from tests.integration.ops.probing import changed, probe
from tests.integration.ops.verbs import REPOSITORY, run
from tests.upstream import Provider

DEMO = REPOSITORY / "ops/demo/definitions"
NOWHERE = {"GAPLESS_KAFKA": "127.0.0.1:9", "GAPLESS_POSTGRES": "postgresql://127.0.0.1:9/none"}
UNDECLARED = (('bounds: "[)"\n        ', ""), (", cap: 1000", ""))


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider.start(tenants=2, accounts=60, events=60) as found:
        yield found


@pytest.fixture
def environment(tmp_path: Path, provider: Provider) -> dict[str, str]:
    return undeclared(tmp_path, provider)


def undeclared(tmp_path: Path, provider: Provider) -> dict[str, str]:
    """The demo's definitions, without what a probe can find out."""
    folder = tmp_path / "definitions"
    shutil.copytree(DEMO, folder)
    for file in (folder / "sources").glob("*.yaml"):
        text = file.read_text()
        for old, new in UNDECLARED:
            text = text.replace(old, new)
        file.write_text(text)
    return {**NOWHERE, "GAPLESS_DEFINITIONS": str(folder), "DEMO_URL": provider.url}


def test_a_well_behaved_server(environment: dict[str, str], provider: Provider) -> None:
    found, told = probe(environment, code=0)
    assert told["requests"] <= 60
    assert len(provider.requests()) == told["requests"]
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["filter, direction"] == "works"
    assert observed["bounds"] == "[)"
    assert observed["granularity"].startswith("1ms, ")
    assert observed["same walk again"].startswith("same, ")
    assert observed["token, used twice"] == "same page"
    assert observed["token, elsewhere"] == "same page"
    assert observed["token, other window"] == "refused"
    assert found["deletes"]["would_lose"] == "found by snapshot"
    listing = {f["name"]: f for f in told["streams"][0]["findings"] if f["plan"] == "snapshot"}
    assert listing["lists all"]["observed"] == "all 60"
    assert all(entry["method"] == "GET" for entry in provider.requests())


@pytest.mark.parametrize("bounds", ["[)", "[]", "()", "(]"])
def test_bounds(environment: dict[str, str], provider: Provider, bounds: str) -> None:
    provider.settings(bounds=bounds)
    found, told = probe(environment)
    assert found["bounds"]["observed"] == bounds
    assert found["bounds"]["would_lose"] == "nothing"
    assert told["streams"][0]["would_write"]["plan.interval.bounds"] == bounds


def test_declared_bounds_that_lose_rows(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(bounds="()")
    changed(environment, "demo_crm", "settle: 2s", 'bounds: "[)"\n        settle: 2s')
    found, _ = probe(environment, code=1)
    assert found["bounds"]["would_lose"] == "rows stamped exactly where two windows meet"
    text = run(environment, "probe", "demo_crm").stdout
    assert "bounds" in text
    assert "rows stamped exactly where two windows meet" in text


def test_a_coarse_step(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(granularity_us=1_000_000, bounds="()")
    found, told = probe(environment, code=1)
    assert found["granularity"]["observed"].startswith("1s")
    assert found["granularity"]["would_lose"].startswith("rows of the 1s")
    assert told["streams"][0]["would_write"]["plan.interval.granularity"] == "1s"


def test_stamps_stored_finer_than_shown(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(stored_us=1, shown_us=1_000)
    provider.traffic(400, weights={"insert": 1, "update": 0, "delete": 0, "event": 0}, limit=200)
    provider.wait_written(200)
    changed(environment, "demo_crm", "start: 2026-01-01", f"start: {_soon(provider)}")
    found, _ = probe(environment)
    assert "stored finer" in found["granularity"]["observed"]


def _soon(provider: Provider) -> str:
    """A second that begins before the newest rows and behind all seeded ones."""
    newest = max(fact.updated_at for fact in provider.state(bodies=False).values())
    return newest[:16] + ":00Z"


def test_a_silent_page_cap_and_what_is_written(
    environment: dict[str, str], provider: Provider
) -> None:
    provider.settings(page_cap=15)
    file = Path(environment["GAPLESS_DEFINITIONS"]) / "sources/demo_crm.yaml"
    before = file.read_text()
    found, told = probe(environment, "demo_crm", "--fix")
    assert found["page cap"]["observed"] == "15"
    spec = load_folder(file.parents[1]).check().sources["demo_crm"].streams["accounts"].changes
    assert isinstance(spec, IntervalSpec)
    assert spec.bounds is Bounds.CLOSED_OPEN
    assert spec.request.pages is not None
    assert spec.request.pages.cap == 15
    assert not spec.request.pages.stable
    kept = [line for line in file.read_text().splitlines() if line in before.splitlines()]
    assert len(kept) >= len(before.splitlines()) - 1
    assert '+        bounds: "[)"' in told["diff"]


def test_short_pages_prove_no_cap(environment: dict[str, str], provider: Provider) -> None:
    changed(environment, "demo_crm", "size: 100", "size: 20")
    provider.settings(short_pages=True)
    found, told = probe(environment)
    assert "cap" not in str(told["streams"][0]["would_write"])
    assert found["page cap"]["observed"].startswith(("pages of different sizes", "at least"))
    assert found["page cap"]["would_lose"] == "nothing"


def test_rows_that_show_late(environment: dict[str, str], provider: Provider) -> None:
    changed(environment, "demo_crm", "settle: 2s", "settle: 1s")
    changed(environment, "demo_crm", "lookback: 10s", "lookback: none")
    # far above the pauses between two looks, which a busy machine stretches
    provider.settings(visibility_lag_ms=8_000)
    provider.traffic(20, weights={"insert": 3, "update": 2, "delete": 0, "event": 0})
    provider.wait_written(200)
    found, _ = probe(environment, code=1)
    late = found["visible after"]
    assert late["observed"].startswith("up to ")
    assert late["would_lose"] == "rows that show later than `settle`"


def test_rows_that_show_at_once(environment: dict[str, str], provider: Provider) -> None:
    provider.traffic(20, weights={"insert": 3, "update": 2, "delete": 0, "event": 0})
    found, _ = probe(environment)
    assert found["visible after"]["observed"].startswith("at once")


def test_deletes_that_leave_no_trace(environment: dict[str, str], provider: Provider) -> None:
    provider.traffic(30, weights={"insert": 3, "update": 0, "delete": 3, "event": 0})
    found, _ = probe(environment)
    assert "none seen" in found["deletes"]["observed"] or "vanished" in found["deletes"]["observed"]
    assert found["deletes"]["would_lose"] == "found by snapshot"


def test_tokens_that_end_at_once(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(token_lifetime_s=0.0)
    found, _ = probe(environment, "demo_pipeline", code=0)
    assert found["token"]["observed"] == "refused at once"
    assert found["token"]["would_lose"] == "nothing, but a walk of several pages never ends"


def test_tokens_that_end_soon(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(token_lifetime_s=4.0)
    # It is looked at for seven seconds, since something happens.
    provider.traffic(10, weights={"insert": 1, "update": 0, "delete": 0, "event": 1})
    found, _ = probe(environment, "demo_pipeline", code=0)
    assert found["token, used twice"]["observed"] == "same page"
    assert found["token, lifetime"]["observed"] == "ended while it was probed"
    # Its rules name the answer; those of the other source do not.
    assert found["token, lifetime"]["would_lose"] == "nothing"
    found, _ = probe(environment, code=0)
    assert found["token, lifetime"]["would_lose"] == "nothing, but it stalls"


def test_tokens_that_lead_in_a_circle(environment: dict[str, str], provider: Provider) -> None:
    provider.settings(token_loop=True)
    found, told = probe(environment, code=0)
    assert told["requests"] <= 60
    assert found["bounds"]["observed"] == "[)"


def test_an_empty_page_at_the_end_is_no_cap(
    environment: dict[str, str], provider: Provider
) -> None:
    provider.settings(trailing_empty=True)
    found, told = probe(environment, code=0)
    assert found["page cap"]["observed"] == "at least 60"
    assert "plan.interval.pages.cap" not in told["streams"][0]["would_write"]


@pytest.mark.parametrize("answer", ["silent", "refuse"])
def test_a_provider_that_forgets(
    environment: dict[str, str], provider: Provider, answer: str
) -> None:
    provider.settings(retention_s=90_000.0, retention_answer=answer)
    found, _ = probe(environment, "demo_pipeline", code=0)
    assert found["filter, direction"]["observed"] == "works"
    assert found["bounds"]["observed"] == "[)"


def test_windows_that_are_refused_are_made_narrower(
    environment: dict[str, str], provider: Provider
) -> None:
    provider.settings(result_cap=50)
    found, _ = probe(environment, "demo_pipeline")
    assert found["filter, direction"]["observed"] == "works"
    assert found["bounds"]["observed"] == "[)"


OTHERS = """\
gapless: 1
source: others
base_url: {env: DEMO_URL}
limits: {timeout: 10s}
streams:
  feed:
    get: /t/north/accounts/changes
    params: {since: "{cursor}", limit: "{size}"}
    records: body.results
    pages: {size: 20, end: empty, stable: true}
    deletes: shown
    plan:
      cursor:
        next: body.last_seq
        identity: {get: /t/north/accounts/info, value: body.instance, head: body.update_seq}
  linked:
    get: /t/north/accounts/linked
    params: {since: "{start}", per_page: "{size}"}
    records: body
    pages: {next: header.link, size: 20}
    plan:
      interval: {time: updated_at, start: 2026-01-01, format: rfc3339_ms}
      snapshot: {every: 1d, params: {since: null}}
"""


def others(environment: dict[str, str], code: int = 0) -> dict[str, dict[str, Any]]:
    """Findings by stream, plan and name, of a source with a feed and with links."""
    folder = Path(environment["GAPLESS_DEFINITIONS"])
    (folder / "sources/others.yaml").write_text(OTHERS)
    done = run(environment, "probe", "others", "--json", "--requests", "150")
    assert done.returncode == code, done.stdout + done.stderr
    return {
        f"{stream['stream']} {finding['plan']} {finding['name']}": finding
        for stream in json.loads(done.stdout)["streams"]
        for finding in stream["findings"]
    }


def test_a_feed_and_links(environment: dict[str, str], provider: Provider) -> None:
    for name in sorted(provider.state(bodies=False))[:3]:
        provider.delete(name)
    provider.settings(page_cap=8)
    found = others(environment)
    observed = {name: finding["observed"] for name, finding in found.items()}
    assert observed["feed cursor cursor"] == "goes on"
    assert observed["feed cursor cursor, used twice"] == "same page"
    assert observed["feed cursor page cap"] == "8"
    assert observed["feed cursor same walk again"] == "same, 3 of 3"
    assert observed["linked interval filter, direction"] == "works"
    assert observed["linked interval bounds"] == "[·"
    assert observed["linked interval page cap"] == "8"
    assert observed["linked interval token, elsewhere"] == "same page"
    assert observed["linked snapshot same walk again"] == "same, 2 of 2"


def test_a_feed_shows_what_was_deleted(environment: dict[str, str], tmp_path: Path) -> None:
    with Provider.start(tenants=1, accounts=5) as provider:
        for name in sorted(provider.state(bodies=False))[:3]:
            provider.delete(name)
        found = others({**environment, "DEMO_URL": provider.url})
    assert found["feed cursor deletes"]["observed"] == "shown, 3 seen"


def test_links_to_another_origin_are_not_followed(
    environment: dict[str, str], provider: Provider
) -> None:
    provider.settings(link_origin="http://elsewhere.example")
    found = others(environment)
    assert "another origin" in found["linked interval same walk again"]["needs"]
    assert "another origin" in found["linked snapshot page cap"]["needs"]


def test_an_empty_collection(environment: dict[str, str], tmp_path: Path) -> None:
    with Provider.start(tenants=1) as empty:
        found, told = probe({**environment, "DEMO_URL": empty.url}, code=0)
    assert {finding["observed"] for finding in found.values()} == {"unknown"}
    assert all(finding["needs"] for finding in found.values())
    assert told["streams"][0]["would_write"] == {}


def test_the_budget_holds_and_what_is_missing_says_so(
    environment: dict[str, str], provider: Provider
) -> None:
    found, told = probe(environment, "demo_crm", "--requests", "7")
    assert told["requests"] == 7
    assert len(provider.requests()) == 7
    assert found["same walk again"]["needs"] == "a larger --requests"


def test_retries_count_and_limits_are_kept(environment: dict[str, str], provider: Provider) -> None:
    provider.faults({"path": "/accounts", "kind": "status", "status": 503, "times": 3})
    _, told = probe(environment, "demo_crm", "--requests", "20")
    assert told["requests"] == len(provider.requests()) <= 20


def test_a_secret_is_never_shown(environment: dict[str, str], provider: Provider) -> None:
    secret = "s3cr3t-of-this-test"
    changed(environment, "demo_crm", "\ntenants:", "\nauth: {bearer: {env: DEMO_TOKEN}}\ntenants:")
    provider.settings(auth_token="another")
    done = run({**environment, "DEMO_TOKEN": secret}, "probe", "demo_crm")
    assert done.returncode == 3, done.stdout + done.stderr
    assert secret not in done.stdout + done.stderr
    provider.settings(auth_token=secret)
    done = run({**environment, "DEMO_TOKEN": secret}, "probe", "demo_crm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert secret not in done.stdout + done.stderr


def test_no_record_is_shown(environment: dict[str, str]) -> None:
    text = run(environment, "probe", "demo_pipeline").stdout
    assert "@" not in text
    assert "acc-" not in text


def test_a_provider_that_is_away(environment: dict[str, str]) -> None:
    changed(environment, "demo_crm", "timeout: 10s", "timeout: 1s, attempts: 2")
    done = run({**environment, "DEMO_URL": "http://127.0.0.1:9"}, "probe", "demo_crm")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "no answer after 2 attempts" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_source_that_is_not_there(environment: dict[str, str]) -> None:
    done = run(environment, "probe", "demo")
    assert done.returncode == 2
    assert "known: demo_crm, demo_pipeline" in done.stderr


def test_a_source_that_only_programs_ask(environment: dict[str, str]) -> None:
    folder = Path(environment["GAPLESS_DEFINITIONS"])
    (folder / "sources/tapped.yaml").write_text(
        "gapless: 1\nsource: tapped\nbase_url: {env: DEMO_URL}\n"
        "streams: {users: {plan: {singer: {command: [tap]}}}}\n"
    )
    done = run(environment, "probe", "tapped")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Programs alone ask tapped" in done.stderr

"""Every shipped definition reads its provider's stand-in completely, and its mapping fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas.definitions.load import Definitions, load_file, load_folder
from schemas.definitions.risks import risks_of_mapping, risks_of_source
from tests.contract.rows import ROWS
from tests.contract.sources import github, gitlab, hubspot, jira, sentry, shopify, stripe, zendesk
from tests.contract.sources.server import Upstream
from tests.contract.syncing import SHIPPED, Synced, sync

_HEADINGS = ("Retention", "Rates", "Revisions", "Deletes", "Pages", "Assumed", "Tested", "Risks")
_REFUSED = frozenset({2, 5})


@dataclass(frozen=True)
class Case:
    """One stream. `keys`: the rows it has to end with; `deletes`: rows that are shown as deleted."""

    partition_id: str
    upstream: Callable[[], Upstream]
    secrets: dict[str, str]
    mapping: str
    keys: set[str]
    path: str = ""
    deletes: set[str] = field(default_factory=set)
    ignored: bool = False


def _numbers(first: int, last: int) -> set[str]:
    return {str(number) for number in range(first, last + 1)}


CASES = (
    Case("github/issues/example", github.GitHub, {"GITHUB_TOKEN": github.TOKEN}, "github_issues",
         {"1001", "1002", "1003", "1005"}, ignored=True),
    Case("github/pulls/example", github.GitHub, {"GITHUB_TOKEN": github.TOKEN},
         "github_pull_requests", _numbers(2004, 2008)),
    Case("gitlab/issues/example", gitlab.GitLab, {"GITLAB_TOKEN": gitlab.TOKEN}, "gitlab_issues",
         _numbers(41, 45)),
    Case("stripe/events", stripe.Stripe, {"STRIPE_KEY": stripe.KEY}, "stripe_events",
         {f"evt_{number}" for number in range(10)}),
    Case("stripe/customers", stripe.Stripe, {"STRIPE_KEY": stripe.KEY}, "stripe_customers",
         {"cus_a", "cus_b", "cus_c"}, deletes={"cus_gone"}),
    Case("stripe/invoices", stripe.Stripe, {"STRIPE_KEY": stripe.KEY}, "stripe_invoices",
         {"in_1", "in_2", "in_3"}, deletes={"in_draft"}, ignored=True),
    Case("sentry/issues/example", sentry.Sentry, {"SENTRY_TOKEN": sentry.TOKEN}, "sentry_issues",
         _numbers(1, 3)),
    Case("sentry/events/example", sentry.Sentry, {"SENTRY_TOKEN": sentry.TOKEN}, "sentry_events",
         {f"{number:032x}" for number in range(1, 6)}),
    Case("jira/issues", jira.Jira, {"JIRA_USER": jira.USER, "JIRA_TOKEN": jira.TOKEN},
         "jira_issues", _numbers(10001, 10005)),
    Case("hubspot/contacts", hubspot.HubSpot, {"HUBSPOT_TOKEN": hubspot.TOKEN},
         "hubspot_contacts", _numbers(1, 5)),
    Case("zendesk/tickets", zendesk.Zendesk,
         {"ZENDESK_USER": zendesk.USER, "ZENDESK_TOKEN": zendesk.TOKEN}, "zendesk_tickets",
         {"35431", "35432", "35433", "35435"}, "/api/v2", deletes={"35434"}),
    Case("shopify/orders", shopify.Shopify, {"SHOPIFY_TOKEN": shopify.TOKEN}, "shopify_orders",
         _numbers(450789461, 450789465), "/admin/api/2026-10"),
)  # fmt: skip


@pytest.fixture(scope="module")
def shipped() -> Definitions:
    return load_folder(SHIPPED.parent)


@pytest.fixture
def setenv(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    return monkeypatch.setenv


def _sync(case: Case, folder: Path, setenv: Callable[[str, str], None]) -> Synced:
    for name, value in case.secrets.items():
        setenv(name, value)
    return sync(folder, case.partition_id, case.upstream(), setenv, path=case.path, refuse=_REFUSED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition_id)
def test_all_is_read_and_mapped(
    case: Case, shipped: Definitions, tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    synced = _sync(case, tmp_path, setenv)
    assert synced.blocked == ""
    assert synced.served.refused == len(_REFUSED), "nothing was throttled"
    source, stream = case.partition_id.split("/")[:2]
    plans = {plan.plan for plan in shipped.sources[source].streams[stream].plans}
    assert synced.marks("interval_complete"), "no window was searched to its end"
    assert bool(synced.marks("snapshot_complete")) == ("snapshot" in plans)
    for plan in plans:
        assert max(page.page for page in synced.pages(plan)) >= 2, f"{plan} turned no page"
    stored = synced.stored(case.mapping)
    assert [str(fault.detail) for fault in stored.faults] == []
    assert stored.rows.keys() == case.keys
    assert stored.gone.keys() == case.deletes
    assert bool(stored.ignored) == case.ignored
    wanted = ROWS[case.mapping]
    row = stored.rows[str(next(iter(wanted.values())))]
    assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition_id)
def test_changes_alone_find_every_record(
    case: Case, tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    """Without the help of the listing, which would hide a window that misses some."""
    synced = _sync(case, tmp_path, setenv)
    synced.emissions = [
        one for one in synced.emissions if all(page.plan != "snapshot" for page in one.observations)
    ]
    stored = synced.stored(case.mapping)
    told = {"cus_a"} if case.mapping == "stripe_customers" else case.keys  # of the last 30 days
    told = {"in_1"} if case.mapping == "stripe_invoices" else told
    assert stored.rows.keys() == told
    assert stored.gone.keys() == case.deletes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.partition_id)
def test_a_wrong_credential_blocks(
    case: Case, tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    wrong = Case(
        case.partition_id, case.upstream, dict.fromkeys(case.secrets, "wrong"), case.mapping,
        case.keys, case.path,
    )  # fmt: skip
    synced = _sync(wrong, tmp_path, setenv)
    assert synced.blocked == "interval: the provider refuses the credentials (401)"
    assert synced.pages("interval") == []


def test_every_stream_and_mapping_is_tried(shipped: Definitions) -> None:
    streams = {f"{source.name}/{one.name}" for source in shipped.sources.values() for one in source}
    assert {"/".join(case.partition_id.split("/")[:2]) for case in CASES} == streams
    assert {case.mapping for case in CASES} == set(shipped.mappings) == set(ROWS)


def test_none_has_a_problem(shipped: Definitions) -> None:
    assert shipped.problems == ()


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_file_says_what_it_takes_for_granted(file: Path) -> None:
    text = file.read_text("utf-8")
    headings = re.findall(r"^# ([A-Z]\w+)(?: |,)", text.split("gapless: 1")[0], re.MULTILINE)
    assert [one for one in headings if one in _HEADINGS] == list(_HEADINGS)
    tested = text.partition("# Tested ")[2].partition("# Risks")[0]
    assert " against " in tested
    told_of = re.findall(r"tests/\S+\.py", tested)
    assert f"tests/contract/sources/{file.stem}.py" in told_of
    assert all((Path(__file__).parents[2] / one).is_file() for one in told_of)
    definitions = load_file(file)
    assert definitions.problems == ()
    [source] = definitions.sources.values()
    risks = [*risks_of_source(source)]
    for mapping in definitions.mappings.values():
        risks += risks_of_mapping(mapping)
    told = text.split("# Risks, as `gapless check` prints them:")[1].split("gapless: 1")[0]
    assert re.findall(r"^#   (.+)$", told, re.MULTILINE) == risks
    assert told.startswith(" none\n") == (risks == [])


# What a definition assumes, put to the test.


def test_stripe_ends_right_though_two_changes_share_their_second(
    tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    """Of the events alone the older may stay; the listing is newer than both."""
    setenv("STRIPE_KEY", stripe.KEY)
    upstream = stripe.Stripe()
    upstream.change_twice("cus_b", balance=[-1, -2])
    synced = sync(tmp_path, "stripe/customers", upstream, setenv)
    told = [one["data"]["object"] for one in synced.found("interval")]
    assert [one["balance"] for one in told if one["id"] == "cus_b"] == [-2, -1]
    assert synced.stored("stripe_customers").rows["cus_b"]["balance"] == -2


def test_github_takes_switched_off_issues_for_none(
    tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    setenv("GITHUB_TOKEN", github.TOKEN)
    synced = sync(tmp_path, "github/issues/example", github.GitHub(switched_off=True), setenv)
    assert synced.blocked == ""
    assert synced.pages("interval") == synced.pages("snapshot") == []
    assert synced.marks("snapshot_complete") == [], "nothing may be swept for it"


def test_github_waits_a_minute_where_nothing_is_said(
    tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    setenv("GITHUB_TOKEN", github.TOKEN)
    upstream = github.GitHub()
    upstream.secondary = True
    synced = sync(
        tmp_path, "github/issues/example", upstream, setenv, refuse=frozenset({1}),
        changes={"concurrency: 2}": "concurrency: 2, wait_max: 10s}"},
    )  # fmt: skip
    assert synced.state.not_before is not None
    wait_s = (synced.state.not_before - synced.served.now_us()) / 1_000_000
    assert 50 < wait_s <= 60


def test_hubspot_waits_for_the_next_day(tmp_path: Path, setenv: Callable[[str, str], None]) -> None:
    setenv("HUBSPOT_TOKEN", hubspot.TOKEN)
    upstream = hubspot.HubSpot()
    upstream.daily = True
    synced = sync(tmp_path, "hubspot/contacts", upstream, setenv, refuse=frozenset({1}))
    assert synced.state.not_before is not None
    wait_s = (synced.state.not_before - synced.served.now_us()) / 1_000_000
    assert 29 * 60 < wait_s <= 30 * 60
    assert len(synced.served.asked) == 1


def test_hubspot_reads_what_one_search_does_not_reach(
    tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    setenv("HUBSPOT_TOKEN", hubspot.TOKEN)
    upstream = hubspot.HubSpot(most=4)
    synced = sync(
        tmp_path, "hubspot/contacts", upstream, setenv,
        changes={"result_cap: 10000": "result_cap: 4"},
    )  # fmt: skip
    assert synced.blocked == ""
    assert {one["id"] for one in synced.found("interval")} == _numbers(1, 5)


@pytest.mark.parametrize(
    "zone", ["Etc/GMT+12", "America/New_York", "UTC", "Asia/Kolkata", "Pacific/Kiritimati"]
)
def test_jira_finds_changes_whatever_the_zone_of_its_account(
    zone: str, tmp_path: Path, setenv: Callable[[str, str], None]
) -> None:
    """A change between two polls is found by the changes alone: at the latest a day later."""
    setenv("JIRA_USER", jira.USER)
    setenv("JIRA_TOKEN", jira.TOKEN)
    upstream = jira.Jira(zone)
    asked = 0

    def change(synced: Synced) -> None:
        nonlocal asked
        asked = len(synced.emissions)
        upstream.touch(2, datetime.fromtimestamp(synced.served.now_us() / 1_000_000, UTC))
        late = zone in ("Asia/Kolkata", "Pacific/Kiritimati")
        synced.served.ahead_s += 15 * 3600 if late else 900

    synced = sync(tmp_path, "jira/issues", upstream, setenv, between=change)
    synced.emissions = synced.emissions[asked:]
    assert "10002" in {one["id"] for one in synced.found("interval")}

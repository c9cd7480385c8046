"""`gapless check --explain`: the plans' own questions in their order, each with its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.check.explanation import Reason, explained
from ops.check.question import Question, first_question
from ops.cli.main import build_app
from schemas.definitions.load import load_folder
from schemas.definitions.tenants import current_tenants
from tests.unit.definition_files import SHOP, changed, load

REPOSITORY = Path(__file__).parents[3]
NOW = 1_793_491_200_000_000  # 2026-11-01
CHANGES = "limit=200"


def _of_shop(folder: Path, *changes: tuple[str, str]) -> list[Reason]:
    definitions = load(folder, changed(SHOP, *changes)).check()
    return explained(definitions.sources["shop"].streams["orders"], None, NOW)


def _questions(reasons: list[Reason], plan: str) -> list[str]:
    return [one.question for one in reasons if one.plan == plan and one.question]


def _why(reasons: list[Reason], plan: str) -> str:
    return " ".join(one.why for one in reasons if one.plan == plan)


def test_a_window_its_pages_the_second_walk_and_the_next_window(tmp_path: Path) -> None:
    reasons = _of_shop(tmp_path)
    first = "GET /orders?changed_from=2023-12-31T23:59:59Z&changed_to=2024-01-31T00:00:01Z"
    after = "GET /orders?changed_from=2024-01-30T23:59:59Z&changed_to=2024-03-31T00:00:01Z"
    assert _questions(reasons, "interval") == [
        f"{first}&{CHANGES}",
        f"{first}&page_token={{token}}&{CHANGES}",
        f"{first}&{CHANGES}",
        f"{after}&{CHANGES}",
    ]
    why = _why(reasons, "interval")
    for part in (
        "The past begins at `start`. One window of 30d at most",
        "Its ends are asked 1s wider",
        "as long as the answer has body.next_page_token",
        "turned again until one walk finds nothing new",
        "the provider's clock less 1m (`settle`). 5m later: from there on, and the 10m before again",
    ):
        assert part in why
    assert len(_questions(reasons, "snapshot")) == 3
    assert "Again after 7d. What two complete listings in a row lack" in _why(reasons, "snapshot")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("", "so the newest records come once for each. Declare `order: asc`"),
        ("\n        order: asc", "until one is behind the end of its window"),
        ("\n        width: 3650d", "one window holds the past"),
    ],
)
def test_a_server_that_knows_no_end(tmp_path: Path, declared: str, said: str) -> None:
    reasons = _of_shop(
        tmp_path,
        ('      changed_to: "{end}"\n', ""),
        ("        start: 2024-01-01", f"        start: 2024-01-01{declared}"),
    )
    assert said in _why(reasons, "interval")
    assert "No `{end}` is sent" not in _why(_of_shop(tmp_path), "interval")


def test_what_is_declared_changes_what_is_asked(tmp_path: Path) -> None:
    reasons = _of_shop(
        tmp_path,
        ("      size: 200", "      size: 200\n      stable: true"),
        (
            "        start: 2024-01-01",
            '        bounds: "[)"\n        lookback: none\n        width: 1d',
        ),
        ("    schedule:", "    upstream_retention: 30d\n    schedule:"),
    )
    asked = _questions(reasons, "interval")
    assert len(asked) == 3, "a stable listing is walked once"
    assert "changed_from=2026-10-02T00:00:00Z&changed_to=2026-10-03T00:00:00Z" in asked[0]
    why = _why(reasons, "interval")
    assert "The provider keeps 30d (`upstream_retention`)" in why
    assert "wider: `bounds`" not in why
    assert why.endswith("5m later: from there on.")
    assert "What a complete listing lacks counts" in _why(reasons, "snapshot")


def test_a_feed_is_asked_for_its_identity_first() -> None:
    definitions = load_folder(REPOSITORY / "tests/unit/definitions")
    couch = definitions.sources["couch"]
    stream = couch.streams["docs"]
    tenant = current_tenants(couch)[0]
    assert tenant is not None
    reasons = explained(stream, tenant, NOW)
    probe, first, second = _questions(reasons, "cursor")[:3]
    assert probe == f"GET /{tenant.id}"
    assert first == f"GET /{tenant.id}/_changes?since=0&include_docs=true&limit=500"
    assert "since={cursor}" in second
    assert "from where the last answer left it" in _why(reasons, "cursor")


def test_a_keyset_goes_on_behind_its_last_record() -> None:
    pocket = load_folder(REPOSITORY / "tests/unit/definitions").sources["pocket"]
    reasons = explained(pocket.streams["items"], None, NOW)
    first, second = _questions(reasons, "keyset")
    assert "(updated>'2019-12-31+23:59:59.999Z'+||+(" in first
    assert "(updated='2020-01-01+00:00:00.000Z'+%26%26+id>'{after.id}')" in second
    assert "behind the last record of each page" in _why(reasons, "keyset")


def test_runs_are_asked_for_one_by_one() -> None:
    source = load_folder(REPOSITORY / "tests/unit/definitions").sources["watchtower"]
    tenant = current_tenants(source)[0]
    stream = source.streams["run_events"]
    reasons = explained(stream, tenant, NOW)
    assert "When the next run is over (`30 5 * * *` in Europe/Berlin)" in _why(reasons, "interval")
    asked = first_question(stream, tenant, NOW)
    assert isinstance(asked, Question)
    assert "The run watchtower/run_events@2026-10-02T03:30:00Z." in asked.notes


SHOPS = """\
streams:
  shops:
    get: /shops
    params: {page: "{page}"}
    records: body.shops
    pages: {}
    plan: {snapshot: {every: 1d}}
"""


def test_parents_are_listed_and_then_asked_for_one_by_one(tmp_path: Path) -> None:
    parent = "get: /shops/{parent.id}/orders\n    parent: {stream: shops}"
    below = changed(SHOP, ("get: /orders", parent), ("streams:\n", SHOPS))
    stream = load(tmp_path, below).check().sources["shop"].streams["orders"]
    reasons = explained(stream, None, NOW)
    asked = _questions(reasons, "interval")
    assert asked[0] == "GET /shops?page=1"
    assert asked[1].startswith("GET /shops/{parent.id}/orders?changed_from=2023-12-31T23:59:59Z")
    assert "&page_token={token}&" in asked[2]
    why = _why(reasons, "interval")
    assert "Which parents there are: the listing of shops." in why
    assert "so for each of the listing" in why
    first = first_question(stream, None, NOW)
    assert isinstance(first, Question)
    assert first.notes[0] == "The listing of shops; then once per record of it."


@pytest.mark.parametrize("folder", ["ingest", "ops/demo/definitions", "tests/acceptance/github",
                                    "tests/acceptance/kinto"])  # fmt: skip
def test_every_stream_of_this_repository_can_be_explained(folder: str) -> None:
    for source in load_folder(REPOSITORY / folder).check().sources.values():
        for stream in source:
            tenant = current_tenants(source)[0] if source.tenants else None
            reasons = explained(stream, tenant, NOW)
            asked = first_question(stream, tenant, NOW)
            assert isinstance(asked, Question), asked
            assert reasons[0].question == asked.request
            assert {one.plan for one in reasons} == {plan.plan for plan in stream.plans}
            assert all(one.why for one in reasons)
            assert not [one for one in reasons if "no value" in one.why]


def test_the_verb_shows_it_and_asks_nothing(tmp_path: Path) -> None:
    load(tmp_path)
    words = ["check", "shop", "--explain", "-d", str(tmp_path)]
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, done.output
    assert "What is asked, and why     shop/orders, from its beginning" in done.output
    assert "interval: GET /orders?changed_from=2023-12-31T23:59:59Z" in done.output
    assert "      The past begins at `start`." in done.output
    [told] = json.loads(CliRunner().invoke(build_app(), [*words, "--json"]).output)
    [stream] = told["streams"]
    assert stream["explanation"][0]["plan"] == "interval"
    assert "answer" not in stream


def test_a_stream_that_is_only_listed_has_a_first_question(tmp_path: Path) -> None:
    listed = changed(
        SHOP,
        ('      changed_from: "{start}"\n      changed_to: "{end}"\n', ""),
        ("      interval:\n        time: updated_at\n        start: 2024-01-01\n", ""),
    )
    definitions = load(tmp_path, listed).check()
    asked = first_question(definitions.sources["shop"].streams["orders"], None, NOW)
    assert isinstance(asked, Question)
    assert (asked.plan, asked.request) == ("snapshot", "GET /orders?limit=200")

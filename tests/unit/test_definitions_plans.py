"""What the loader says of keyset plans, schedules with runs, and queries of GraphQL."""

from pathlib import Path

import pytest

from schemas.definitions.risks import assumptions_of_stream, risks_of_source
from schemas.definitions.source import Action, KeysetSpec, Turn
from tests.unit.definition_files import SHOP, changed, load, messages

KEYSET = """\
gapless: 1
source: shop
base_url: https://api.shop.example/v2
streams:
  orders:
    get: /orders
    params: {limit: "{size}"}
    records: body.items
    pages: {size: 100}
    deletes: shown
    plan:
      keyset:
        time: updated
        start: 2024-01-01
        params: {since: "{after.time}", since_id: "{after.id}", until: "{until}"}
"""


def test_a_keyset_with_its_defaults(tmp_path: Path) -> None:
    found = load(tmp_path, KEYSET, None).check()
    spec = found.sources["shop"].streams["orders"].changes
    assert isinstance(spec, KeysetSpec)
    assert (spec.settle_us, spec.lookback_us) == (60_000_000, 600_000_000)
    assert spec.request.pages is not None and spec.request.pages.turn is Turn.KEYSET
    assumed = assumptions_of_stream(found.sources["shop"].streams["orders"])
    assert not [one for one in assumed if "shift" in one or "result cap" in one]
    assert risks_of_source(found.sources["shop"]) == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (', since_id: "{after.id}"', "", "{after.id} is never sent"),
        ('since: "{after.time}", ', "", "{after.time} is never sent"),
        ('"{until}"', '"{end}"', "{end} never has a value in the plan keyset"),
        ("time: updated", "time: updated\n        order: desc", 'has no key "order"'),
        ("time: updated", "time: updated\n        width: 1d", 'has no key "width"'),
        ("{size: 100}", "{size: 100, next: body.next}", "turn the pages of a keyset, `next` does"),
        ("{size: 100}", "{size: 100, total: body.count}", "a total counts anew"),
        ("{size: 100}", "{size: 100, end: no_next}", "the pages end without a next"),
        ("{size: 100}", "none", "has no second page"),
        ('"{size}"', '"{page}"', "turn the pages of a keyset, {page} does"),
        ("        start: 2024-01-01\n", "", "nothing says where the past of orders begins"),
        (
            "      keyset:",
            "      cursor: {next: body.c}\n      keyset:",
            "two plans for its changes",
        ),
        ("time: updated", "time: updated\n        settle: 0s", "loses rows that commit later"),
    ],
)
def test_a_mistake_in_a_keyset(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = messages(load(tmp_path, changed(KEYSET, (old, new)), None))
    assert any(message in one for one in found), found


@pytest.mark.parametrize(
    ("pages", "asked"),
    [("{size: 100}", 100), ("{stable: true}", 500), ("{cap: 200}", 200), ("{cap: 1000}", 500)],
)
def test_how_much_is_asked_for_at_once(tmp_path: Path, pages: str, asked: int) -> None:
    text = changed(KEYSET, ("{size: 100}", pages))
    changes = load(tmp_path, text, None).check().sources["shop"].streams["orders"].changes
    assert changes is not None and changes.request.pages is not None
    assert changes.request.pages.size == asked


def test_no_size_is_made_up_that_is_not_sent(tmp_path: Path) -> None:
    text = changed(KEYSET, ('{limit: "{size}"}', "{}"), ("{size: 100}", "{stable: true}"))
    changes = load(tmp_path, text, None).check().sources["shop"].streams["orders"].changes
    assert changes is not None and changes.request.pages is not None
    assert changes.request.pages.size is None


def test_what_is_asked_makes_the_fingerprint_of_a_keyset(tmp_path: Path) -> None:
    def hash_of(text: str) -> str:
        changes = load(tmp_path, text, None).check().sources["shop"].streams["orders"].changes
        assert changes is not None
        return changes.definition_hash

    first = hash_of(KEYSET)
    assert hash_of(changed(KEYSET, ("deletes: shown", "deletes: shown\n    id: key"))) != first
    assert hash_of(changed(KEYSET, ("time: updated", "time: changed"))) != first
    assert hash_of(changed(KEYSET, ("time: updated", "time: updated\n        settle: 2m"))) == first


@pytest.mark.parametrize("plan", ["snapshot", "cursor"])
def test_a_total_does_not_end_pages_behind_a_last_id(tmp_path: Path, plan: str) -> None:
    """Behind it, many count what is left: 3 and 3 of "4" would be the end of a listing of ten."""
    asked = {
        "snapshot": '{every: 1d, params: {after: "{last.id}"}}',
        "cursor": '{next: body.c, params: {after: "{cursor}"}}',
    }[plan]
    text = KEYSET[: KEYSET.index("      keyset:")] + f"      {plan}: {asked}\n"
    text = changed(text, ("{size: 100}", "{size: 100, end: total, total: body.count}"))
    found = messages(load(tmp_path, text, None))
    assert any("a total may count what is left" in one for one in found), found
    assert not load(tmp_path, changed(text, ("end: total, ", "end: empty, ")), None).errors


def test_a_run_needs_intervals(tmp_path: Path) -> None:
    nightly = "schedule: {cron: '30 5 * * *', zone: Europe/Berlin, deadline: 45m, stages: [a, b]}"
    found = load(tmp_path, changed(SHOP, ("schedule: {every: 5m}", nightly)), None).check()
    schedule = found.sources["shop"].streams["orders"].schedule
    assert schedule.occurrences is not None
    assert schedule.occurrences.longest_us == 86_400_000_000
    assert (schedule.deadline_s, schedule.stages) == (2700.0, ("a", "b"))
    listed = changed(
        SHOP,
        ("schedule: {every: 5m}", nightly),
        ("      interval:\n        time: updated_at\n        start: 2024-01-01\n", ""),
        ('      changed_from: "{start}"\n      changed_to: "{end}"\n', ""),
    )
    told = messages(load(tmp_path, listed, None))
    assert any("orders has only a snapshot" in one for one in told), told
    feed = changed(
        SHOP,
        ("schedule: {every: 5m}", nightly),
        (
            "      interval:\n        time: updated_at\n        start: 2024-01-01\n",
            "      cursor: {next: body.next_page_token}\n",
        ),
        ('      changed_from: "{start}"\n      changed_to: "{end}"\n', ""),
        ('"{token}"', '"{cursor}"'),
        ("      next: body.next_page_token\n", "      end: empty\n"),
        ("every: 7d", 'every: 7d\n        params: {page_token: null, id: "{last.id}"}'),
    )
    assert load(tmp_path, feed, None).check().sources["shop"].streams["orders"].schedule.deadline_s
    named = changed(SHOP, ('"{end}"', '"{run.end}"'))
    told = messages(load(tmp_path, named, None))
    assert any("{run.end} has no value: only the occurrences of `cron`" in one for one in told), (
        told
    )
    listed = changed(SHOP, ("every: 7d", 'every: 7d\n        params: {day: "{run.date}"}'))
    told = messages(load(tmp_path, listed, None))
    assert any("{run.date} never has a value in the plan snapshot" in one for one in told), told
    coarse = changed(
        SHOP,
        ("schedule: {every: 5m}", nightly),
        ("time: updated_at", "time: updated_at\n        granularity: 7s"),
    )
    told = messages(load(tmp_path, coarse, None))
    assert any("whole minutes" in one for one in told), told


GRAPHQL = """\
gapless: 1
source: shop
base_url: https://api.shop.example
variables: {first: "{size}"}
streams:
  orders:
    post: /graphql
    graphql: "query($first: Int, $after: String) { orders(first: $first, after: $after) { nodes { id } } }"
    variables: {after: "{token}", where: {since: "{start}", until: "{end}"}}
    records: body.data.orders.nodes
    pages: {next: body.data.orders.cursor, end: {body.data.orders.more: false}, size: 50}
    deletes: shown
    plan:
      interval: {time: updated, start: 2024-01-01}
"""


def test_a_query_of_graphql_is_a_post_whose_text_is_never_filled_in(tmp_path: Path) -> None:
    found = load(tmp_path, GRAPHQL, None).check()
    changes = found.sources["shop"].streams["orders"].changes
    assert changes is not None
    request = changes.request
    assert request.method == "POST"
    assert request.body is not None
    assert str(request.body["query"]).startswith("query($first: Int")
    variables = request.body["variables"]
    assert isinstance(variables, dict)
    assert set(variables) == {"first", "after", "where"}, "maps merge"
    assert [rule.do for rule in request.errors] == [Action.RETRY]


def test_the_text_of_a_query_makes_its_fingerprint(tmp_path: Path) -> None:
    def hash_of(text: str) -> str:
        changes = load(tmp_path, text, None).check().sources["shop"].streams["orders"].changes
        assert changes is not None
        return changes.definition_hash

    assert hash_of(GRAPHQL) != hash_of(changed(GRAPHQL, ("nodes { id }", "nodes { id updated }")))

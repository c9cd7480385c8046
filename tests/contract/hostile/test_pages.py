"""Pages that repeat, shift, shrink, lie about their end or lead away."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.contract.hostile.scene import FEED, KEYSET, LINKED, LISTING, WINDOW, Scene, text


def test_a_duplicated_page_is_gone_through(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(repeated_pages=True)
    scene.poll(WINDOW)
    assert len(scene.records) > 8, "no page was given twice"
    scene.whole()


def test_a_sort_order_that_changes_between_pages_is_walked_again(scene: Scene) -> None:
    scene.fill(9)

    def turn(emissions: int) -> None:
        if emissions == 2:  # the mark that the listing began, and its first page
            scene.provider.settings(descending=True)

    scene.poll(LISTING, between=turn)
    assert scene.blocked == ""
    [mark] = scene.marks("snapshot_complete")
    assert sum(part.records for part in mark.passes) > 9, "one walk was believed"
    assert scene.replayed() == scene.truth()


@pytest.mark.parametrize("definition", [WINDOW, KEYSET], ids=["interval", "keyset"])
def test_ties_across_a_page_boundary_and_at_the_checkpoints_exact_time(
    scene: Scene, definition: str
) -> None:
    tie = (scene.now_us() - 3_600_000_000) // 1_000_000 * 1_000_000
    scene.provider.put_together([{"updated_at": text(tie)} for _ in range(7)], scene.tenant)
    scene.poll(definition)
    scene.whole()
    plan = next(iter(scene.state.plans.values()))
    assert plan.complete_before is not None
    # Behind the last poll's end, to the microsecond, and once more at the same time.
    scene.put(updated_at=plan.complete_before)
    scene.put(updated_at=plan.complete_before)
    scene.poll(definition)
    scene.whole()


@pytest.mark.parametrize("kind", ["short_pages", "empty_pages"])
def test_short_and_empty_pages_with_a_next_token_go_on(scene: Scene, kind: str) -> None:
    scene.fill(12)
    scene.provider.settings(**{kind: True})
    scene.poll(WINDOW)
    given = [entry["count"] for entry in scene.asked()]
    assert min(given[:-1]) < 3, "no page but the last was short"
    scene.whole()


def test_a_page_cap_below_the_asked_size(scene: Scene) -> None:
    scene.fill(9)
    scene.provider.settings(page_cap=2)
    scene.poll(WINDOW)
    assert max(entry["count"] for entry in scene.asked()) == 2
    scene.whole()


def test_a_lower_page_cap_than_the_links_say(scene: Scene) -> None:
    scene.fill(9)
    scene.provider.settings(page_cap=2)
    scene.poll(LINKED)
    asked = scene.asked()
    assert max(entry["count"] for entry in asked) == 2
    assert all("per_page=3" in entry["target"] for entry in asked), "links repeat what was asked"
    scene.whole()


def test_an_empty_token_ends_the_pages(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(end_token="empty")
    scene.poll(WINDOW)
    assert len(scene.asked()) == 3
    scene.whole()


def test_the_same_token_behind_an_empty_page_is_an_end_where_that_is_declared(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(end_token="same", trailing_empty=True)
    scene.poll(WINDOW, ("stable: true}", "stable: true, end: empty}"))
    scene.whole()


def test_the_same_token_again_is_a_visible_stall_and_claims_nothing(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(end_token="same")
    scene.poll(WINDOW)
    assert "a circle" in scene.blocked
    assert scene.claimed() == []
    assert scene.state.blocked is not None and "`pages.end`" in scene.state.blocked.unblocked_by
    total = ("stable: true}", "stable: true, end: total, total: body.total}")
    scene.poll(WINDOW, total)
    scene.whole()


def test_tokens_with_signs_that_mean_something_in_a_url(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(odd_tokens=True)
    scene.poll(WINDOW)
    asked = [dict(parse_qsl(urlsplit(entry["target"]).query)) for entry in scene.asked()]
    tokens = [query["page_token"] for query in asked if "page_token" in query]
    assert len(tokens) == 2 and all(token.startswith("+/=%2B&#") for token in tokens)
    scene.whole()


def test_a_next_link_on_another_host_is_refused(scene: Scene) -> None:
    scene.fill(8)
    scene.provider.settings(link_origin="http://elsewhere.example")
    scene.poll(LINKED)
    assert "another origin" in scene.blocked
    assert scene.claimed() == []
    scene.provider.settings(link_origin=None)
    scene.poll(LINKED)
    scene.whole()


def test_page_cursors_that_expire_in_seconds(scene: Scene) -> None:
    scene.fill(16)
    scene.provider.settings(token_lifetime_s=5.0)
    errors = "records: body.items\n    errors: [{when: {status: 410}, do: token_expired}]"

    def slow(emissions: int) -> None:
        if emissions <= 2:
            scene.move(10)

    scene.poll(WINDOW, ("records: body.items", errors), between=slow)
    assert 410 in [entry["status"] for entry in scene.asked()]
    scene.whole()


def test_rows_touched_between_offset_pages(scene: Scene) -> None:
    scene.fill(9)
    first = sorted(scene.truth())[0]
    touched: list[int] = []

    def touch(emissions: int) -> None:
        if len(scene.pages) == 1 and not touched:
            touched.append(scene.put(id=first, fields={"note": "touched"})["version"])

    scene.poll(LINKED, between=touch)
    assert touched
    scene.poll(LINKED)
    scene.whole()


def test_deletes_and_updates_during_an_offset_walk(scene: Scene) -> None:
    scene.fill(12)
    ids = sorted(scene.truth())
    stayed = ids[3:]

    def disturb(emissions: int) -> None:
        if len(scene.pages) == 1 and ids[0] in scene.truth():
            for gone in ids[:3]:  # what follows moves up by one page: the second is never shown
                scene.provider.delete(gone, scene.tenant)
            scene.put(id=ids[-1])

    scene.poll(LISTING, between=disturb)
    scene.poll(LISTING)
    marks = scene.marks("snapshot_complete")
    assert marks, scene.blocked
    named = {part.pass_ for mark in marks for part in mark.passes}
    listed = {json.loads(r)["id"] for p in scene.pages if p.pass_ in named for r in p.records}
    assert set(stayed) <= listed
    assert scene.found() >= set(scene.truth().items())


def test_a_body_that_ends_early_under_200_is_no_page(scene: Scene) -> None:
    scene.fill(8)
    path = f"/t/{scene.tenant}/accounts"
    scene.provider.faults({"path": path, "kind": "cut", "keep": 0.9, "nth": 2})
    scene.poll(WINDOW)
    assert [entry["fault"] for entry in scene.asked()].count("cut") == 1
    scene.whole()


def test_a_feed_whose_cursor_stands_still_ends(scene: Scene) -> None:
    scene.fill(5)
    scene.poll(FEED)
    scene.poll(FEED)
    assert scene.blocked == "" and scene.replayed() == scene.truth()
    assert len(scene.marks("caught_up")) == 2

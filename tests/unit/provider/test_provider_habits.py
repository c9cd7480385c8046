"""Habits that make a client lose rows: repeated and empty pages, odd tokens, ends, orders, filters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.provider.tenant import Tenant

_DAY = "2026-03-01T00:00:"


def _some(tenant: Tenant, count: int = 5) -> list[str]:
    return [
        str(tenant.put(updated_at=f"{_DAY}{n // 2:02d}.000Z")["id"]) for n in range(count)
    ]  # two share each stamp


def _ids(pages: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[item["id"] for item in page] for page in pages]


def test_each_page_may_come_twice_or_behind_an_empty_one(tenant: Tenant) -> None:
    a, b, c, d, e = _some(tenant)
    tenant.provider.settings(repeated_pages=True)
    assert _ids(tenant.walk(limit=2)) == [[a, b], [a, b], [c, d], [c, d], [e]]
    tenant.provider.settings(repeated_pages=False, empty_pages=True)
    assert _ids(tenant.walk(limit=2)) == [[], [a, b], [], [c, d], [e]]


def test_tokens_may_hold_signs_that_mean_something_in_a_url(tenant: Tenant) -> None:
    _some(tenant)
    tenant.provider.settings(odd_tokens=True)
    token = tenant.get(limit=2).json()["next_page_token"]
    assert token.startswith("+/=%2B&#")
    assert tenant.get(limit=2, page_token=token).status == 200
    refused = tenant.get(limit=2, page_token=token.replace("+", " "))
    assert (refused.status, refused.json()["code"]) == (400, "bad_token")


@pytest.mark.parametrize(("end", "said"), [("none", "nothing"), ("empty", ""), ("same", "same")])
def test_what_the_last_page_says_in_the_place_of_a_token(
    tenant: Tenant, end: str, said: str
) -> None:
    _some(tenant, 3)
    tenant.provider.settings(end_token=end)
    token = tenant.get(limit=2).json()["next_page_token"]
    last = tenant.get(limit=2, page_token=token).json()
    assert last.get("next_page_token", "nothing") == (token if said == "same" else said)
    assert tenant.provider.settings()["end_token"] == end


def test_a_filter_by_time_may_mean_nothing(tenant: Tenant) -> None:
    ids = _some(tenant)
    tenant.provider.settings(ignore_filter=True)
    assert tenant.window(f"{_DAY}01Z", f"{_DAY}02Z") == ids
    after = tenant.get("/after", after_time=f"{_DAY}01Z", after_id=ids[2]).json()["items"]
    assert [item["id"] for item in after] == ids


def test_listings_by_position_may_go_backwards(tenant: Tenant) -> None:
    ids = _some(tenant)
    tenant.provider.settings(descending=True)
    pages = [tenant.get("/all", offset=at, limit=2).json()["items"] for at in (0, 2, 4, 6)]
    assert _ids(pages) == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]], []]
    linked = [tenant.get("/linked", page=at, per_page=2).json() for at in (1, 2, 3)]
    assert _ids(linked) == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]


def test_a_walk_behind_positions_gives_every_record_once(tenant: Tenant) -> None:
    ids = _some(tenant)
    found: list[str] = []
    query: dict[str, str] = {"until": f"{_DAY}02Z"}
    while page := tenant.get("/after", limit=1, **query).json()["items"]:
        found.append(page[-1]["id"])
        query |= {"after_time": page[-1]["updated_at"], "after_id": page[-1]["id"]}
    assert found == ids[:4], "the end is not given"


def test_a_leap_second_is_the_first_of_the_next_minute(tenant: Tenant) -> None:
    written = tenant.put(updated_at="2016-12-31T23:59:60.500Z")
    assert written["updated_at"] == "2017-01-01T00:00:00.500000Z"
    assert tenant.window("2016-12-31T23:59:60Z", "2017-01-01T00:00:01Z") == [written["id"]]


def test_the_right_answer_may_come_behind_a_byte_order_mark(tenant: Tenant) -> None:
    _some(tenant)
    right = tenant.get().body
    tenant.provider.faults({"path": tenant.path(), "kind": "bom"})
    assert tenant.get().body == b"\xef\xbb\xbf" + right


@pytest.mark.parametrize("wanted", [{"end_token": "perhaps"}, {"odd_tokens": 1}])
def test_a_habit_that_cannot_be_is_refused(tenant: Tenant, wanted: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="400"):
        tenant.provider.settings(**wanted)

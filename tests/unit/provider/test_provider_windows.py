"""Questions by time: ends, units, tokens, caps, retention and lag, each against records put by hand."""

from __future__ import annotations

import pytest

from tests.unit.provider.tenant import Tenant

_DAY = "2026-03-01T"


def _three(tenant: Tenant) -> None:
    for name, second in (("low", "10.000"), ("mid", "15.500"), ("high", "20.000")):
        tenant.put(id=name, updated_at=f"{_DAY}00:00:{second}Z")


@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ("[)", ["low", "mid"]),
        ("[]", ["low", "mid", "high"]),
        ("()", ["mid"]),
        ("(]", ["mid", "high"]),
    ],
)
def test_bounds_decide_which_ends_belong_to_the_window(
    tenant: Tenant, bounds: str, found: list[str]
) -> None:
    _three(tenant)
    tenant.provider.settings(bounds=bounds)
    assert tenant.window(f"{_DAY}00:00:10Z", f"{_DAY}00:00:20Z") == found


@pytest.mark.parametrize(
    ("bounds", "found"),
    [("[)", ["low"]), ("[]", ["low", "mid"]), ("()", []), ("(]", ["mid"])],
)
def test_granularity_cuts_asked_ends_and_stamps_alike(
    tenant: Tenant, bounds: str, found: list[str]
) -> None:
    _three(tenant)
    tenant.provider.settings(bounds=bounds, granularity_us=1_000_000)
    # 10.7 and 15.2 are asked as 10 and 15, and 15.5 counts as 15.
    assert tenant.window(f"{_DAY}00:00:10.700Z", f"{_DAY}00:00:15.200Z") == found


def test_ends_may_be_left_out_or_asked_in_other_forms(tenant: Tenant) -> None:
    _three(tenant)
    assert tenant.window(None, None) == ["low", "mid", "high"]
    assert tenant.window(f"{_DAY}00:00:15.500Z", None) == ["mid", "high"]
    assert tenant.window("2026-03-01T02:00:15.500+02:00", "1772323220") == ["mid"]
    assert tenant.window("1772323215500", "1772323220001") == ["mid", "high"]
    assert tenant.get(changed_from="2026-03-01T00:00:00").json()["code"] == "bad_time"
    assert tenant.get(changed_form=f"{_DAY}00:00:00Z").json()["code"] == "unknown_parameter"


def test_more_is_stored_than_is_shown(tenant: Tenant) -> None:
    tenant.provider.settings(stored_us=1, shown_us=1_000_000)
    tenant.put(id="fine", updated_at=f"{_DAY}00:00:10.250001Z")
    shown = tenant.get().json()["items"][0]["updated_at"]
    assert shown == f"{_DAY}00:00:10Z"
    assert tenant.window(shown, f"{_DAY}00:00:10.250001Z") == []
    assert tenant.window(shown, f"{_DAY}00:00:10.250002Z") == ["fine"]
    tenant.provider.settings(shown_us=1)
    assert tenant.get().json()["items"][0]["updated_at"] == f"{_DAY}00:00:10.250001Z"


def test_a_walk_gives_every_record_once_in_order_of_time_and_id(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=57)
    together = [{"id": f"same-{n}", "updated_at": f"{_DAY}00:00:00Z"} for n in range(7)]
    tenant.provider.put_together(together, tenant.name)
    pages = tenant.walk(limit=10)
    given = [(item["updated_at"], item["id"]) for page in pages for item in page]
    assert [len(page) for page in pages] == [10] * 6 + [4]
    assert given == sorted(given)
    state = tenant.provider.state(tenant.name)
    assert {id_ for _, id_ in given} == set(state)
    assert len(given) == 64


def test_a_token_stays_behind_its_record_whatever_changes_before_it(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    first = tenant.get(limit=10).json()
    for item in first["items"][:5]:
        tenant.delete(item["id"])
    second = tenant.get(limit=10, page_token=first["next_page_token"]).json()
    assert [item["id"] for item in second["items"]] == [f"acc-{n:06d}" for n in range(11, 21)]
    assert "next_page_token" not in second


def test_a_token_is_refused_with_another_question(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    token = tenant.get(limit=5).json()["next_page_token"]
    other = tenant.get(limit=6, page_token=token)
    assert (other.status, other.json()["code"]) == (400, "token_mismatch")
    assert tenant.get(limit=5, changed_from="1", page_token=token).status == 400
    broken = tenant.get(limit=5, page_token=token[:-2] + "xx")
    assert (broken.status, broken.json()["code"]) == (400, "bad_token")
    assert tenant.get(limit=5, page_token="").status == 400
    assert tenant.get(limit=5, page_token=token).status == 200


def test_a_token_expires_by_the_providers_clock(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    tenant.provider.settings(token_lifetime_s=120)
    token = tenant.get(limit=5).json()["next_page_token"]
    assert tenant.get(limit=5, page_token=token).status == 200
    tenant.provider.clock(jump_s=121)
    late = tenant.get(limit=5, page_token=token)
    assert (late.status, late.json()["code"]) == (410, "token_expired")


def test_the_page_cap_cuts_without_a_word(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    tenant.provider.settings(page_cap=8)
    assert [len(page) for page in tenant.walk(limit=15)] == [8, 8, 4]


def test_the_result_cap_refuses_or_truncates(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    tenant.provider.settings(result_cap=20)
    assert sum(map(len, tenant.walk(limit=7))) == 20
    tenant.provider.settings(result_cap=19)
    refused = tenant.get(limit=7)
    assert (refused.status, refused.json()["code"]) == (422, "too_many_results")
    tenant.provider.settings(result_cap_answer="truncate")
    assert sum(map(len, tenant.walk(limit=7))) == 19
    assert tenant.get(limit=7).json()["total"] == 20


def test_behind_the_retention_is_200_and_nothing(tenant: Tenant) -> None:
    old = tenant.put(id="old")
    tenant.provider.settings(retention_s=3_600)
    assert tenant.window(None, None) == ["old"]
    tenant.provider.clock(jump_s=3_601)
    tenant.put(id="new")
    assert tenant.window(None, None) == ["new"]
    assert tenant.window(old["updated_at"], None) == ["new"]
    assert tenant.get(changed_from=old["updated_at"]).json()["total"] == 1
    assert [item["id"] for item in tenant.get("/all").json()["items"]] == ["new", "old"]
    tenant.provider.settings(retention_answer="refuse")
    refused = tenant.get(changed_from=old["updated_at"])
    assert (refused.status, refused.json()["code"]) == (410, "before_retention")


def test_a_row_is_found_by_time_only_after_its_lag(tenant: Tenant) -> None:
    tenant.provider.clock(speed=0)
    tenant.put(id="kept", fields={"plan": "old"})
    tenant.provider.settings(visibility_lag_ms=2_000)
    tenant.put(id="kept", fields={"plan": "new"})
    tenant.put(id="fresh", visible_after_ms=500)
    assert [item["plan"] for item in tenant.get().json()["items"]] == ["old"]
    assert len(tenant.get("/all").json()["items"]) == 2
    tenant.provider.clock(jump_s=0.5)
    assert set(tenant.window(None, None)) == {"kept", "fresh"}
    tenant.provider.clock(jump_s=1.5)
    kept = next(item for item in tenant.get().json()["items"] if item["id"] == "kept")
    assert kept["plan"] == "new"
    tenant.delete("kept")
    assert "kept" in tenant.window(None, None)
    tenant.provider.clock(jump_s=2, speed=1)
    assert tenant.window(None, None) == ["fresh"]


def test_a_state_that_shows_late_never_covers_a_newer_one(tenant: Tenant) -> None:
    tenant.provider.clock(speed=0)
    tenant.put(id="a", fields={"plan": "slow"}, visible_after_ms=5_000)
    tenant.put(id="a", fields={"plan": "quick"}, visible_after_ms=1_000)
    tenant.provider.clock(jump_s=1)
    assert [item["plan"] for item in tenant.get().json()["items"]] == ["quick"]
    tenant.provider.clock(jump_s=10, speed=1)
    assert [item["plan"] for item in tenant.get().json()["items"]] == ["quick"]


def test_a_state_that_shows_at_once_overtakes_one_that_waits(tenant: Tenant) -> None:
    tenant.provider.clock(speed=0)
    tenant.put(id="a", fields={"plan": "slow"}, visible_after_ms=5_000)
    tenant.put(id="a", fields={"plan": "quick"})
    assert [item["plan"] for item in tenant.get().json()["items"]] == ["quick"]
    tenant.provider.clock(jump_s=10, speed=1)
    assert [item["plan"] for item in tenant.get().json()["items"]] == ["quick"]


def test_a_late_row_has_an_old_stamp(tenant: Tenant) -> None:
    tenant.put(id="now")
    tenant.put(id="late", updated_at="2026-01-01T00:00:00Z")
    assert tenant.window(None, None) == ["late", "now"]


def test_pages_may_be_short_end_empty_or_loop(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=30)
    tenant.provider.settings(short_pages=True)
    pages = tenant.walk(limit=10)
    assert sum(map(len, pages)) == 30
    assert any(len(page) < 10 for page in pages[:-1])
    tenant.provider.settings(short_pages=False, trailing_empty=True)
    assert [len(page) for page in tenant.walk(limit=15)] == [15, 15, 0]
    tenant.provider.settings(token_loop=True)
    token = tenant.get(limit=10).json()["next_page_token"]
    assert tenant.get(limit=10, page_token=token).json()["next_page_token"] == token


def test_search_finds_events_by_the_time_they_were_received(tenant: Tenant) -> None:
    tenant.provider.seed(
        tenant.name, "events", 25, from_="2026-01-01T00:00:00Z", to="2026-01-02T00:00:00Z"
    )
    asked = {
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-01T12:00:00Z",
        "limit": 5,
        "query": "any",
    }
    hits = []
    answer = tenant.provider.post(tenant.path("events", "/search"), asked).json()
    while True:
        hits += answer["hits"]
        assert answer["count"] == 13
        if "after" not in answer:
            break
        answer = tenant.provider.post(
            tenant.path("events", "/search"), {**asked, "after": answer["after"]}
        ).json()
    assert len({hit["event_id"] for hit in hits}) == len(hits) == 13
    assert all(hit["occurred_at"] <= hit["received_at"] for hit in hits)
    assert {hit["tenant"] for hit in hits} == {tenant.name}
    runs = [hit["tags"].get("run_id") for hit in tenant.get(collection="events").json()["items"]]
    assert None in runs
    assert any(runs)


def test_links_lead_through_all_pages_and_repeat_the_asked_size(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=25)
    tenant.provider.settings(page_cap=10)
    answer = tenant.get("/linked", per_page=15, since="2020-01-01T00:00:00Z")
    ids = [item["id"] for item in answer.json()]
    while "link" in answer.headers:
        target, _, relation = answer.headers["link"].partition(">; ")
        assert relation == 'rel="next"'
        assert target.startswith(f"<{tenant.provider.url}/t/")
        assert "per_page=15" in target
        answer = tenant.provider.get(target[1:].removeprefix(tenant.provider.url))
        ids += [item["id"] for item in answer.json()]
    assert ids == [f"acc-{n:06d}" for n in range(1, 26)]
    tenant.provider.settings(link_origin="http://elsewhere.example")
    away = tenant.get("/linked", per_page=5)
    assert away.headers["link"].startswith("<http://elsewhere.example/t/")


def test_linked_pages_shift_when_a_record_is_touched(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=6)
    first = [item["id"] for item in tenant.get("/linked", per_page=3).json()]
    tenant.put(id=first[0])
    second = [item["id"] for item in tenant.get("/linked", per_page=3, page=2).json()]
    assert "acc-000004" not in first + second

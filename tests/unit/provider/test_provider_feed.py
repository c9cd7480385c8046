"""The change feed and the full listings: tombstones, re-creation, what shifts and what does not."""

from __future__ import annotations

from typing import Any

from tests.unit.provider.tenant import Tenant


def _read(tenant: Tenant, since: str | None = None, limit: int = 7) -> tuple[list[Any], str]:
    """All results from a cursor on, and the cursor behind them."""
    results: list[Any] = []
    while True:
        query = {} if since is None else {"since": since}
        answer = tenant.get("/changes", limit=limit, **query)
        assert answer.status == 200, answer.body
        page = answer.json()
        if not page["results"]:
            assert since is None or page["last_seq"] == since
            return results, page["last_seq"]
        assert page["last_seq"] != since
        results += page["results"]
        since = page["last_seq"]


def test_replaying_the_feed_from_any_cursor_gives_the_state(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=40)
    copy: dict[str, Any] = {}
    cursor: str | None = None
    for step in range(6):
        for number in range(step, 40, 6):
            id_ = f"acc-{number + 1:06d}"
            if number % 4 == 0:
                tenant.delete(id_)
            else:
                tenant.put(id=id_)
        results, cursor = _read(tenant, cursor)
        for result in results:
            if result.get("deleted"):
                copy.pop(result["id"], None)
            else:
                copy[result["id"]] = result
        state = tenant.provider.state(tenant.name)
        assert copy == {id_: fact.body for id_, fact in state.items()}


def test_an_entity_stands_in_the_feed_once_with_its_latest_state(tenant: Tenant) -> None:
    for _ in range(3):
        tenant.put(id="a")
    tenant.put(id="b")
    tenant.delete("a")
    results, _ = _read(tenant)
    assert [(each["id"], each["version"], each.get("deleted")) for each in results] == [
        ("b", 1, None),
        ("a", 4, True),
    ]
    assert tenant.put(id="a")["version"] == 5


def test_the_feed_without_news_answers_nothing_and_the_same_cursor(tenant: Tenant) -> None:
    assert _read(tenant)[0] == []
    tenant.put(id="a")
    results, cursor = _read(tenant, "0")
    assert len(results) == 1
    assert tenant.get("/changes", since=cursor).json() == {"results": [], "last_seq": cursor}
    assert tenant.get("/changes", since=cursor[:-1] + "x").json()["code"] == "bad_cursor"
    assert tenant.get("/changes", since="fish").status == 400


def test_a_recreated_collection_begins_again_and_the_old_cursor_says_nothing(
    tenant: Tenant,
) -> None:
    tenant.provider.seed(tenant.name, count=5)
    tenant.put(id="acc-000001")
    tenant.put(id="kept", fields={"plan": "odd"})
    tenant.delete("acc-000002")
    before = tenant.get("/info").json()
    _, cursor = _read(tenant)
    assert before["update_seq"] == cursor

    instance = tenant.provider.recreate(tenant.name)
    after = tenant.get("/info").json()
    assert after["instance"] == instance != before["instance"]
    assert int(after["update_seq"].partition("-")[0]) == 5 < int(cursor.partition("-")[0])
    assert _read(tenant, cursor)[0] == []
    results, _ = _read(tenant)
    assert [each["version"] for each in results] == [1] * 5
    assert sorted(each["id"] for each in results) == [
        "acc-000001", "acc-000003", "acc-000004", "acc-000005", "kept",
    ]  # fmt: skip
    assert next(each for each in results if each["id"] == "kept")["plan"] == "odd"

    ledger = tenant.provider.ledger(tenant.name, "accounts")
    assert [fact.instance for fact in ledger].count(before["instance"]) == 8
    tenant.provider.recreate(tenant.name, keep=False)
    assert tenant.get("/info").json()["live"] == 0
    assert len(tenant.provider.ledger(tenant.name, "accounts")) == len(ledger)


def test_positions_shift_under_deletes_and_keysets_do_not(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=20)
    by_position = [item["id"] for item in tenant.get("/all", offset=0, limit=10).json()["items"]]
    first = tenant.get("/by-id", limit=10).json()
    assert first["has_more"] is True
    for id_ in by_position[:3]:
        tenant.delete(id_)
    by_position += [item["id"] for item in tenant.get("/all", offset=10, limit=10).json()["items"]]
    rest = tenant.get("/by-id", limit=10, after_id=first["items"][-1]["id"]).json()
    assert rest["has_more"] is False
    assert "acc-000011" not in by_position
    assert "acc-000011" in [item["id"] for item in rest["items"]]
    assert len(rest["items"]) == 10


def test_what_lies_below_an_account(tenant: Tenant) -> None:
    for account in ("a", "a-b", "b"):
        tenant.put(id=account)
    for id_ in ("a.1", "a.2", "a.3", "a-b.1", "b"):
        tenant.put("events", id=id_, updated_at=f"2026-03-0{id_[-1].replace('b', '9')}T00:00:00Z")

    def below(account: str, **query: Any) -> tuple[list[str], bool]:
        answer = tenant.get(f"/below/{account}", "events", **query).json()
        return [item["event_id"] for item in answer["items"]], answer["has_more"]

    assert below("a", limit=2) == (["a.1", "a.2"], True)
    assert below("a", limit=2, after_id="a.2") == (["a.3"], False)
    span = {"changed_from": "2026-03-02T00:00:00Z", "changed_to": "2026-03-03T00:00:00Z"}
    assert below("a", **span) == (["a.2"], False)
    assert below("a-b") == (["a-b.1"], False)
    assert below("b") == ([], False)
    tenant.delete("a")
    assert tenant.get("/below/a", "events").status == 404


def test_full_listings_hold_exactly_the_live_records(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=23)
    tenant.delete("acc-000023")
    state = tenant.provider.state(tenant.name)
    whole = tenant.get("/all", offset=0, limit=100).json()
    assert {item["id"]: item for item in whole["items"]} == {
        id_: f.body for id_, f in state.items()
    }
    assert whole["total"] == 22
    assert tenant.get("/all", offset=22).json()["items"] == []
    assert tenant.get("/by-id", after_id="acc-000022").json() == {"items": [], "has_more": False}

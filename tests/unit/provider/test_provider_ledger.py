"""The ledger is the truth: it agrees with the state and with what the public paths gave, under traffic too."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.unit.provider.tenant import Tenant
from tests.upstream import Fact, Provider


def _replay(facts: list[Fact]) -> dict[str, Fact]:
    live: dict[str, Fact] = {}
    for fact in facts:
        if fact.deleted:
            live.pop(fact.id)
        else:
            live[fact.id] = fact
    return live


def _busy(seed: int, writes: int) -> Provider:
    provider = Provider.start(seed=seed, tenants=2, accounts=50, events=20)
    provider.traffic(2_000, limit=writes, late_share=0.2)
    provider.wait_written(writes)
    provider.traffic(0)
    return provider


def test_replaying_the_ledger_gives_the_state() -> None:
    with _busy(3, 1_500) as provider:
        for tenant in ("north", "south"):
            for collection in ("accounts", "events"):
                facts = provider.ledger(tenant, collection)
                live = _replay(facts)
                state = provider.state(tenant, collection)
                assert {id_: (f.seq, f.hash, f.body) for id_, f in live.items()} == {
                    id_: (f.seq, f.hash, f.body) for id_, f in state.items()
                }
                assert [fact.seq for fact in facts] == list(range(1, len(facts) + 1))
        accounts = provider.ledger("north", "accounts")
        kinds = {(fact.deleted, fact.version > 1) for fact in accounts}
        assert kinds == {(False, False), (False, True), (True, True)}
        _versions_rise_by_one(accounts)
        _what_was_replaced_says_when(accounts)
        assert len(provider.ledger()) >= 1_500 + 140


def _versions_rise_by_one(facts: list[Fact]) -> None:
    last: dict[str, int] = {}
    for fact in facts:
        assert fact.version == last.get(fact.id, 0) + 1
        last[fact.id] = fact.version


def _what_was_replaced_says_when(facts: list[Fact]) -> None:
    following: dict[str, str] = {}
    for fact in reversed(facts):
        assert fact.replaced_at == following.get(fact.id)
        following[fact.id] = fact.committed_at


def test_the_public_paths_give_what_the_ledger_says() -> None:
    with _busy(4, 800) as provider:
        tenant = Tenant(provider, "north")
        state = {id_: fact.body for id_, fact in provider.state().items()}
        assert {item["id"]: item for page in tenant.walk() for item in page} == state
        events = {id_: fact.body for id_, fact in provider.state("north", "events").items()}
        found = provider.post("/t/north/events/search", {"limit": 1_000}).json()["hits"]
        assert {hit["event_id"]: hit for hit in found} == events
        stamps = [fact.updated_at for fact in provider.ledger("north", "events")]
        assert stamps != sorted(stamps), "late events have stamps older than what came before them"


def test_with_random_lag_all_shows_in_the_end() -> None:
    settings = {"visibility_lag_ms": 50, "visibility_jitter_ms": 3_000}
    with Provider.start(seed=6, accounts=40, rate=2_000, settings=settings) as provider:
        tenant = Tenant(provider, "north")
        provider.wait_written(1_000)
        early = [item for page in tenant.walk(limit=1_000) for item in page]
        provider.traffic(0)
        state = {id_: fact.body for id_, fact in provider.state().items()}
        assert {item["id"]: item for item in early} != state
        provider.clock(jump_s=3.1)
        assert {item["id"]: item for page in tenant.walk() for item in page} == state


def test_a_window_read_under_traffic_holds_states_of_the_ledger() -> None:
    with Provider.start(seed=5, accounts=300, rate=1_000) as provider:
        tenant = Tenant(provider, "north")
        read = [item for _ in range(5) for page in tenant.walk(limit=50) for item in page]
        provider.traffic(0)
        known = {
            (fact.id, fact.version): fact.body for fact in provider.ledger("north", "accounts")
        }
        assert len(read) > 1_000
        assert all(known[item["id"], item["version"]] == item for item in read)


def test_a_seed_tells_the_same_story_twice() -> None:
    def story(seed: int) -> list[tuple[str, str, Any, bool, Any]]:
        with _busy(seed, 400) as provider:
            facts = [fact for fact in provider.ledger() if fact.seq <= 100]
        return [
            (f.tenant, f.id, f.version, f.deleted, f.body and f.body.get("balance")) for f in facts
        ]

    assert story(11) == story(11)
    assert story(11) != story(12)


def test_records_have_about_the_asked_size_and_all_fields(tenant: Tenant) -> None:
    tenant.provider.seed(tenant.name, count=200)
    bodies = [fact.body for fact in tenant.provider.state(tenant.name).values()]
    sizes = [len(json.dumps(body, separators=(",", ":"))) for body in bodies]
    assert 500 < min(sizes) <= max(sizes) < 700
    assert {body["lifecycle"] for body in bodies} == {"active", "suspended", "closed"}
    one = bodies[0]
    assert set(one) == {
        "id", "external_id", "version", "updated_at", "lifecycle", "email", "plan", "balance",
        "profile", "labels", "note",
    }  # fmt: skip
    assert isinstance(one["balance"], str)
    assert isinstance(one["labels"], list)


def test_poison_records_are_given_as_they_are(tenant: Tenant) -> None:
    tenant.put(id="enum", fields={"lifecycle": "paused", "profile": {"logins": -1}})
    tenant.put(id="nul", fields={"note": "a\0b"})
    tenant.put(id="no-id", remove=["id"])
    tenant.put(id="no-version", remove=["version"])
    tenant.put(id="large", pad_bytes=2_000_000)
    tenant.put(id="raw", raw=b'{"id":"raw","note":"\xff\xfe"}', updated_at="2030-01-01T00:00:00Z")
    body = tenant.get().body
    assert b'"lifecycle":"paused"' in body
    assert b"a\\u0000b" in body
    assert body.endswith(b'{"id":"raw","note":"\xff\xfe"}],"total":6}')
    assert len(body) > 2_000_000
    state = tenant.provider.state(tenant.name)
    assert state["enum"].body["profile"]["name"]
    assert state["enum"].body["profile"]["logins"] == -1
    assert "id" not in state["no-id"].body
    assert "version" not in state["no-version"].body
    assert state["raw"].raw == b'{"id":"raw","note":"\xff\xfe"}'
    assert state["raw"].hash == hashlib.sha256(state["raw"].raw).hexdigest()


def test_versions_and_stamps_can_be_chosen(tenant: Tenant) -> None:
    tenant.put(id="a", version=9, updated_at="2026-01-01T00:00:00.123Z")
    lower = tenant.put(id="a", version=4, fields={})
    assert lower["version"] == 4
    facts = tenant.provider.ledger(tenant.name, "accounts")
    assert [(fact.version, fact.body["version"]) for fact in facts] == [(9, 9), (4, 4)]
    assert facts[0].body["updated_at"] == "2026-01-01T00:00:00.123Z"
    assert facts[0].replaced_at == facts[1].committed_at


def test_the_ledger_can_leave_bodies_out(tenant: Tenant) -> None:
    tenant.put(id="a")
    tenant.delete("a")
    full = tenant.provider.ledger(tenant.name, "accounts")
    short = tenant.provider.ledger(tenant.name, "accounts", bodies=False)
    assert [fact.hash for fact in short] == [fact.hash for fact in full]
    assert [fact.body for fact in short] == [None, None]
    assert full[1].deleted
    assert full[1].hash is None


def test_traffic_leaves_records_alone_that_a_test_made(tenant: Tenant) -> None:
    tenant.put(id="mine", fields={"plan": "mine"})
    server = tenant.provider
    before = server.traffic(0)["written"]
    server.traffic(5_000, limit=2_000)
    server.wait_written(before + 2_000)
    assert server.state(tenant.name)["mine"].body["plan"] == "mine"


@pytest.mark.parametrize(
    "wanted", [{"rate": -1}, {"rate": 1, "weights": {"fish": 1}}, {"rate": 1, "colour": 2}]
)
def test_traffic_that_cannot_be_is_refused(tenant: Tenant, wanted: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="400"):
        tenant.provider.traffic(**wanted)

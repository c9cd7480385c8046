"""Keys at source, stream and plan: the nearest wins, maps merge, null removes; and fingerprints."""

from pathlib import Path

from schemas.definitions.mapping import MappingSpec
from schemas.definitions.read_mapping import mapping_hash
from schemas.definitions.source import (
    Action,
    ApiKeyAuth,
    BasicAuth,
    CursorSpec,
    IntervalSpec,
    SessionAuth,
    SourceSpec,
    Turn,
)
from schemas.definitions.templates import Template
from tests.unit.definition_files import ORDERS, SHOP, changed, load

LAYERS = """\
gapless: 1
source: s
base_url: https://x.example/
params: {far: 1, both: source, gone: 1, limit: "{size}"}
headers: {Accept: application/json, X-A: source}
body: {query: {a: 1, b: 2}, page: "{page}", list: [1, 2]}
records: body.items
pages: {size: 10, end: empty, stable: true}
errors: [{when: {status: 410}, do: fail}]
deletes: shown
schedule: {every: 1m}
upstream_retention: 30d
streams:
  one:
    post: /one
    params: {both: stream, gone: null}
    headers: {accept: text/plain}
    body: {query: {b: null, c: 3}, list: [3]}
    errors: [{when: {status: 409}, do: retry}]
    plan:
      interval:
        time: t
        params: {both: plan, from: "{start}"}
        errors: [{when: {status: 400}, do: park}]
        schedule: {every: 5s}
      snapshot:
        every: 1h
        get: /all
        body: null
        records: body
        errors: null
        params: {page: "{page}"}
  two:
    get: /two
    body: null
    params: {limit: null, offset: "{offset}"}
    pages: {size: null, cap: 5}
    deletes: not_shown
    plan: {snapshot: {every: 1h}}
"""


def read(folder: Path, text: str) -> SourceSpec:
    found = load(folder, text, None)
    assert found.errors == (), [str(error) for error in found.errors]
    return next(iter(found.sources.values()))


def test_layers(tmp_path: Path) -> None:
    source = read(tmp_path, LAYERS)
    one = source.streams["one"]
    assert isinstance(one.changes, IntervalSpec)
    assert one.snapshot is not None
    request = one.changes.request
    assert (request.method, request.path.text) == ("POST", "/one")
    assert set(request.params) == {"far", "both", "limit", "from"}
    assert request.params["both"] == "plan"
    assert request.headers == {"accept": "text/plain", "X-A": "source"}
    assert request.body is not None
    assert request.body["query"] == {"a": 1, "c": 3}
    assert request.body["list"] == (3,)
    assert [rule.do for rule in request.errors] == [Action.PARK, Action.RETRY, Action.FAIL]
    assert one.schedule.every_s == 5
    assert (one.deletes, one.upstream_retention_s) == ("shown", 30 * 86_400)
    snapshot = one.snapshot.request
    assert (snapshot.method, snapshot.path.text, snapshot.body) == ("GET", "/all", None)
    assert snapshot.errors == ()
    assert snapshot.records.text == "body"
    assert set(snapshot.params) == {"far", "both", "limit", "page"}
    assert snapshot.pages is not None
    assert (snapshot.pages.turn, snapshot.pages.first) == (Turn.PAGE, 1)
    two = source.streams["two"]
    assert two.snapshot is not None
    assert two.snapshot.request.pages is not None
    assert (two.snapshot.request.pages.size, two.snapshot.request.pages.cap) == (None, 5)
    assert two.snapshot.request.pages.turn is Turn.OFFSET
    assert two.deletes == "not_shown"
    assert two.schedule.every_s == 60


def test_a_nearer_reference_replaces_a_map(tmp_path: Path) -> None:
    text = changed(LAYERS, ("    body: {query: {b: null, c: 3}", "    body: {query: {env: QUERY}"))
    changes = read(tmp_path, text).streams["one"].changes
    assert changes is not None
    assert changes.request.body is not None
    assert str(changes.request.body["query"]) == "{env: QUERY}"


def test_a_plan_of_the_source_is_taken_out_by_name(tmp_path: Path) -> None:
    every = "\nplan: {interval: {time: updated_at, start: 2024-01-01}}\nstreams:"
    feed = "      interval:\n        time: updated_at\n        start: 2024-01-01\n"
    text = changed(SHOP, ("\nstreams:", every), (feed, "      cursor: {next: body.seq}\n"))
    [error, *_] = [
        one
        for one in load(tmp_path, text, None).errors
        if "two plans for its changes" in one.message
    ]
    assert "`interval: null` takes out one that stands at the source" in error.advice
    text = changed(text, ("      cursor:", "      interval: null\n      cursor:"))
    found = load(tmp_path, text, None).errors
    assert not [one for one in found if "two plans" in one.message]


def hashes(folder: Path, text: str) -> tuple[str, ...]:
    [source] = load(folder, text, None).sources.values()
    return tuple(
        plan.definition_hash for stream in source.streams.values() for plan in stream.plans
    )


def test_the_fingerprint_is_of_what_is_asked(tmp_path: Path) -> None:
    before = hashes(tmp_path, SHOP)
    assert all(len(one) == 16 for one in before)
    same = [
        ("      changed_from: \"{start}\"\n      changed_to: \"{end}\"\n", "      changed_to: '{end}'\n      changed_from: \"{start}\"\n"),
        ("size: 200", "size: 100\n      stable: true"),
        ("every: 5m", "every: 9m"),
        ("records: body.items", "records: body.rows\n    headers: {X: y}\n    id: id"),
        ("start: 2024-01-01", "start: 2023-01-01\n        settle: 9m\n        bounds: '[)'\n        width: 1d"),
    ]  # fmt: skip
    for old, new in same:
        assert hashes(tmp_path, changed(SHOP, (old, new))) == before
    for old, new in [
        ("get: /orders", "get: /order"),
        ('"{end}"', '"{end}"\n      sort: asc'),
        ("records: body.items", "records: body.items\n    id: key"),
        ("get: /orders", "post: /orders\n    body: {a: 1}"),
    ]:
        found = hashes(tmp_path, changed(SHOP, (old, new)))
        assert not set(found) & set(before)
    for old, new in [
        ("time: updated_at", "time: changed_at"),
        ("start: 2024-01-01", "format: unix_s\n        start: 2024-01-01"),
    ]:
        interval, snapshot = hashes(tmp_path, changed(SHOP, (old, new)))
        assert interval != before[0]
        assert snapshot == before[1]


def test_the_fingerprint_stays_the_same_for_ever(tmp_path: Path) -> None:
    """A change here begins every interval of every user again."""
    assert hashes(tmp_path, SHOP) == ("b71e20b00b9290ff", "813af551689039c1")


def test_the_hash_of_a_mapping_leaves_out_version_and_order(tmp_path: Path) -> None:
    def mapping(*changes: tuple[str, str]) -> MappingSpec:
        return load(tmp_path, SHOP, changed(ORDERS, *changes)).mappings["shop_orders"]

    before = mapping()
    assert before.hash == mapping_hash(before) == "b82fb71bf824e099"
    total = "  total: amount.total::numeric(12,2)\n"
    assert mapping(("version: 1", "version: 2")).hash == before.hash
    assert mapping((total, ""), ("  id: text\n", f"{total}  id: text\n")).hash == before.hash
    assert mapping(("12,2", "14,2")).hash != before.hash
    assert mapping(("key: id", "key: id\nwhere: {state: {not: draft}}")).hash != before.hash
    one = mapping(("total: amount.total::numeric(12,2)", "total: {type: smallint, values: {1: 2}}"))
    two = mapping(
        ("total: amount.total::numeric(12,2)", "total: {type: smallint, values: {'1': 2}}")
    )
    assert one.hash != two.hash


def test_ways_to_authenticate(tmp_path: Path) -> None:
    def auth(text: str) -> object:
        tenants = "tenants: {list: [{id: a, key: {file: /run/a}}]}\n"
        return read(
            tmp_path, changed(SHOP, ("auth:\n  bearer: {env: SHOP_TOKEN}", tenants + text))
        ).auth

    basic = auth("auth: {basic: {user: me, password: {file: /run/p}}}")
    assert isinstance(basic, BasicAuth)
    assert basic.user == "me"
    key = auth("auth: {api_key: {param: key, value: '{tenant.key}'}}")
    assert isinstance(key, ApiKeyAuth)
    assert (key.place, key.name) == ("param", "key")
    assert isinstance(key.value, Template)
    session = auth(
        "auth: {session: {post: /login, token: body.token, lifetime: 12h, header: X-Token,"
        " body: {who: {env: W}, password: {command: [pass, show, x]}}}}"
    )
    assert isinstance(session, SessionAuth)
    assert session.lifetime_s == 43_200
    assert str(session.body["password"]) == "{command: [pass, show, x]}"


def test_a_cursor_plan_alone(tmp_path: Path) -> None:
    feed = changed(
        SHOP,
        ('      changed_from: "{start}"\n      changed_to: "{end}"\n      page_token: "{token}"\n', '      since: "{cursor}"\n'),
        ("      next: body.next_page_token\n", ""),
        ("      interval:\n        time: updated_at\n        start: 2024-01-01\n", "      cursor: {next: header.x-last, lifetime: 7d}\n"),
    )  # fmt: skip
    feed = changed(
        feed,
        ("      snapshot:\n        every: 7d\n", ""),
        ("schedule:", "deletes: shown\n    schedule:"),
    )
    changes = read(tmp_path, feed).streams["orders"].changes
    assert isinstance(changes, CursorSpec)
    assert (changes.start, changes.lifetime_s, changes.identity) == (None, 604_800, None)
    assert changes.next.steps == ("x-last",)
    assert changes.request.pages is not None
    assert changes.request.pages.turn is Turn.CURSOR

"""What a user is told about a wrong definition: the place, the line, and what to write instead."""

from pathlib import Path

import pytest

from schemas.definitions import load_folder
from tests.unit.definition_files import ORDERS, SHOP, changed, load, messages

DOCS = Path(__file__).parents[2] / "ops/docs"
SECRET = "c0ffee-b4d-5ecret-that-is-long"


def test_an_unknown_key_with_an_explanation(tmp_path: Path) -> None:
    wrong = changed(
        SHOP,
        (
            "    pages:\n      next: body.next_page_token\n      size: 200\n",
            "    paginator: cursor\n",
        ),
    )
    assert messages(load(tmp_path, wrong, None))[0] == (
        'sources/shop.yaml:15:5  stream orders has no key "paginator"\n'
        "   15 |     paginator: cursor\n"
        "  Write `pages:`. The kind follows from the placeholder you use: {token} is a\n"
        "  token, {page} a page number, {offset} an offset, {last.id} the last record."
    )


def test_a_secret_is_never_repeated(tmp_path: Path) -> None:
    found = messages(load(tmp_path, changed(SHOP, ("{env: SHOP_TOKEN}", SECRET)), None))
    assert found == [
        (
            "sources/shop.yaml:5:11  this looks like a secret, and files are not for secrets\n"
            "    5 |   bearer: (30 characters, not repeated here)\n"
            "  Write `bearer: {env: SHOP_TOKEN}`. If the file was shared, change the token."
        )
    ]


@pytest.mark.parametrize(
    "place",
    [
        f"auth: {{basic: {{user: me, password: {SECRET}}}}}",
        f"auth: {{api_key: {{header: X-Key, value: {SECRET}}}}}",
        f"auth: {{session: {{post: /login, token: body.t, body: {{password: {SECRET}}}}}}}",
        f"auth: {{bearer: {{env: A}}}}\nheaders: {{X-Api-Key: {SECRET}}}",
        f"auth: {{bearer: {{env: A}}}}\nparams: {{access_token: {SECRET}}}",
        "auth: {bearer: {env: A}}\nbody: {x: ghp_%s}" % ("a1" * 18),
        f"auth: {{bearer: {{env: '{SECRET}'}}}}",
        f"auth: {{oauth2: {{client_secret: {SECRET}}}}}",
        f"auth:\n  bearer: {SECRET}\n  bearer: {SECRET}",
        f"auth:\n  bearer: {SECRET}\n  [",
    ],
)
def test_no_message_repeats_a_secret(tmp_path: Path, place: str) -> None:
    found = messages(
        load(tmp_path, changed(SHOP, ("auth:\n  bearer: {env: SHOP_TOKEN}", place)), None)
    )
    assert found
    assert not [one for one in found if SECRET in one or "a1a1" in one]


def test_a_password_in_the_url(tmp_path: Path) -> None:
    wrong = changed(SHOP, ("https://api", f"https://me:{SECRET}@api"))
    found = messages(load(tmp_path, wrong, None))
    assert "this looks like a secret" in found[0]
    assert SECRET not in found[0]


def test_a_token_that_is_never_sent(tmp_path: Path) -> None:
    wrong = changed(SHOP, ('      page_token: "{token}"\n', ""))
    assert messages(load(tmp_path, wrong, None)) == [
        (
            "sources/shop.yaml:15:7  a token is read but never sent: page 2 would be page 1\n"
            "   15 |       next: body.next_page_token\n"
            '  Add to `params` (line 9) what the API calls it, e.g. `page_token: "{token}"`.'
        )
    ]


def test_a_settle_of_nothing(tmp_path: Path) -> None:
    wrong = changed(
        SHOP, ("        start: 2024-01-01\n", "        start: 2024-01-01\n        settle: 0s\n")
    )
    assert messages(load(tmp_path, wrong, None)) == [
        (
            "sources/shop.yaml:22:17  settle: 0s loses rows that commit later than stamped\n"
            "   22 |         settle: 0s\n"
            "  Write `settle: 2s` or more (`gapless probe` measures it), or `settle: none`\n"
            "  if there is only one writer; `check` then lists that risk."
        )
    ]


def test_all_problems_come_at_once_in_order(tmp_path: Path) -> None:
    wrong = changed(
        SHOP,
        ("every: 5m", "every: soon"),
        ("records: body.items", "records: items"),
        ("every: 7d", "every: 7d\n        sort: id"),
        ('"{start}"', '"{strat}"'),
    )
    found = load(
        tmp_path, wrong, changed(ORDERS, ("version: 1", "version: one"), ("id: text", "id: txt"))
    )
    assert [(one.file, one.line) for one in found.errors] == [
        ("mappings/shop_orders.yaml", 3),
        ("mappings/shop_orders.yaml", 9),
        ("sources/shop.yaml", 10),
        ("sources/shop.yaml", 14),
        ("sources/shop.yaml", 24),
        ("sources/shop.yaml", 25),
    ]
    assert found.sources == {}
    assert found.mappings == {}
    assert "Did you mean `{start}`?" in found.errors[2].advice


SOURCE_MISTAKES = [
    ("gapless: 1", "gapless: 2", "reads version 1 of the language"),
    ("source: shop", "source: a/b", '"a/b" is no name'),
    ("base_url: https://api.shop.example/v2", "base_url: api.shop.example", "this is no URL"),
    ("base_url: https://api.shop.example/v2", "base_url: https://x.example/?a=1", "an origin and a path"),
    ("  bearer:", "  oauth2:", 'oauth2 has no key "env"'),
    ("bearer: {env: SHOP_TOKEN}", "bearer: {env: SHOP_TOKEN}\n  basic: {}", "auth has bearer and basic"),
    ("get: /orders", "get: orders", "a path begins with /"),
    ("get: /orders", "get: /orders?all=1", "a path has no query"),
    ("get: /orders", "get: /orders/{tenant.id}", "this source has no tenants"),
    ("get: /orders", "get: /orders\n    post: /orders", "has get and post"),
    ("get: /orders", "get: /orders\n    graphql: query", "a query is posted"),
    ("get: /orders", "post: /q\n    graphql: q\n    body: {a: 1}", "either `body` or `graphql`"),
    ("get: /orders", "post: /q\n    variables: {a: 1}", "variables without a query"),
    ("get: /orders", "get: /orders\n    parent: {stream: x}", 'there is no stream "x"'),
    ("get: /orders", "get: /orders\n    get: /orders", 'the key "get" stands here twice'),
    ('"{end}"', '"{cursor}"', "{cursor} never has a value in stream orders"),
    ('"{end}"', '"{after.time}"', "{after.time} never has a value in stream orders"),
    ('"{end}"', '"{parent.id}"', "{parent.id} has no value: stream orders has no parent"),
    ('"{token}"', '"{page}"', "a token is read but never sent"),
    ("      next: body.next_page_token\n", "", "{token} is sent but never read"),
    ("      size: 200", "      size: 200\n      end: total", "a total that is never read"),
    ("      size: 200", "      size: 200\n      end: nothing_new", "listings asked with {last.id}"),
    ("      size: 200", "      size: 0", "0 is too small"),
    ("      size: 200", "      size: 200\n      stable: yes", "`true` or `false` is needed here"),
    ("    pages:\n      next: body.next_page_token\n      size: 200", "    pages: none", "no second page"),
    ("    records: body.items\n", "", "needs `records:`"),
    ("time: updated_at", "time: updated-at", '"updated-at" is no path'),
    ("        time: updated_at\n", "", "needs `time:`"),
    ("        start: 2024-01-01\n", "", "nothing says where the past of orders begins"),
    ("start: 2024-01-01", "start: yesterday", '"yesterday" is no time'),
    ("start: 2024-01-01", "start: 2024-01-01\n        format: iso", '"iso" is no format of times'),
    ("start: 2024-01-01", "start: 2024-01-01\n        bounds: closed", '"closed" is none of'),
    ("start: 2024-01-01", "start: 2024-01-01\n        zone: Berlin", '"Berlin" is no time zone'),
    ("start: 2024-01-01", "start: 2024-01-01\n        granularity: 1ms", "cannot be written at steps of 1ms"),
    ("start: 2024-01-01", "start: 2024-01-01\n        width: 0s", "longer than nothing"),
    ("      snapshot:\n        every: 7d", "      cursor: {next: body.c}", "two plans for its changes"),
    ("every: 7d", "every: 0d", "longer than nothing"),
    ("schedule: {every: 5m}", "schedule: {cron: '5 * * *'}", "has 4 fields, a schedule has five"),
    ("schedule: {every: 5m}", "schedule: {cron: '0 0 31 2 *'}", "never occurs"),
    ("schedule: {every: 5m}", "schedule: {every: 5m, cron: '5 * * * *'}", "has every and cron"),
    ("schedule: {every: 5m}", "schedule: {every: 5m, deadline: 1h}", "`deadline` speaks of runs"),
    ("schedule: {every: 5m}", "schedule: {cron: '5 * * * *', zone: Berlin}", "is no time zone"),
    ("schedule: {every: 5m}", "keep_snapshots: 1", "only proven by two complete snapshots"),
    ("schedule: {every: 5m}", "keep_pages: 30d", "is part of the language but not of this version"),
    ("schedule: {every: 5m}", "deletes: hidden", '"hidden" is none of shown, not_shown'),
    ("schedule: {every: 5m}", "errors: [{when: {status: 410}, do: treat_as_empty}]", "answer without records"),
    ("schedule: {every: 5m}", "errors: [{when: {code: 4}, do: retry}]", "does not say where in the answer"),
    ("schedule: {every: 5m}", "errors: [{when: {status: {is: 4}}, do: retry}]", 'no operator "is"'),
    ("schedule: {every: 5m}", "errors: [{when: {status: 4}, do: giveup}]", '"giveup" is none of'),
    ("source: shop", "source: shop\nmode: shadow", "`mode: shadow` is part of the language"),
    ("source: shop", "source: shop\nlimits: {rate: 20}", "a text is needed here"),
    ("source: shop", "source: shop\nlimits: {rate: 20/d}", '"20/d" is no rate'),
    ("source: shop", "source: shop\ntenants: {command: []}", "a command has at least one word"),
    ("source: shop", "source: shop\ntenants: {command: ls}", "a list is needed here"),
    ("source: shop", "source: shop\ntenants: {command: [x], every: 0s}", "longer than nothing"),
    ("source: shop", "source: shop\ntenants: {list: [{id: a}, {id: a}]}", 'the tenant "a" is listed twice'),
    ("source: shop", "source: shop\ntenants: {list: [{name: a}]}", "a tenant needs an `id`"),
    ("source: shop", "source: shop\ntenants: {file: nowhere.yaml}", "this file cannot be read"),
    ("source: shop", "source: shop\nbody: {a: 1}", "a GET has no body"),
    ("source: shop", "source: shop\nsource: shop", 'the key "source" stands here twice'),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), SOURCE_MISTAKES)
def test_a_mistake_in_a_source(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = load(tmp_path, changed(SHOP, (old, new)), None)
    assert any(message in one.message for one in found.errors), messages(found)
    assert found.sources == {}


CHILD = """key: id
children:
  order_lines: {path: "lines[*]", key: n, columns: {n: integer, sku: text}}"""
TWO = (
    CHILD
    + """
  parts: {table: order_lines, path: "parts[*]", key: n, columns: {n: integer}}"""
)
MAPPING_MISTAKES = [
    ("version: 1", "version: 0", "0 is too small"),
    ("version: 1", "version: one", "Write digits only"),
    ("from: shop/orders", "from: shop", "a mapping reads one stream"),
    ("from: shop/orders", "from: shp/orders", 'Did you mean `shop`?'),
    ("from: shop/orders", "from: crm/orders", "It is one of shop."),
    ("from: shop/orders", "from: shop/order", 'shop has no stream "order"'),
    ("table: orders", "table: Orders", "cannot name a table or column"),
    ("key: id", "key: idd", "has no column idd"),
    ("key: id", "key: []", "a key is one column or several"),
    ("revision: updated_at::timestamptz", "revision: updated_at", "is no type of a column"),
    ("revision: updated_at::timestamptz", "revision: updated_at::jsonb", "no order to rely on"),
    ("revision: updated_at::timestamptz\n", "", "needs `revision:`"),
    ("revision: updated_at::timestamptz", "revision: {path: {interval: a}, type: text}", "plan snapshot"),
    ("key: id", "key: id\nentity: {interval: a, snapshot: $, cursor: b}", "a plan cursor"),
    ("key: id", "key: id\nchildren: {}", "no child table stands here"),
    ("key: id", CHILD.replace('path: "lines[*]", ', ""), "child order_lines needs `path:`"),
    ("key: id", CHILD.replace("key: n, ", ""), "child order_lines needs `key:`"),
    ("key: id", CHILD.replace("lines[*]", "lines"), "Write `lines[*]` for the elements"),
    ("key: id", CHILD.replace("lines[*]", "lines[*].parts[*]"), "has `[*]` twice"),
    ("key: id", CHILD.replace('"lines[*]"', '{interval: "lines[*]"}'), "nothing for the plan snapshot"),
    ("key: id", CHILD.replace("key: n", "key: no"), "child order_lines has no column no"),
    ("key: id", CHILD.replace("n: integer", "n: real"), "real cannot be part of a key"),
    ("key: id", CHILD.replace("n: integer", "n: {const: 1, type: integer}"), "or write `key: position`"),
    ("key: id", CHILD.replace("n: integer", "n: {default: 1, type: integer}"), "would join entities"),
    ("key: id", CHILD.replace("sku:", "position:"), "order_lines has a column position of its own"),
    ("key: id", CHILD.replace("sku:", "parent_id:"), "order_lines has a column parent_id of its own"),
    ("key: id", CHILD.replace("sku: text", "sku: {path: {keyset: a}, type: text}"), "a plan keyset"),
    ("key: id", CHILD.replace("path:", "table: orders, path:"), "would fill orders, the mapping's own table"),
    ("key: id", CHILD.replace("path:", "revision: a, path:"), "The parent's decides"),
    ("key: id", TWO, "child parts would fill order_lines, the table of child order_lines"),
    ("key: id", "key: id\nkeep: {rows: 1d}", "`rows` is part of the language"),
    ("key: id", "key: id\nfaults: stop", "none of accept, halt"),
    ("key: id", "key: id\nfaults: {max: -1}", "-1 is too small"),
    ("key: id", "key: id\nfaults: {}", "faults needs `max:`"),
    ("key: id", "key: id\nsubjects: [mail]", "has no column mail"),
    ("key: id", "key: id\nabsent_max: 110%", "this is no share"),
    ("key: id", "key: id\nincident: {colour: id}", 'no role "colour"'),
    ("key: id", "key: id\nevents: {to: {post: x.example}, created: c}", "cannot be posted there"),
    ("key: id", "key: id\nevents: {to: {post: 'https://u:pass-w0rd@x.example'}, created: c}", "cannot be posted"),
    ("key: id", "key: id\nevents: {to: {post: 'https://x.example?key=abcdefgh'}, created: c}", "has a query"),
    ("key: id", "key: id\nevents: {to: {post: https://x.example, topic: t}, created: c}", "Keep one"),
    ("key: id", "key: id\nevents: {to: {topic: t, auth: {bearer: {env: A}}}, created: c}", "a topic needs no"),
    ("key: id", "key: id\nevents: {to: {post: https://x.example, auth: {oauth2: {}}}, created: c}",
     "`oauth2` is part of the language"),
    ("key: id", "key: id\nevents: {to: {post: https://x.example, auth: {bearer: abc-def-ghi}}, created: c}",
     "RECEIVER_TOKEN"),
    ("key: id", "key: id\nevents: {to: {post: https://x.example, auth: {bearer: '{tenant.key}'}}, created: c}",
     "no tenant's fields"),
    ("key: id", "key: id\nevents: {to: {topic: t}}", "these events never happen"),
    ("id: text", "id: jsonb", "cannot be part of a key"),
    ("id: text", "id: {const: a, type: text}", "all entities would have the same key"),
    ("id: text", "id: {type: text, default: a}", "would join entities"),
    ("id: text", "id: text\n  source_revision: text", "has a column source_revision of its own"),
    ("id: text", "id: text\n  _offset: text", "cannot name a table or column"),
    ("id: text", "id: text\n  tags: tags[*]::text", "finds many values"),
    ("id: text", "id: text\n  x: a.b", '"a.b" has no type'),
    ("id: text", "id: text\n  x: observation.tenan::text", "Write `tenant`?"),
    ("id: text", "id: text\n  x: {path: a.b::text, type: text}", "a path in a map has no type"),
    ("id: text", "id: text\n  x: {type: text, values: []}", "every record would be quarantined"),
    ("id: text", "id: text\n  x: {type: smallint, values: {a: one}}", "no value of type smallint"),
    ("id: text", "id: text\n  x: {type: text, unknown: keep}", "nothing is unknown"),
    ("id: text", "id: text\n  x: {type: text, from: unix_s}", "`from` is for times"),
    ("id: text", "id: text\n  x: {type: integer, min: 5, max: 4}", "both above `min` and below `max`"),
    ("id: text", "id: text\n  x: {type: text, pattern: abc}", "this one has no group"),
    ("id: text", "id: text\n  x: {type: text, pattern: '('}", "no regular expression"),
    ("id: text", "id: text\n  x: {type: bigint, personal: hash}", "a hash is a text"),
    ("id: text", "id: text\n  x: {type: text, personal: true}", '"true" is none of keep, hash, drop, false'),
    ("id: text", "id: text\n  x: {type: bigint, personal: {hash: {env: K}}}", "a hash is a text"),
    ("id: text", "id: text\n  x: {type: text, personal: {hash: K}}", "a reference is needed here"),
    ("id: text", "id: text\n  x: {type: text, personal: {key: {env: K}}}", 'personal has no key "key"'),
    ("key: id", "key: id\npython: acme.shop.order", '"acme.shop.order" is no path of a function'),
    ("key: id", "key: id\npython: {hang: 5s}", "python needs `function:`"),
    ("key: id", "key: id\npython: {function: a:b, memory: 1MiB}", "Python itself needs more"),
    ("key: id", "key: id\npython: {function: a:b, timeout: 1s}", 'python has no key "timeout"'),
    ("key: id", "key: id\npython: a:b\nentity: data", "what the function returns is the entity"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MAPPING_MISTAKES)
def test_a_mistake_in_a_mapping(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = load(tmp_path, SHOP, changed(ORDERS, (old, new)))
    assert any(message in f"{one.message} {one.advice}" for one in found.errors), messages(found)
    assert found.mappings == {}
    assert set(found.sources) == {"shop"}


WAITING = [
    ("mode: shadow", SHOP, "source: shop", "source: shop\nmode: shadow", "Write `mode: live`"),
    ("keep_pages", SHOP, "schedule: {every: 5m}", "keep_pages: 30d", "Write `keep_pages: forever`"),
    ("rows", ORDERS, "key: id", "key: id\nkeep: {rows: 1d}", "Take it out"),
    *(
        (
            kind,
            ORDERS,
            "key: id",
            "key: id\nevents: {to: {post: https://x.example, auth: {KIND: {}}}, created: c}".replace(
                "KIND", kind
            ),
            "Write `bearer:",
        )
        for kind in ("session", "oauth2")
    ),
]


@pytest.mark.parametrize(("key", "file", "old", "new", "advice"), WAITING)
def test_a_key_that_waits_is_refused_with_what_to_write(
    tmp_path: Path, key: str, file: str, old: str, new: str, advice: str
) -> None:
    wrong = changed(file, (old, new))
    source, mapping = (wrong, ORDERS) if file is SHOP else (SHOP, wrong)
    [error] = load(tmp_path, source, mapping).errors
    assert "is part of the language but not of this version" in error.message
    assert error.advice.startswith(advice)
    document = (DOCS / "definitions.md").read_text("utf-8").split("Not of this version")[1]
    assert key in document.split("\n\n")[0]
    assert key in (DOCS.parent / "decisions/0015-keys-that-wait.md").read_text("utf-8")


def test_warnings_leave_the_definition_usable(tmp_path: Path) -> None:
    found = load(tmp_path, changed(SHOP, ("      snapshot:\n        every: 7d\n", "")), None)
    assert [one.severity for one in found.problems] == ["warning"]
    assert (
        "sources/shop.yaml:7:3  warning: deletes of orders are never noticed" in messages(found)[0]
    )
    assert set(found.sources) == {"shop"}
    found.check()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"a: [", b"- 1", b"a: &a [*a]", b"x: !!binary a", b"\x00"]
)
def test_no_content_crashes_the_loader(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "x.yaml").write_bytes(content)
    found = load_folder(tmp_path)
    assert found.errors
    assert {one.file for one in found.errors} == {"sources/x.yaml"}


def test_aliases_of_aliases_do_not_grow_without_bound(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "x.yaml").write_text("\n".join(lines))
    assert any("too large" in one.message for one in load_folder(tmp_path).errors)


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    [problem] = load_folder(tmp_path).problems
    assert "no definitions" in problem.message
    assert "sources/*.yaml" in problem.advice


def test_names_are_unique_over_all_files(tmp_path: Path) -> None:
    load(tmp_path)
    (tmp_path / "sources" / "two.yaml").write_text(SHOP)
    (tmp_path / "mappings" / "two.yaml").write_text(
        changed(ORDERS, ("mapping: shop_orders", "mapping: two"))
    )
    found = load_folder(tmp_path)
    assert [
        one.message for one in sorted(found.errors, key=lambda one: one.file, reverse=True)
    ] == ["there is another source shop", "there is another mapping to the table orders"]

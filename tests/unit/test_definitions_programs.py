"""Streams that a program reads: what the loader takes, what it refuses, and what it never does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from schemas.definitions import Definitions, load_folder
from schemas.definitions.catalogs import NoStream, selected
from schemas.definitions.programs import PythonSpec, SingerSpec
from schemas.definitions.risks import risks_of_source
from schemas.definitions.secrets import Reference
from tests.unit.definition_files import changed, messages

PYTHON = """\
gapless: 1
source: shop
base_url: https://api.shop.example/v2
headers: {Accept: text/csv}
errors: [{when: {status: 404}, do: success}]
streams:
  exports:
    plan:
      python:
        class: acme.jobs:Export
        settings: {key: {env: SHOP_KEY}, kinds: [a, b], most: 5}
        headers: {X-Tenant: one}
        hang: 5s
      snapshot: {every: 7d, get: /all, records: body, pages: none}
    schedule: {every: 5m}
"""
SINGER = """\
gapless: 1
source: shop
streams:
  orders:
    plan:
      singer:
        command: [tap-shop, --quiet]
        config: {token: {env: SHOP_TOKEN}, start_date: 2024-01-01T00:00:00Z, deep: {pages: 5}}
        environment: {LANG: C.UTF-8, KEY: {file: /run/key}}
        hang: 2m
    deletes: shown
"""


def load(folder: Path, text: str) -> Definitions:
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / "shop.yaml").write_text(dedent(text), encoding="utf-8")
    return load_folder(folder)


def test_a_class_is_named_and_not_imported(tmp_path: Path) -> None:
    found = load(tmp_path, PYTHON).check()
    stream = found.sources["shop"].streams["exports"]
    program = stream.program
    assert isinstance(program, PythonSpec)
    assert (program.module, program.name, program.hang_s) == ("acme.jobs", "Export", 5.0)
    assert program.settings["key"] == Reference("env", "SHOP_KEY")
    assert dict(program.headers) == {"Accept": "text/csv", "X-Tenant": "one"}
    assert [rule.do.value for rule in program.errors] == ["success"]
    assert stream.changes is None and stream.snapshot is not None
    assert stream.plan_names == ("python", "snapshot")
    assert "acme" not in sys.modules
    assert any("is its own word" in risk for risk in risks_of_source(found.sources["shop"]))


def test_a_tap_needs_no_origin(tmp_path: Path) -> None:
    found = load(tmp_path, SINGER).check()
    assert found.problems == ()
    stream = found.sources["shop"].streams["orders"]
    program = stream.program
    assert isinstance(program, SingerSpec)
    assert program.command == ("tap-shop", "--quiet")
    assert program.config["deep"] == {"pages": 5}
    assert (program.stream, program.catalog, program.discover) == ("orders", None, False)
    assert (program.keeps_state, program.ignores_others, program.hang_s) == (True, False, 120.0)
    assert stream.plan_names == ("singer",)


def test_a_source_with_requests_beside_its_tap_needs_one(tmp_path: Path) -> None:
    text = SINGER + "  more: {get: /x, records: body, pages: none, plan: {snapshot: {every: 1d}}}\n"
    assert any("needs `base_url:`" in one for one in messages(load(tmp_path, text)))


CATALOG = {
    "streams": [
        {"tap_stream_id": "orders", "stream": "orders", "schema": {}, "metadata": []},
        {"tap_stream_id": "shop-users", "stream": "users", "schema": {}},
    ]
}


def test_the_catalog_of_a_file_selects_this_stream_alone(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(CATALOG))
    text = changed(SINGER, ("hang: 2m", "hang: 2m\n        catalog: {file: shop.json}"))
    program = load(tmp_path, text).check().sources["shop"].streams["orders"].program
    assert isinstance(program, SingerSpec) and program.catalog is not None
    streams = json.loads(program.catalog)["streams"]
    assert [one["selected"] for one in streams] == [True, False]


def test_what_is_asked_decides_whether_the_state_is_kept(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        program = load(tmp_path, text).check().sources["shop"].streams["orders"].program
        assert program is not None
        return program.definition_hash

    first = fingerprint(SINGER)
    same = [("tap-shop", "/opt/taps/tap-shop"), ("hang: 2m", "hang: 3m"), ("C.UTF-8", "de_DE")]
    other = [("2024-01-01T", "2023-01-01T"), ("--quiet", "--all"), ("SHOP_TOKEN", "NEW_TOKEN")]
    assert {fingerprint(changed(SINGER, one)) for one in same} == {first}
    assert first not in {fingerprint(changed(SINGER, one)) for one in other}


PYTHON_MISTAKES = [
    ("class: acme.jobs:Export", "class: acme.jobs.Export", "is no path of a class"),
    ("class: acme.jobs:Export", "class: acme-jobs:Export", "is no path of a class"),
    ("class: acme.jobs:Export", "path: acme.jobs:Export", "needs `class:`"),
    ("hang: 5s", "hang: 0s", "longer than nothing"),
    ("hang: 5s", "get: /x", "The class says what to ask."),
    ("hang: 5s", "timeout: 5s", "Write `hang:`."),
    ("kinds: [a, b]", 'kinds: "{start}"', "{start} has no value here"),
    ("kinds: [a, b]", 'kinds: "{tenant.id}"', "has no tenants"),
    ("kinds: [a, b]", "api_key: c0ffee-b4d-5ecret", "looks like a secret"),
    ("      snapshot: {every: 7d, get: /all, records: body, pages: none}\n", "    records: body\n",
     "`records` has no use here: the class says what to ask"),
    ("      python:", "      cursor: {next: body.x}\n      python:", "two plans for its changes"),
]  # fmt: skip
SINGER_MISTAKES = [
    ("command: [tap-shop, --quiet]", "command: tap-shop", "a list is needed here"),
    ("command: [tap-shop, --quiet]", "command: []", "at least one word"),
    ("command: [tap-shop, --quiet]", "tap: tap-shop", "needs `command:`"),
    ("--quiet]", '"--key={tenant.key}"]', "a command has no placeholders"),
    ("hang: 2m", "catalog: yes", '"yes" is no catalog'),
    ("hang: 2m", "catalog: {file: none.json}", "this file cannot be read"),
    ("hang: 2m", "catalog: {path: x.json}", "needs `file:`"),
    ("hang: 2m", "state: never", "is none of kept, none"),
    ("hang: 2m", "others: drop", "is none of refuse, ignore"),
    ("hang: 2m", "settings: {}", "Write `config:`."),
    ("LANG: C.UTF-8", "LANG: [a]", "an environment variable is one text"),
    ("LANG: C.UTF-8", "L-ANG: C", "no name of an environment variable"),
    ("token: {env: SHOP_TOKEN}", "token: c0ffee-b4d-5ecret", "looks like a secret"),
    ("KEY: {file: /run/key}", "API_KEY: c0ffee-b4d-5ecret", "looks like a secret"),
    ("    deletes: shown", "    deletes: shown\n    records: body", "the tap asks by itself"),
    ("    deletes: shown", "", "Write `deletes: shown` if its changes show them."),
    ("        hang: 2m", "        hang: 2m\n      snapshot: {every: 1d, get: /x, records: body, pages: none}",
     "a tap has no snapshot"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), PYTHON_MISTAKES)
def test_a_mistake_about_a_class(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = messages(load(tmp_path, changed(PYTHON, (old, new))))
    assert any(message in " ".join(one.split()) for one in found), found
    assert "c0ffee" not in "".join(found)


@pytest.mark.parametrize(("old", "new", "message"), SINGER_MISTAKES)
def test_a_mistake_about_a_tap(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = messages(load(tmp_path, changed(SINGER, (old, new))))
    assert any(message in " ".join(one.split()) for one in found), found
    assert "c0ffee" not in "".join(found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "it has no list `streams`"),
        ('{"streams": [5]}', "it has no list `streams`"),
        ("{", "Expecting"),
        ('{"streams": [{"stream": "users"}]}', "no stream orders; it has users"),
    ],
)
def test_a_file_that_is_no_catalog(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "shop.json").write_text(content)
    text = changed(SINGER, ("hang: 2m", "hang: 2m\n        catalog: {file: shop.json}"))
    [found] = messages(load(tmp_path, text))
    assert message in found


def test_a_selection_is_written_for_old_and_new_taps_and_keeps_the_rest() -> None:
    fields = [
        {"breadcrumb": [], "metadata": {"table-key-properties": ["id"]}},
        {"breadcrumb": ["properties", "a"], "metadata": {"inclusion": "available"}},
        {"breadcrumb": ["properties", "b"], "metadata": {"inclusion": "unsupported"}},
        {"breadcrumb": ["properties", "c"], "metadata": {"selected": False}},
    ]
    catalog = {"streams": [{"stream": "x", "metadata": fields}, {"stream": "y"}], "more": 1}
    found = selected(catalog, "x", fields=True)
    assert found["more"] == 1
    [x, y] = found["streams"]
    told = [one["metadata"] for one in x["metadata"]]
    assert told[0] == {"table-key-properties": ["id"], "selected": True}
    assert [one.get("selected") for one in told[1:]] == [True, None, False]
    assert (x["selected"], y["selected"]) == (True, False)
    assert y["metadata"] == [{"breadcrumb": [], "metadata": {"selected": False}}]
    assert "selected" not in catalog["streams"][0], "the catalog itself is left alone"  # type: ignore[index]
    with pytest.raises(NoStream, match="it has x, y"):
        selected(catalog, "z", fields=False)

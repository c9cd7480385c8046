"""What a definition risks in words is listed, and what it assumes for want of a word."""

from pathlib import Path

import pytest

from schemas.definitions import load_folder
from schemas.definitions.risks import assumptions_of_stream, risks_of_mapping, risks_of_source
from schemas.definitions.secrets import Reference
from tests.unit.definition_files import ORDERS, SHOP, changed, load

FOLDER = Path(__file__).parent / "definitions"


def test_a_careful_definition_risks_nothing(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert risks_of_source(found.sources["shop"]) == ()
    assert risks_of_mapping(found.mappings["shop_orders"]) == ()
    assumed = assumptions_of_stream(found.sources["shop"].streams["orders"])
    assert any("bounds" in one for one in assumed)
    assert any("may shift" in one for one in assumed)


@pytest.mark.parametrize(
    ("old", "new", "risk"),
    [
        ("every: 7d", "every: 7d\n        pages: {stable: true}", "stable: true"),
        ("start: 2024-01-01", "start: 2024-01-01\n        settle: none", "settle: none"),
        ("start: 2024-01-01", "start: 2024-01-01\n        lookback: none", "lookback: none"),
        ("      snapshot:\n        every: 7d\n", "", "deletes are never noticed"),
        (
            "get: /orders",
            "get: /orders\n    errors: [{when: {status: 410}, do: treat_as_empty, because: off}]",
            "treat_as_empty, because off",
        ),
    ],
)
def test_each_risk_is_named(tmp_path: Path, old: str, new: str, risk: str) -> None:
    source = load(tmp_path, changed(SHOP, (old, new)), None).sources["shop"]
    assert any(risk in one for one in risks_of_source(source)), risks_of_source(source)


def test_risks_of_mappings() -> None:
    mappings = load_folder(FOLDER).mappings
    assert "kind: exact" in risks_of_mapping(mappings["stripe_events"])[0]
    unknown, guessed = risks_of_mapping(mappings["github_issues"])
    assert "unknown: keep" in unknown
    assert guessed.startswith("github_issues.author: personal: hash without a key")


def test_a_hash_under_a_key_is_no_risk(tmp_path: Path) -> None:
    keyed = "  id: text\n  who: {type: text, personal: {hash: {env: HASH_KEY}}}"
    spec = load(tmp_path, SHOP, changed(ORDERS, ("  id: text", keyed))).mappings["shop_orders"]
    assert spec.columns["who"].hash_key == Reference("env", "HASH_KEY")
    assert risks_of_mapping(spec) == ()


@pytest.mark.parametrize(
    ("time_format", "zone", "warned"),
    [
        ("'%Y-%m-%d %H:%M:%S'", "Europe/Berlin", True),
        ("'%Y-%m-%d %H:%M:%S'", "UTC", False),
        ("'%Y-%m-%d %H:%M:%S'", "Asia/Tokyo", False),
        ("'%Y-%m-%d %H:%M:%S%z'", "Europe/Berlin", False),
        ("rfc3339", "Europe/Berlin", False),
    ],
)
def test_an_hour_that_a_zone_has_twice(
    tmp_path: Path, time_format: str, zone: str, warned: bool
) -> None:
    new = f"start: 2024-01-01\n        format: {time_format}\n        zone: {zone}"
    found = load(tmp_path, changed(SHOP, ("start: 2024-01-01", new)), None)
    assert found.errors == ()
    assert [("ambiguous" in one.message) for one in found.problems] == [True] * warned


def test_a_risk_of_a_child_column_is_named(tmp_path: Path) -> None:
    kept = "n: {type: text, values: [a], unknown: keep}"
    children = f'key: id\nchildren: {{lines: {{path: "l[*]", key: n, columns: {{{kept}}}}}}}'
    mapping = load(tmp_path, mapping=changed(ORDERS, ("key: id", children))).mappings["shop_orders"]
    assert risks_of_mapping(mapping) == (
        "shop_orders.lines.n: unknown: keep; new values pass without a word",
    )

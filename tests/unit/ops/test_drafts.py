"""Drafts of mappings from what a tap declares: they load, or say what only a person can know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from ops.cli.main import build_app
from ops.scaffold.draft import StreamShape, mapping_draft, type_of
from ops.scaffold.shape import shape_in
from schemas.definitions import Definitions, load_folder

TAP = Path(__file__).parents[2] / "fake_tap.py"


def source(**config: Any) -> dict[str, Any]:
    given = {"records": 2, **config}
    singer = {"command": [sys.executable, str(TAP)], "config": given}
    stream = {"plan": {"singer": singer}, "deletes": "shown"}
    return {"gapless": 1, "source": "counting", "streams": {"numbers": stream}}


def load(folder: Path, draft: str) -> Definitions:
    for name, text in (("sources/s.yaml", json.dumps(source())), ("mappings/m.yaml", draft)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return load_folder(folder)


@pytest.mark.parametrize("discovers", [True, False])
def test_a_mapping_is_drafted_from_a_tap(tmp_path: Path, discovers: bool) -> None:
    """From its catalog, else from its first SCHEMA."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "s.yaml").write_text(json.dumps(source(discovers=discovers)))
    arguments = ["init", "--from-singer", "counting/numbers", "-d", str(tmp_path)]
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output
    assert "key: id\nrevision: updated_at::timestamptz\n" in done.output
    assert '  some_name: {path: "$[\\"Some Name\\"]", type: text}' in done.output
    found = load(tmp_path, done.output).check().mappings["counting_numbers"]
    assert {name: column.type.sql for name, column in found.columns.items()} == {
        "id": "bigint", "updated_at": "timestamptz", "some_name": "text", "tags": "jsonb",
    }  # fmt: skip


def test_a_stream_that_no_tap_reads(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "s.yaml").write_text(json.dumps(source()))
    arguments = ["init", "--from-singer", "counting/letters", "-d", str(tmp_path)]
    done = CliRunner().invoke(build_app(), arguments)
    assert "known: counting/numbers" in str(done.exception)


def test_without_a_key_the_draft_asks_for_one(tmp_path: Path) -> None:
    draft = mapping_draft("counting", "numbers", StreamShape({"properties": {"a": {}}}))
    assert "names no key" in draft and "revision: none" in draft
    faults = load(tmp_path, draft).errors
    assert {one.excerpt for one in faults} == {"key: []"}


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"type": "string"}, "text"),
        ({"type": ["null", "string"], "format": "date-time"}, "timestamptz"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "uuid"),
        ({"type": "string", "format": "email"}, "text"),
        ({"type": ["integer", "null"]}, "bigint"),
        ({"type": "integer", "maximum": 10**30}, "numeric"),
        ({"type": "number"}, "numeric"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["string", "integer"]}, "jsonb"),
        ({"type": "object"}, "jsonb"),
        ({"type": "array", "items": {"type": "string"}}, "jsonb"),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}, "timestamptz"),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string"}]}, "text"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "jsonb"),
        ({}, "jsonb"),
        (True, "jsonb"),
    ],
)
def test_types(declared: object, found: str) -> None:
    assert type_of(declared) == found


def test_a_catalog_says_key_and_bookmark_in_several_places() -> None:
    metadata = [
        {"breadcrumb": ["properties", "id"], "metadata": {"selected": True}},
        {
            "breadcrumb": [],
            "metadata": {"table-key-properties": ["id"], "valid-replication-keys": ["at"]},
        },
    ]
    entry = {"tap_stream_id": "x", "schema": {"properties": {}}, "metadata": metadata}
    assert shape_in({"streams": [entry]}, "x") == StreamShape({"properties": {}}, ("id",), "at")
    told = {**entry, "key_properties": ["a", "b"], "replication_key": "seen"}
    assert shape_in({"streams": [told]}, "x") == StreamShape({"properties": {}}, ("a", "b"), "seen")


types = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null"])
fields = st.dictionaries(
    st.text(min_size=1, max_size=12),
    st.fixed_dictionaries({"type": st.one_of(types, st.lists(types, max_size=3))}),
    min_size=1,
    max_size=6,
)


@given(declared=fields, data=st.data())
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_draft_with_a_key_is_a_valid_mapping(
    tmp_path: Path, declared: dict[str, Any], data: st.DataObject
) -> None:
    names = st.sampled_from(sorted(declared))
    key, bookmark = data.draw(names), data.draw(st.none() | names)
    shape = StreamShape({"properties": declared}, (key,), bookmark)
    found = load(tmp_path, mapping_draft("counting", "numbers", shape))
    assert found.errors == ()
    [mapping] = found.mappings.values()
    assert len(mapping.columns) == len(declared)
    assert {str(c.path.every[0].path.steps[0]) for c in mapping.columns.values() if c.path and c.path.every} == set(declared)  # fmt: skip

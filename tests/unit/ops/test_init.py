"""`gapless init`: what it writes loads as it is, and nothing that is there is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ops.cli.main import build_app
from ops.problems import REFUSED, USAGE, Stop
from ops.scaffold.shipped import shipped
from schemas.definitions.load import load_folder


def init(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(build_app(), ["init", *words, "-d", str(folder)])


def _files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["shop", "My-Shop_2"])
def test_a_starting_point_loads_as_it_is(name: str, tmp_path: Path) -> None:
    done = init(tmp_path, name)
    assert done.exit_code == 0, done.output
    definitions = load_folder(tmp_path)
    assert definitions.problems == ()
    assert list(definitions.sources) == [name]
    [mapping] = definitions.mappings.values()
    assert (mapping.source, mapping.stream) == (name, "items")
    variable = f"{name.upper().replace('-', '_')}_TOKEN"
    assert f"set {variable}" in done.output
    assert f"gapless check {name} --explain -d {tmp_path}\n" in done.output


@pytest.mark.parametrize("name", sorted(shipped()))
def test_a_shipped_definition_is_copied(name: str, tmp_path: Path) -> None:
    done = init(tmp_path, name, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert str(tmp_path / f"sources/{name}.yaml") in told["written"]
    assert told["secrets"]
    definitions = load_folder(tmp_path)
    assert definitions.problems == ()
    assert list(definitions.sources) == [name]
    assert definitions.mappings


def test_the_first_line_leads_an_editor_to_the_schema(tmp_path: Path) -> None:
    init(tmp_path, "shop")
    init(tmp_path, "github")
    for path in (*tmp_path.glob("sources/*.yaml"), *tmp_path.glob("mappings/*.yaml")):
        first = path.read_text("utf-8").splitlines()[0]
        prefix = "# yaml-language-server: $schema="
        assert first.startswith(prefix + "..")
        schema = json.loads((path.parent / first.removeprefix(prefix)).read_text("utf-8"))
        assert path.parent.name.removesuffix("s") in schema["title"]


def test_all_shipped_are_listed(tmp_path: Path) -> None:
    done = init(tmp_path, "--list")
    assert done.exit_code == 0
    assert {line.split()[0] for line in done.output.splitlines()[:-1]} == set(shipped())
    assert "GitHub: issues and pull requests" in done.output
    listed = json.loads(init(tmp_path, "--list", "--json").output)
    assert {one["source"] for one in listed} == set(shipped())
    assert _files(tmp_path) == {}


def test_the_schemas_alone(tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema/source.json").write_text("of an earlier version")
    assert init(tmp_path, "--schema").exit_code == 0
    assert set(_files(tmp_path)) == {"schema/source.json", "schema/mapping.json"}
    assert "streams" in json.loads((tmp_path / "schema/source.json").read_text())["properties"]


@pytest.mark.parametrize("there", ["sources/shop.yaml", "mappings/shop.yaml"])
def test_nothing_is_overwritten_and_nothing_half_written(there: str, tmp_path: Path) -> None:
    (tmp_path / there).parent.mkdir()
    (tmp_path / there).write_text("mine")
    done = init(tmp_path, "shop")
    assert isinstance(done.exception, Stop)
    assert done.exception.problem.exit_code == REFUSED
    assert there in str(done.exception)
    assert _files(tmp_path) == {there: "mine"}


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "sources").write_text("a file, not a folder")
    done = init(tmp_path, "shop")
    assert isinstance(done.exception, Stop)
    assert "cannot be written" in str(done.exception)
    assert done.exception.problem.exit_code == REFUSED


@pytest.mark.parametrize("words", [(), ("shop", "--list"), ("--list", "--schema"), ("1shop",)])
def test_what_cannot_be_meant_says_what_to_write(words: tuple[str, ...], tmp_path: Path) -> None:
    done = init(tmp_path, *words)
    assert isinstance(done.exception, Stop)
    assert done.exception.problem.exit_code == USAGE
    assert "Write `gapless init" in str(done.exception) or "Use letters" in str(done.exception)
    assert _files(tmp_path) == {}

"""The rules of this code base that no other tool checks: sizes, names, docstrings, addresses."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("ingest", "apply", "schemas", "ops", "tests")
SOURCES = sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.py"))
FILE_LIMIT_LINES = 400
FUNCTION_LIMIT_LINES = 70
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
# What is installed is named there; where it comes from is the business of each machine.
INSTALLATION = ("Makefile", "pyproject.toml", "requirements.lock", "requirements-dev.lock")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_file_keeps_the_rules_of_the_house(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert path.stem not in EMPTY_NAMES, "the name says nothing"
    assert len(text.splitlines()) <= FILE_LIMIT_LINES
    assert not text.strip() or ast.get_docstring(tree), "a module says its duty"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LIMIT_LINES, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("name", INSTALLATION)
def test_installation_names_no_address(name: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if "://" in line and "grep" not in line] == []


def test_every_locked_package_has_a_hash() -> None:
    for name in INSTALLATION[2:]:
        blocks = (ROOT / name).read_text().replace("\\\n", " ").splitlines()
        packages = [line for line in blocks if line and not line.lstrip().startswith("#")]
        assert packages
        assert [line for line in packages if "--hash=sha256:" not in line] == []

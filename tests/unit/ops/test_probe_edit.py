"""Writing a proven key into a definition: the key, and not one other character."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from ops.probe.edit import NotEditable, with_key
from ops.probe.fix import fix
from ops.probe.model import Finding
from ops.probe.run import Probed, Report
from schemas.definitions.load import load_folder
from schemas.definitions.source import Bounds, IntervalSpec
from tests.unit.definition_files import SHOP, load

PLAN = ("streams", "orders", "plan", "interval")


@pytest.mark.parametrize(
    ("before", "keys", "value", "after"),
    [
        ("a: 1  # one\nb: 2\n", ("a",), 3, "a: 3  # one\nb: 2\n"),
        ("a: 'x'\n", ("a",), "[)", 'a: "[)"\n'),
        ("a:\n  b: 1  # last\n\n# end\nc: 2\n", ("a", "d"), 7,
         "a:\n  b: 1  # last\n  d: 7\n\n# end\nc: 2\n"),
        ("a: {b: 1}  # c\n", ("a", "d"), "asc", "a: {b: 1, d: asc}  # c\n"),
        ("a: {b: {x: 1},\n    c: [1, 2]}\n", ("a", "d"), 1, "a: {b: {x: 1},\n    c: [1, 2], d: 1}\n"),
        ("a: {}\n", ("a", "d"), 1, "a: {d: 1}\n"),
        ("a:\n  b: 1\n", ("a", "p", "cap"), 100, "a:\n  b: 1\n  p: {cap: 100}\n"),
        ("a:\n  b: 1", ("a", "d"), 2, "a:\n  b: 1\n  d: 2"),
        ("a:\r\n  b: 1\r\nc: 2\r\n", ("a", "d"), 2, "a:\r\n  b: 1\r\n  d: 2\r\nc: 2\r\n"),
        ("a:\n  l:\n  - x: 1\n    y: 2\nc: 2\n", ("a", "d"), 2,
         "a:\n  l:\n  - x: 1\n    y: 2\n  d: 2\nc: 2\n"),
        ("a:\n  b: |\n    text\nc: 2\n", ("c",), 3, "a:\n  b: |\n    text\nc: 3\n"),
        ("a:\n    <<: &x {b: 1}\n    c: 2\n", ("a", "b"), 5,
         "a:\n    <<: &x {b: 1}\n    c: 2\n    b: 5\n"),
    ],
)  # fmt: skip
def test_one_key(before: str, keys: tuple[str, ...], value: str | int, after: str) -> None:
    assert with_key(before, keys, value) == after


@pytest.mark.parametrize(
    "text",
    [
        "x: &i {time: t}\na:\n  b: *i\n",  # would change the other place, too
        "a:\n  b: [1]\n",
        "- 1\n",
    ],
)
def test_what_cannot_be_changed_alone_is_left_to_people(text: str) -> None:
    with pytest.raises(NotEditable, match=r"by hand"):
        with_key(text, ("a", "b", "c"), 1)


def report(folder: Path, write: dict[tuple[str, ...], str | int], plan: str = "interval") -> Report:
    stream = load_folder(folder).sources["shop"].streams["orders"]
    finding = Finding("bounds", "unknown", "[)", write=write)
    return Report("shop", 1, [Probed(stream, "shop/orders", [(plan, finding)])])


def test_the_file_is_written_and_the_difference_is_told(tmp_path: Path) -> None:
    load(tmp_path, SHOP)
    path = tmp_path / "sources/shop.yaml"
    fixed = fix(report(tmp_path, {("bounds",): "[)"}), path, "sources/shop.yaml")
    spec = load_folder(tmp_path).check().sources["shop"].streams["orders"].changes
    assert isinstance(spec, IntervalSpec)
    assert spec.bounds is Bounds.CLOSED_OPEN
    added = [line for line in fixed.diff.splitlines() if line.startswith("+ ")]
    assert added == ['+        bounds: "[)"']
    lines = path.read_text().splitlines()
    assert lines.pop(lines.index('        bounds: "[)"'))
    assert lines == dedent(SHOP).splitlines()
    assert fixed.by_hand == []


def test_a_cap_goes_to_its_plan_and_not_to_the_other(tmp_path: Path) -> None:
    load(tmp_path, SHOP)
    fix(report(tmp_path, {("pages", "cap"): 100}), tmp_path / "sources/shop.yaml", "shop")
    stream = load_folder(tmp_path).check().sources["shop"].streams["orders"]
    assert stream.changes is not None
    assert stream.changes.request.pages is not None
    assert stream.changes.request.pages.cap == 100
    assert stream.snapshot is not None
    assert stream.snapshot.request.pages is not None
    assert stream.snapshot.request.pages.cap is None


def test_a_definition_that_would_not_be_valid_is_not_written(tmp_path: Path) -> None:
    load(tmp_path, SHOP.replace("start: 2024-01-01", "start: 2024-01-01T00:00:01Z"))
    path = tmp_path / "sources/shop.yaml"
    before = path.read_bytes()
    fixed = fix(report(tmp_path, {("granularity",): "1m"}), path, "shop")
    assert fixed.diff == ""
    assert "Round it down" in fixed.by_hand[0]
    assert path.read_bytes() == before


def test_nothing_to_write_leaves_the_file_alone(tmp_path: Path) -> None:
    load(tmp_path, SHOP)
    path = tmp_path / "sources/shop.yaml"
    before = path.stat().st_mtime_ns
    assert fix(report(tmp_path, {}), path, "shop").diff == ""
    assert path.stat().st_mtime_ns == before

"""The table in README.md speaks of tests that are there, and of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# Tests that are no habit of the list, but watch over a neighbour of one.
BESIDE = {
    "a_listing_that_shrinks_below_its_total_completes_no_snapshot",
    "a_feed_whose_cursor_stands_still_ends",
}


def defined(path: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def test_(\w+)", path.read_text("utf-8"), re.MULTILINE))


def rows() -> Iterator[tuple[str, str]]:
    """Module and name of every test that the table speaks of; `…` stands for what it leaves out."""
    for line in (HERE / "README.md").read_text("utf-8").splitlines():
        cells = line.split(" | ")
        if len(cells) != 3 or not cells[1].startswith("`"):
            continue
        modules, _, names = cells[1].partition(": ")
        for module in re.findall(r"`([^`]+)`", modules):
            yield from ((module, name.strip()) for name in names.split(","))


def test_every_habit_has_its_test() -> None:
    found = list(rows())
    assert len(found) > 50
    spoken: set[str] = set()
    for module, name in found:
        path = next(
            p
            for p in (HERE / f"{module}.py", ROOT / module, ROOT / "tests/unit/ingest" / module)
            if p.is_file()
        )
        known = defined(path)
        pattern = re.compile(re.escape(name).replace("…", r"\w*"))
        matching = known if name == "both" else {one for one in known if pattern.fullmatch(one)}
        spoken |= matching
        assert matching or path.parent != HERE, f"{module} has no test {name}"
    here = {
        name for path in HERE.glob("test_*.py") if path != Path(__file__) for name in defined(path)
    }
    assert here - spoken - BESIDE == set()

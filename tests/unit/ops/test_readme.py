"""README.md as a stranger follows it: short, its links lead somewhere, its definitions are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.check.mapping import Records
from ops.check.mapping_report import lines, report
from ops.cli.main import build_app
from ops.scaffold.starting_point import starting_point
from schemas.definitions.load import Definitions, load_folder
from schemas.settings import Settings
from tests.unit.apply.mapped import page

REPOSITORY = Path(__file__).parents[3]
README = (REPOSITORY / "README.md").read_text("utf-8")
ORDER = {
    "id": "o-1", "state": {"name": "open"}, "amount": {"total": 7.5},
    "customer": {"email": "a@mail.example"}, "updated_at": "2026-03-01T10:00:00Z",
    "lines": [{"line_no": n, "sku": "cup", "quantity": 2} for n in (1, 2)],
}  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Definitions:
    """What stands in README, written over what `gapless init shop` wrote."""
    made = starting_point("shop")
    shown = re.findall(r"`((?:sources|mappings)/\w+\.yaml)`:\n\n```yaml\n(.*?)```", README, re.S)
    assert {path for path, _ in shown} <= set(made), "init's files would be left beside these"
    for path, text in {**made, **dict(shown)}.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    return load_folder(tmp_path)


def test_it_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 150
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (REPOSITORY / target).exists(), target


def test_its_definitions_are_valid_as_they_stand(shop: Definitions) -> None:
    assert [str(problem) for problem in shop.problems] == []
    assert (set(shop.sources), set(shop.mappings)) == ({"shop"}, {"shop_orders"})


def test_check_of_a_mapping_counts_children_and_says_each_outcome_once(shop: Definitions) -> None:
    seen = page(json.dumps(ORDER), json.dumps({**ORDER, "id": "o-2", "lines": []}))
    settings = Settings(definitions=shop.folder)
    told = report(settings, shop, shop.mappings["shop_orders"], Records((seen,), "the log"))
    assert told["child_tables"] == ["order_lines"]
    assert told["children"] == {"order_lines": 2}
    text = list(lines(told))
    assert text[0].endswith("mapping shop_orders, v1, table orders and order_lines")
    assert [" ".join(line.split()) for line in text[2:5]] == [
        "id status total email updated_at outcome",
        "o-1 open 7.50 (pers.) 2026-03-01T10:00:00.000000Z applied, 2 lines",
        "o-2 open 7.50 (pers.) 2026-03-01T10:00:00.000000Z applied, 0 lines",
    ]
    assert "Would become               2 applied; 2 order_lines" in text


def test_the_version_is_told() -> None:
    done = CliRunner().invoke(build_app(), ["--version"])
    assert (done.exit_code, done.output) == (0, "gapless 0.1.0\n")

"""What `gapless check` says of a page that was mapped."""

from __future__ import annotations

import json
from typing import Any

from ops.check.sample import sample
from tests.unit.apply.mapped import column, page, spec
from tests.unit.apply.test_children import child


def _order(key: str, lines: int, **more: Any) -> str:
    return json.dumps({"id": key, "lines": [{"n": number} for number in range(lines)], **more})


def test_children_are_counted_in_words_of_the_record() -> None:
    boxes = child(name="boxes", key=("position",), at="in.box[*]")
    of = spec(column("total", "numeric"), children={"lines": child(), "boxes": boxes})
    records = [_order("a", 2), _order("b", 1, **{"in": {"box": [{"n": 1}]}}), _order("c", 0)]
    found = sample(of, [page(*records, _order("d", 3, total="many"))])
    assert found.outcomes == {"applied": 3, "quarantined": 1}
    assert found.columns == ["id", "total", "outcome"]
    assert [row[-1] for row in found.rows] == [
        "applied, 2 lines, 0 box", "applied, 1 line, 1 box", "applied, 0 lines, 0 box",
    ]  # fmt: skip
    assert found.children == {"lines": 3, "boxes": 1}


def test_without_children_nothing_is_said_of_them() -> None:
    found = sample(spec(), [page('{"id":"a"}')])
    assert (found.columns, found.rows, found.children) == (
        ["id", "outcome"],
        [["a", "applied"]],
        {},
    )

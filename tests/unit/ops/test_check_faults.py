"""`faults` of a mapping: read, no part of what its rows depend on, and said by `gapless check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.check.sample import sample
from schemas.definitions.mapping import MappingSpec
from tests.unit.apply.mapped import page
from tests.unit.definition_files import ORDERS, SHOP, changed, load


def orders(folder: Path, faults: str) -> MappingSpec:
    text = changed(ORDERS, ("key: id", f"key: id\n{faults}")) if faults else ORDERS
    return load(folder, SHOP, text).check().mappings["shop_orders"]


@pytest.mark.parametrize(
    ("written", "wanted", "halts"),
    [
        ("", None, False),
        ("faults: accept", None, False),
        ("faults: halt", 0, True),
        ("faults: {max: 1}", 1, True),
        ("faults: {max: 2}", 2, False),
    ],
)
def test_a_mapping_says_how_many_faults_it_takes(
    tmp_path: Path, written: str, wanted: int | None, halts: bool
) -> None:
    found = orders(tmp_path, written)
    assert found.faults_max == wanted
    assert found.hash == orders(tmp_path, "").hash, "it changes without a new version"
    seen = sample(found, [page("{", "[]", partition_id="shop/orders")])
    assert seen.outcomes["quarantined"] == 2
    assert seen.halts is halts

"""What a decision may be about, before it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.control import RefusedDecision, check_listed
from ops.status.expected import expected
from tests.unit.definition_files import SHOP, changed, load

LISTED = "      snapshot:\n        every: 7d\n"


def test_a_snapshot_is_asked_for_where_there_is_one(tmp_path: Path) -> None:
    listings = expected(load(tmp_path)).listings
    ids = ["shop/orders/a", "shop/orders/b", "shop/gone"]
    assert check_listed("shop", ids, listings) == ids[:2]


@pytest.mark.parametrize("about", ["shop/orders", "shop/gone"])
def test_a_stream_without_a_listing_is_refused(tmp_path: Path, about: str) -> None:
    listings = expected(load(tmp_path, changed(SHOP, (LISTED, "")))).listings
    with pytest.raises(RefusedDecision, match="has no snapshot"):
        check_listed(about, [about], listings)

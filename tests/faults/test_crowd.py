"""Several apply processes race for unique values, parents and partitions, while they are disturbed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.crowd import run
from tests.conftest import Lane

pytestmark = pytest.mark.timeout(120)


def test_three_workers_share_what_races(lane: Lane, tmp_path: Path) -> None:
    """Longer, and with eight: `make chaos`."""
    report = run(lane, tmp_path, random.Random(7), count=3, seconds=4, tell=print)
    assert report.disturbances >= 3, report
    assert report.waited_for_a_value > 0, "nobody met a value that somebody else still had"
    assert report.waited_for_a_parent > 0, "no note came before its account"

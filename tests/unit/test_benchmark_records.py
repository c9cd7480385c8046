"""The logs of the benchmarks may share one database: no order has the same place in two of them."""

from __future__ import annotations

import json
from itertools import combinations

from schemas.records import Observation
from tests.benchmarks.apply_rate import DAYS
from tests.benchmarks.records import LEAST, log_of


def test_no_order_stands_where_it_does_on_another_day() -> None:
    places: dict[int, dict[str, tuple[int, int]]] = {}
    for day in DAYS.values():
        pages = enumerate(one for one in log_of(3 * LEAST, day) if isinstance(one, Observation))
        places[day] = {
            json.loads(raw)["id"]: (at, index)
            for at, page in pages
            for index, raw in enumerate(page.records)
        }
    for one, other in combinations(DAYS.values(), 2):
        assert places[one].keys() == places[other].keys()
        assert not places[one].items() & places[other].items()

"""What may stand in one batch together."""

from __future__ import annotations

from typing import Any, cast

from apply.batch import MarkWork, PageWork, before_sweeps
from schemas.records import Mark, Observation


def _page(number: int) -> PageWork:
    return PageWork(0, 0, 0, number, cast(Observation, None), [])


def _mark(number: int, kind: Any) -> MarkWork:
    mark = Mark(kind=kind, partition_id="s/t", plan="snapshot", scope="s1", at=0)
    return MarkWork(0, 0, 0, number, mark)


def test_no_page_stands_behind_the_end_of_a_listing_of_its_own_partition_id() -> None:
    ends = _mark(1, "snapshot_complete")
    assert before_sweeps([_page(1), ends, None, _page(2), ends, _page(1), _page(2)]) == 5
    assert before_sweeps([_page(1), _mark(1, "interval_complete"), _page(1)]) == 3
    assert before_sweeps([ends, _mark(1, "snapshot_begin"), _page(2)]) == 3
    assert before_sweeps([ends, _page(1)]) == 1
    assert before_sweeps([]) == 0

"""Where a partition stops, and where a batch has to be cut for it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apply.batch import MarkWork, PageWork, Part
from apply.tolerance import Refused, TooMany, behind, stops
from tests.integration.apply.scene import complete, page

NAME = "accounts"


def _stops(offsets: list[int], opened: int, limit: int) -> int | None:
    refused = [Refused(NAME, 0, offset) for offset in offsets]
    found = stops(refused, {(NAME, 0): opened}, {NAME: limit})
    return found[0].offset if found else None


@pytest.mark.parametrize(
    ("offsets", "opened", "limit", "wanted"),
    [
        ([], 3, 0, None),  # nothing new: what was there before stops nobody again
        ([7], 1, 1, None),
        ([7], 1, 0, 7),
        ([9, 5, 7], 3, 0, 5),
        ([5, 7, 9], 3, 2, 9),
        ([5, 5, 5], 3, 2, 5),
        ([5, 7], 4, 3, 7),  # two were open before
        ([5, 7], 9, 3, 5),
    ],
)
def test_it_stops_at_the_first_page_that_is_one_too_many(
    offsets: list[int], opened: int, limit: int, wanted: int | None
) -> None:
    assert _stops(offsets, opened, limit) == wanted


def test_the_earliest_stop_of_a_partition_counts() -> None:
    refused = [Refused("a", 0, 9), Refused("b", 0, 4), Refused("c", 0, 1), Refused("a", 1, 2)]
    opened = {("a", 0): 1, ("b", 0): 1, ("c", 0): 1, ("a", 1): 1}
    found = stops(refused, opened, {"a": 0, "b": 0})
    assert {number: (one.mapping, one.offset) for number, one in found.items()} == {
        0: ("b", 4), 1: ("a", 2),
    }  # fmt: skip


def test_a_batch_is_cut_behind_the_page_that_stops_it() -> None:
    first = page([{"id": 1}])
    pages = [PageWork(offset, 0, 0, 1, first, []) for offset in (3, 5, 8)]
    part = Part(0, 1, 0, 3, 12, last_offset=9, last_key="k", leader_epoch=4, pages=pages)
    part.marks = [MarkWork(9, 0, 0, 1, complete(first))]

    def stop(offset: int) -> dict[int, TooMany]:
        return {0: TooMany(NAME, 0, offset, 1, 0)}

    assert behind([part], stop(5)) == {0: 5}
    assert behind([part], stop(8)) == {0: 8}
    assert behind([part], stop(9)) == {}
    assert behind([part], {}) == {}
    cut = part.until(5)
    assert (cut.start, cut.end, cut.last_offset, cut.leader_epoch) == (3, 6, None, 4)
    assert [one.offset for one in cut.pages] == [3, 5]
    assert cut.marks == []
    assert [one.offset for one in part.until(9).marks] == [9]


def test_a_halt_says_what_unblocks_it() -> None:
    said = TooMany(NAME, 0, 5, 2, 1).halted(datetime(2026, 3, 1, tzinfo=UTC))
    assert said["cause"] == "record_faults"
    assert "2 records are in quarantine and accounts takes 1" in said["detail"]
    assert "gapless quarantine list accounts" in said["unblocked_by"]

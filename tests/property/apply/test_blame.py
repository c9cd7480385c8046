"""A page without its blamed records maps to what the others map to, and every record has an outcome."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apply.blame import map_without, part_of
from apply.mapping.compile import compile_mapping
from apply.mapping.types import INDEX, Place
from apply.outcomes import PENDING, Outcome, Reason
from schemas.records import MissingRecord
from tests.unit.apply.mapped import column, page, spec

_PLACE = Place(1, 0, 5, None, None)
_RECORDS = st.lists(st.sampled_from(["good", "bad", "gone"]), min_size=1, max_size=12)


@given(kinds=_RECORDS, blamed=st.sets(st.integers(0, 14)), first=st.integers(0, 3))
def test_only_the_blamed_are_left_out(kinds: list[str], blamed: set[int], first: int) -> None:
    values = {"good": "1", "bad": '"x"'}
    records = [
        "" if kind == "gone" else f'{{"id":"{at}","v":{values[kind]}}}'
        for at, kind in enumerate(kinds)
    ]
    missing = [
        MissingRecord(first + at, "erased", 1) for at, kind in enumerate(kinds) if kind == "gone"
    ]
    observation = page(*records, first_index=first, missing=missing)
    compiled = compile_mapping(spec(column("v", "integer")), 1)
    whole = compiled.map_page(observation, _PLACE)
    found = map_without(lambda part: compiled.map_page(part, _PLACE), observation, blamed)
    assert len(found.outcomes) == len(kinds)
    for at, outcome in enumerate(found.outcomes):
        expected = Outcome.QUARANTINED if at in blamed else whole.outcomes[at]
        assert outcome == expected
    assert found.rows == [row for row in whole.rows if row[INDEX] - first not in blamed]
    assert {row[INDEX] - first for row in found.rows} == {
        at for at, outcome in enumerate(found.outcomes) if outcome == PENDING
    }
    killers = {f.index - first for f in found.faults if f.reason is Reason.KILLED_WORKER}
    assert killers == {at for at in blamed if at < len(kinds)}
    assert found.unreadable == whole.unreadable + len(killers)


def test_a_part_keeps_its_places() -> None:
    missing = [MissingRecord(3, "erased", 1), MissingRecord(5, "oversized", 1)]
    part = part_of(page("a", "b", "c", "d", first_index=2, missing=missing), 2, 4)
    assert part.records == [b"c", b"d"]
    assert part.first_index == 4
    assert [one.index for one in part.missing] == [5]

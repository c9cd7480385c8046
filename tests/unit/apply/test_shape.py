"""Records that are read by a learnt shape: nothing is read otherwise than without it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from apply.mapping.compile import compile_mapping
from apply.mapping.shape import LEAST_RECORDS, Form, Learner, Shape, learn, widen
from apply.mapping.types import CompiledMapping, Place
from apply.outcomes import Outcome, Reason
from schemas.definitions.mapping import MappingSpec
from schemas.records import MissingRecord, Observation
from tests.unit.apply.mapped import column, page, path, spec

_PLACE = Place(4, 1, 11, None, None)
_NOTHING: frozenset[tuple[str, ...]] = frozenset()


def _spec() -> MappingSpec:
    return spec(
        column("v", "text", path=path("a.b")), column("n", "bigint"),
        column("whole", "jsonb", path=path("w")),
    )  # fmt: skip


def _usual(number: int) -> str:
    return f'{{"id":"{number}","a":{{"b":"x","unread":1.5}},"n":{number},"w":{{"k":1.10}},"z":":"}}'


def _page(*others: str) -> Observation:
    usual = (_usual(number) for number in range(LEAST_RECORDS))
    return page(*(one.encode() for one in (*usual, *others)))


def _learnt() -> CompiledMapping:
    compiled = compile_mapping(_spec(), 6)
    compiled.map_page(_page(), _PLACE)
    return compiled


def _same(others: tuple[str, ...]) -> CompiledMapping:
    """Whether a page means the same to a mapper that has learnt and to one that has not."""
    compiled = _learnt()
    found = compiled.map_page(_page(*others), _PLACE)
    expected = compile_mapping(_spec(), 6).map_page(_page(*others), _PLACE)
    assert repr(found) == repr(expected)
    return compiled


@pytest.mark.parametrize(
    "other",
    [
        _usual(99),
        '{"id":"r"}',
        '{"id":"r","a":null,"n":null,"w":null,"z":null}',
        '{"id":"r","a":"x","n":5,"w":7,"z":[]}',
        '{"id":"r","a":{},"n":5,"w":{"q":{"r":1}},"z":{}}',
        '{"id":"r","a":{"b":"x","unread":1,"new":2},"n":1,"w":{},"z":1,"new":{"a":1}}',
        '{"id":"r","a":{"b":"x","unread":1},"n":99999999999999999999999,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":1e999999999999999999999},"n":1,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":"\\ud800"},"n":1,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":"\\u003a"},"n":1,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":NaN},"n":1,"w":{},"z":1}',
        "[]",
        "",
    ],
)
def test_a_record_means_the_same_whether_its_shape_is_known_or_not(other: str) -> None:
    _same((other,))
    _same((other, other, _usual(7)))


@pytest.mark.parametrize(
    "twice",
    [
        '{"id":"r","id":"s","a":{"b":"x","unread":1},"n":1,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":1,"unread":2},"n":1,"w":{},"z":1}',
        '{"id":"r","a":{"b":"x","unread":1},"n":1,"w":{"k":1,"k":2},"z":1}',
        '{"id":"r","a":{"b":"x","unread":1},"n":1,"w":{},"z":{"k":1,"k":2}}',
    ],
)
def test_a_member_named_twice_is_refused_though_the_shape_has_it_once(twice: str) -> None:
    found = _learnt().map_page(_page(twice), _PLACE)
    assert [(one.index, one.reason) for one in found.faults] == [(LEAST_RECORDS, Reason.UNREADABLE)]
    assert found.outcomes[LEAST_RECORDS] == Outcome.QUARANTINED
    assert len(found.rows) == LEAST_RECORDS


def test_what_a_column_stores_as_it_is_stays_out_of_the_shape() -> None:
    (row, *_) = _learnt().map_page(_page(), _PLACE).rows
    assert row[3] == b'\x01{"k":1.10}'


def test_a_shape_names_all_members_and_which_may_be_missing() -> None:
    found = learn([{"a": {"b": 1}, "c": 2}, {"a": None, "d": [{"e": 1}]}], _NOTHING)
    assert found is not None
    members = {name: (one.optional, one.inner is not None) for name, one in found.members.items()}
    assert members == {"a": (False, True), "c": (True, False), "d": (True, False)}
    assert learn([{"a": {"b": 1}}], frozenset([("a",)])).members["a"].inner is None  # type: ignore[union-attr]
    assert learn([{"a": 1}, []], _NOTHING) is None
    assert learn([{'a"': 1}], _NOTHING) is None


def test_members_stand_in_a_shape_as_they_follow_each_other() -> None:
    """They are looked for from the last one on, so that of many the wrong order takes long."""
    found = learn([{"a": 1, "e": 1}, {"a": 1, "b": 1, "d": 1, "e": 1}, {"c": 1, "d": 1}], _NOTHING)
    assert found is not None
    assert "".join(found.members) == "cabde"
    other = learn([{"d": 1, "x": 1, "e": 1, "y": 1}], _NOTHING)
    assert other is not None
    both = widen(found, other)
    assert "".join(both.members) == "cabdxey"
    decoded = Form(both).decoder(exact=True)(b'{"b":1,"x":2}')
    assert "".join(decoded.__struct_fields__) == "".join(f"m{at}" for at in range(7))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("members", "has_one"), [(24, True), (25, False), (200, False)])
def test_many_members_without_an_order_have_no_shape(members: int, has_one: bool) -> None:
    dice, names = Random(1), [f"n{at}" for at in range(members)]
    ordered = [{name: 1 for name in names if dice.random() < 0.7} for _ in range(50)]
    assert learn(ordered, _NOTHING) is not None
    mixed = [dict.fromkeys(dice.sample(names, members), 1) for _ in range(50)]
    assert (learn(mixed, _NOTHING) is not None) is has_one
    assert learn([{"id": 1, "deep": one} for one in mixed], _NOTHING) is not None


def test_objects_whose_names_are_data_have_no_shape() -> None:
    days = [{f"2024-03-{day:02d}": 1 for day in range(at, at + 3)} for at in range(1, 28)]
    assert learn(days, _NOTHING) is None
    found = learn([{"id": 1, "by_day": one} for one in days], _NOTHING)
    assert found is not None
    assert found.members["by_day"].inner is None


def test_pages_with_holes_are_no_reason_to_give_a_shape_up() -> None:
    compiled = _learnt()
    holes = msgspec.structs.replace(
        _page(), missing=[MissingRecord(0, "erased", 9)], records=[b"", *_page().records[1:]]
    )
    for _ in range(100):
        found = compiled.map_page(holes, _PLACE)
        assert found.outcomes[0] == Outcome.ERASED
        assert len(found.rows) == LEAST_RECORDS - 1
    assert compiled.mapper.__self__.plans["interval"].shaped is not None  # type: ignore[attr-defined]


def test_a_widened_shape_has_room_for_both() -> None:
    one = learn([{"a": {"b": 1}, "c": {"d": 1}}], _NOTHING)
    other = learn([{"a": {"x": 1}, "c": 5, "e": 1}], _NOTHING)
    assert one is not None
    assert other is not None
    both = widen(one, other)
    decode = Form(both).decoder(exact=True)
    for raw in (b'{"a":{"b":1},"c":{"d":1}}', b'{"a":{"x":1},"c":5,"e":1}', b'{"a":null,"c":1}'):
        decode(raw)
    assert isinstance(both, Shape)
    with pytest.raises(ValueError, match="unknown field"):
        decode(b'{"a":{"b":1},"c":1,"f":1}')


def test_a_learner_ends_where_it_does_not_pay() -> None:
    learner = Learner(_NOTHING)
    told = [
        learner.see([{f"n{page}": 1, "id": at} for at in range(LEAST_RECORDS)])
        for page in range(20)
    ]
    assert sum(form is not None for form in told) == 8
    assert learner.see([{"id": 1}] * (LEAST_RECORDS - 1)) is None
    assert Learner(None).see([{"id": 1}] * LEAST_RECORDS) is None
    missed = [learner.keeps(hit=False) for _ in range(60)]
    assert missed.count(True) == 49
    assert missed[0]
    assert not missed[-1]
    often = Learner(_NOTHING)
    assert all(often.keeps(hit=number % 2 == 0) for number in range(1_000))

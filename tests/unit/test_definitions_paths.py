"""Paths and predicates: at most one value, and no surprises between types."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.definitions.paths import (
    EACH,
    MISSING,
    Path,
    Root,
    Step,
    find,
    format_steps,
    parse_answer_path,
    parse_entity_path,
    parse_mapping_path,
    parse_record_path,
)
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Condition
from schemas.definitions.problems import NotationError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
STEPS = st.lists(st.one_of(TEXTS, st.integers(-999, 999)), min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(STEPS)
def test_paths_round_trip(steps: list[Step]) -> None:
    text = format_steps(tuple(steps))
    assert parse_record_path(text).steps == tuple(steps)
    if isinstance(steps[0], str):
        assert parse_mapping_path(f"${'' if text.startswith('[') else '.'}{text}").steps == tuple(
            steps
        )


@given(JSON, STEPS)
def test_a_path_finds_what_stands_there(value: Any, steps: list[Step]) -> None:
    expected: Any = value
    for step in steps:
        try:
            if isinstance(expected, str) or (isinstance(step, int) and isinstance(expected, dict)):
                raise TypeError
            expected = expected[step]
        except (KeyError, IndexError, TypeError):
            expected = MISSING
            break
    assert find(tuple(steps), value) is expected


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a.b[0]", ("a", "b", 0)),
        ('["odd.key"].x', ("odd.key", "x")),
        ("a['it\\'s \"']", ("a", "it's \"")),
        ("a[-1]", ("a", -1)),
        ("größe", ("größe",)),
    ],
)
def test_paths_as_people_write_them(text: str, steps: tuple[Step, ...]) -> None:
    assert parse_record_path(text).steps == steps


@pytest.mark.parametrize(
    "text", ["", "a.", ".a", "a..b", "a-b", "a[01]", "a[x]", "a b", "1a", "a[*]", "a[", '["a']
)
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(NotationError):
        parse_record_path(text)


def test_where_paths_start() -> None:
    assert parse_answer_path("status") == Path(Root.STATUS, (), "status")
    assert parse_answer_path("header.X-Next").steps == ("x-next",)
    assert parse_answer_path("body").steps == ()
    assert parse_answer_path('body["a.b"]').steps == ("a.b",)
    assert parse_mapping_path("$").root is Root.RECORD
    assert parse_mapping_path("observation.as_of").root is Root.OBSERVATION
    assert parse_mapping_path("a.b").root is Root.ENTITY
    assert parse_entity_path("$").steps == ()
    assert parse_entity_path("data.object") == Path(Root.RECORD, ("data", "object"), "data.object")
    for wrong in ("items", "headers.x", "bodyx"):
        with pytest.raises(NotationError, match="in the answer"):
            parse_answer_path(wrong)


def test_every_element() -> None:
    path = parse_mapping_path("labels[*].name", each=True)
    assert path.has_each
    assert path.steps == ("labels", EACH, "name")
    assert find(path.steps, {"labels": [{"name": "a"}, {}, 3]}) == ["a", None, None]
    assert find(path.steps, {"labels": None}) is MISSING
    with pytest.raises(NotationError, match="twice"):
        parse_mapping_path("a[*].b[*]", each=True)


ENTITY = Path(Root.ENTITY, ("x",), "x")


@pytest.mark.parametrize(
    ("operator", "operand", "holds", "fails"),
    [
        (Operator.EQUALS, 403, [403, 403.0], ["403", True, None, MISSING]),
        (Operator.EQUALS, True, [True], [1, "true"]),
        (Operator.EQUALS, None, [None], [MISSING, 0, ""]),
        (Operator.ONE_OF, ("a", 1), ["a", 1], [True, "1", MISSING]),
        (Operator.EXISTS, True, [0, "", False], [None, MISSING]),
        (Operator.EXISTS, False, [None, MISSING], [0]),
        (Operator.GTE, 10, [10, 10.5], [9, "10", None, MISSING, True]),
        (Operator.LT, 0.1, [0, 0.09], [0.1, 1]),
        (Operator.LT, "b", ["a"], ["b", 1]),
        (Operator.GT, 3, [4], [3]),
        (Operator.LTE, 3, [3, 2], [4]),
        (Operator.MATCHES, "^_d", ["_design"], ["x_d", 1, MISSING]),
        (Operator.NOT, (Condition(Operator.EQUALS, "a"),), ["b", None, MISSING], ["a"]),
    ],
)
def test_operators(
    operator: Operator, operand: Any, holds: list[object], fails: list[object]
) -> None:
    predicate = Predicate(((Line(ENTITY, (Condition(operator, operand),)),),))
    for value in holds:
        assert predicate.matches(lambda _, value=value: value), value  # type: ignore[misc]
    for value in fails:
        assert not predicate.matches(lambda _, value=value: value), value  # type: ignore[misc]


def test_lines_are_and_maps_are_or() -> None:
    other = Path(Root.ENTITY, ("y",), "y")
    both = (
        Line(ENTITY, (Condition(Operator.EQUALS, 1),)),
        Line(other, (Condition(Operator.EQUALS, 2),)),
    )
    predicate = Predicate((both, (Line(other, (Condition(Operator.EQUALS, 3),)),)))
    for record, expected in [
        ({"x": 1, "y": 2}, True),
        ({"x": 1, "y": 4}, False),
        ({"y": 3}, True),
        ({}, False),
    ]:
        assert predicate.matches(lambda path, record=record: find(path.steps, record)) is expected  # type: ignore[misc]

"""Children of a record: their rows, and what makes the whole record a fault."""

from __future__ import annotations

from typing import Any

import pytest

import apply.mapping.compile as compiler
from apply.children import ChildForms
from apply.mapping.compile import compile_mapping
from apply.mapping.types import INDEX, LINEAGE
from apply.outcomes import Outcome, Reason
from schemas.definitions.mapping import ByPlan, ChildSpec, ColumnSpec, MappingSpec
from schemas.definitions.paths import parse_entity_path, parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from tests.unit.apply.mapped import column, dated, mapped, path, spec


def child(
    *columns: ColumnSpec, name: str = "lines", at: str = "lines[*]", **more: Any
) -> ChildSpec:
    """Rows of a list with the key `n`."""
    found = {"n": column("n", "integer", required=True), **{one.name: one for one in columns}}
    place = ByPlan(parse_mapping_path(at, each=True))
    values = {"path": place, "key": ("n",), "columns": found, **more}
    return ChildSpec(name=name, table=name, **values)


def parent(*children: ChildSpec, **more: Any) -> MappingSpec:
    """A mapping with these children."""
    return spec(column("v", "text"), children={one.name: one for one in children}, **more)


def born(of: MappingSpec, record: str, **more: Any) -> list[list[tuple[Any, ...]]]:
    """The rows of each child table without their lineage, which is that of the row."""
    found = mapped(of, record, **more)
    assert not found.faults, found.faults
    (row,) = found.rows
    children = found.children.get(row[INDEX], tuple([] for _ in of.children))
    assert all(one[-5:] == row[LINEAGE] for rows in children for one in rows)
    return [[one[:-5] for one in rows] for rows in children]


def test_columns_are_the_parents_key_the_childs_others_position_lineage() -> None:
    tenant = column("tenant_id", "text", path=path("observation.tenant"))
    by_key, by_place = child(column("v", "uuid")), child(name="b", key=("position",))
    of = spec(tenant, key=("id", "tenant_id"), children={"lines": by_key, "b": by_place})
    one, two = compile_mapping(of, 3).children
    names = ["parent_id", "parent_tenant_id", "n", "v", "position", "_generation",
             "_partition_id", "_offset", "_index", "_mapping_version"]  # fmt: skip
    assert [found.name for found in one.columns] == names
    assert [found.name for found in one.key_columns] == names[:3]
    assert [found.name for found in two.columns][:4] == [*names[:2], "position", "n"]
    assert [found.name for found in two.key_columns] == [*names[:2], "position"]


@pytest.mark.parametrize(
    ("one", "record", "rows"),
    [
        (child(), '"lines":[{"n":2},{"n":1}]', [("a", 2, 0), ("a", 1, 1)]),
        (child(), '"lines":[]', []),
        (child(), '"lines":null', []),
        (child(), '"other":1', []),
        (child(at="in.lines[*].of"), '"in":{"lines":[{"of":{"n":1}}]}', [("a", 1, 0)]),
        (child(at="$.lines[*]"), '"lines":[{"n":1}]', [("a", 1, 0)]),
        (child(column("v", "text", path=path("$.v"))), '"v":"x","lines":[{"n":1,"v":"y"}]',
         [("a", 1, "x", 0)]),
        (child(column("v", "text", default="d")), '"lines":[{"n":1}]', [("a", 1, "d", 0)]),
        (child(column("t", "text[]", path=path("t[*].k"))), '"lines":[{"n":1,"t":[{"k":"x"}]}]',
         [("a", 1, ["x"], 0)]),
        (child(key=("position",)), '"lines":[{"n":1},{"n":1}]', [("a", 0, 1), ("a", 1, 1)]),
        (child(path=ByPlan(named={"snapshot": parse_mapping_path("lines[*]", each=True)})),
         '"lines":[{"n":1}]', []),
    ],
)  # fmt: skip
def test_rows_of_a_list(one: ChildSpec, record: str, rows: list[tuple[Any, ...]]) -> None:
    assert born(parent(one), f'{{"id":"a",{record}}}') == [rows]


def test_a_path_of_a_child_starts_at_the_entity() -> None:
    of = parent(child(), entity=ByPlan(parse_entity_path("e")))
    assert born(of, '{"e":{"id":"a","lines":[{"n":1}]},"lines":[{"n":7}]}') == [[("a", 1, 0)]]


@pytest.mark.parametrize(
    ("lines", "reason", "detail"),
    [
        ('[{"n":1},{"n":2},{"n":1}]', Reason.DUPLICATE_CHILD, "lines[2] has the key of lines[0]"),
        ('[{"n":1},{"n":null}]', Reason.MISSING_KEY, "lines[1]: n has no value at n"),
        ('[{"n":1},{"n":"x"}]', Reason.WRONG_TYPE, 'lines[1]: n "x" is no whole number'),
        ('[{"n":1},null]', Reason.NOT_AN_OBJECT, "lines[1] is no JSON object"),
        ('["secret"]', Reason.NOT_AN_OBJECT, "lines[0] is no JSON object"),
        ('{"n":1}', Reason.WRONG_TYPE, "lines (an object) is no list"),
        ('"secret"', Reason.WRONG_TYPE, "lines (a text of 6 characters) is no list"),
    ],
)
def test_a_fault_of_a_child_is_a_fault_of_its_record(
    lines: str, reason: Reason, detail: str
) -> None:
    good = '{"id":"b","lines":[{"n":1}]}'
    found = mapped(parent(child()), f'{{"id":"a","lines":{lines}}}', good)
    assert list(found.outcomes) == [Outcome.QUARANTINED, 0]
    (fault,) = found.faults
    assert (fault.reason, fault.detail, fault.key) == (reason, detail, {"id": "a"})
    assert list(found.children) == [1]


def test_a_tombstone_has_no_children_and_no_fault_in_them() -> None:
    gone = Line(parse_mapping_path("gone"), (Check(Operator.EQUALS, True),))
    of = parent(child(), deleted=Predicate(((gone,),)))
    found = mapped(of, '{"id":"a","gone":true,"lines":[{"n":1},{"n":1}]}')
    assert (len(found.rows), found.children, found.faults) == (1, {}, [])


def test_ordinary_children_take_the_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an ordinary record was interpreted")

    monkeypatch.setattr(compiler, "interpret", refuse)
    price, at = column("price", "numeric(12,2)"), column("at", "timestamptz")
    kinds = column("kind", "text", path=path("in.kind"), values={"a": "b"})
    of = parent(
        child(price, at, kinds),
        child(name="more", key=("position",), at="more[*].of"),
        revision=dated(),
    )
    line = '{"n":1,"price":1.50,"at":"2024-03-01T08:12:31Z","in":{"kind":"a"}}'
    record = f'{{"id":"a","rev":1,"lines":[{line}],"more":[{{"of":{{"n":1}}}}]}}'
    found = mapped(of, record, record, first_index=10)
    assert [len(rows) for rows in found.children[11]] == [1, 1]


def test_a_key_that_no_table_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^column n: jsonb cannot be part of a key"):
        compile_mapping(parent(child(column("n", "jsonb"))), 1)


def test_children_that_cannot_be_formed_leave_the_others_alone() -> None:
    """The sink finds out about them, where one record can be isolated; the reading thread goes on."""
    of = parent(child(column("q", "integer")))
    found = mapped(of, '{"id":"a","lines":[{"n":1,"q":2}]}', '{"id":"b","lines":[{"n":1,"q":2}]}')
    forms = ChildForms(compile_mapping(of, 6))
    ((row,),) = found.children[0]
    broken = ([(*row[:2], "no number", *row[3:])],)
    assert forms.form_all({0: broken, 1: found.children[1]}) == {1: forms.form(found.children[1])}

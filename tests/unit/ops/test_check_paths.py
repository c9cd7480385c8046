"""Paths that lead nowhere in a sample are told, with what was probably meant; others are not."""

from __future__ import annotations

import pytest

from ops.check.paths import paths_to_nowhere
from schemas.definitions.mapping import ByPlan, ChildSpec, ColumnSpec, FunctionSpec
from schemas.definitions.paths import parse_entity_path, parse_mapping_path
from schemas.definitions.predicates import Line, Operator, Predicate
from schemas.definitions.predicates import Test as Check
from tests.unit.apply.mapped import column, page, path, spec

RECORDS = (
    '{"id":"a","amount":{"total":1,"tax":null},"lines":[{"n":1}],"kind":"order"}',
    '{"id":"b","amount":{"total":2,"tax":null},"kind":"order"}',
    '{"id":"c","kind":"draft","late":1}',
    "no json",
    "[1]",
)


def _told(one: ColumnSpec, **more: object) -> list[tuple[str, str | None, int]]:
    found = paths_to_nowhere(spec(one, **more), [page(*RECORDS)])
    return [(each.path, each.instead, each.count) for each in found]


@pytest.mark.parametrize(
    ("written", "instead", "count"),
    [
        ("amount.totl", "amount.total", 2),
        ("amout.total", "amount.total", 2),
        ("total", "amount.total", 2),
        ("$.amount.totl", "$.amount.total", 2),
        ("zzz", None, 0),
    ],
)
def test_what_was_probably_meant(written: str, instead: str | None, count: int) -> None:
    assert _told(column("v", "numeric", path=path(written))) == [(written, instead, count)]


@pytest.mark.parametrize("written", ["amount.total", "amount.tax", "lines[0].n", "observation.run"])
def test_what_any_record_has_is_no_typo(written: str) -> None:
    assert _told(column("v", "text", path=path(written))) == []


def test_a_default_or_another_alternative_says_that_it_is_rare() -> None:
    assert _told(column("v", "text", path=path("nowhere"), default="x")) == []
    assert _told(column("v", "text", path=path("nowhere", "kind"))) == []
    assert [one for one, _, _ in _told(column("v", "text", path=path("kinds", "kinde")))] == [
        "kinds"
    ]


def test_only_records_that_the_mapping_wants_count() -> None:
    drafts = (Check(Operator.EQUALS, "draft"),)
    of = Predicate(((Line(parse_mapping_path("kind"), drafts),),))
    (found,) = paths_to_nowhere(
        spec(column("v", "text", path=path("lat")), where=of), [page(*RECORDS)]
    )
    assert (found.records, found.instead, found.count) == (1, "late", 1)
    assert found.message == "none of 1 sampled records has lat"
    assert "Did you mean `late` (in 1 of 1)?" in found.advice


def test_paths_start_at_the_entity_or_at_what_a_function_makes() -> None:
    inner = ByPlan(parse_entity_path("amount"))
    assert (
        paths_to_nowhere(
            spec(column("v", "text", path=path("totl")), entity=inner, key=("v",)), [page(*RECORDS)]
        )[0].path
        == "id"
    ), "which is not in `amount`"
    made = FunctionSpec("a", "b", 1.0, 1)
    assert _told(column("v", "text", path=path("nowhere")), python=made) == []


def test_lists_of_children_and_what_is_in_their_elements() -> None:
    def told(at: str, *columns: ColumnSpec, **more: object) -> list[tuple[object, ...]]:
        place = ByPlan(parse_mapping_path(at, each=True))
        lines = ChildSpec("lines", "lines", place, ("n",), {one.name: one for one in columns})
        found = paths_to_nowhere(spec(children={"lines": lines}, **more), [page(*RECORDS)])
        return [(one.place, one.message, one.instead) for one in found]

    n, rate = column("n", "integer"), column("rate", "integer", path=path("nn"))
    assert told("lines[*]", n) == []
    message = "none of 1 sampled elements of lines has nn"
    assert told("lines[*]", n, rate) == [(("children", "lines", "columns", "rate"), message, "n")]
    kind = column("kind", "text", path=path("$.kind"))
    assert told("lines[*]", n, kind) == []
    (found,) = told("line[*]", n)
    assert found == (
        ("children", "lines", "path"), "none of 3 sampled records has line", "lines",
    )  # fmt: skip
    made = FunctionSpec("acme", "row", hang_s=1.0, memory_bytes=1 << 20)
    assert told("line[*]", n, python=made) == []

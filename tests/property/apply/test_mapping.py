"""The compiled mapper says what the plain one says, whatever the mapping and the records are."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apply.mapping.compile as compiler
from apply.mapping import shape
from apply.mapping.compile import compile_mapping
from apply.mapping.interpret import interpret_page, seen
from apply.mapping.outside import Make
from apply.mapping.raw import (
    ODD,
    Decode,
    Unreadable,
    read_plain,
    read_record,
    read_unchecked,
)
from apply.mapping.rules import resolve
from apply.mapping.types import INDEX, Mapped, Place
from apply.outcomes import counts
from schemas.definitions.mapping import ByPlan, FunctionSpec, MappingSpec
from schemas.definitions.paths import parse_entity_path
from schemas.definitions.secrets import Reference
from schemas.records import Observation
from tests.property.apply import pages, specs
from tests.unit.apply.mapped import column, page, spec

_ALIKE = (
    "1", "true", '"1"', "1.0", "5", '"5"', "0.3", "0.30000000000000000001", '"open"', '""', "null",
    "false", "0", "[]", '{"b":5,"c":"open"}', '["open",{"c":1}]', '{"b":null}', '"op"',
)  # fmt: skip
_PLACE = Place(partition_id_no=4, generation=1, offset=11, tenant="north", began=9)


def _said(mapped: Mapped) -> dict[str, Any]:
    """Everything, with the types of values: 1 and True and 1.0 are not the same here."""
    return {
        "outcomes": bytes(mapped.outcomes),
        "rows": [repr(row) for row in sorted(mapped.rows, key=lambda row: row[INDEX])],
        "faults": [repr(fault) for fault in mapped.faults],
        "other_keys": [repr(key) for key in mapped.other_keys],
        "children": {at: repr(rows) for at, rows in sorted(mapped.children.items())},
        "unreadable": mapped.unreadable,
        "first_index": mapped.first_index,
    }


def _both(
    of: MappingSpec, observation: Observation, *, again: bool = False
) -> tuple[Mapped, Mapped]:
    """`again`: once the shape of the page was learnt from itself."""
    compiled = compile_mapping(of, version_id=6)
    if again:
        compiled.map_page(observation, _PLACE)
    fast = compiled.map_page(observation, _PLACE)
    context = seen(resolve(of, observation.plan), observation, _PLACE, 6)
    return fast, interpret_page(observation, context)


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_compiled_equals_interpreted(seed: int) -> None:
    dice = Random(seed)
    of = specs.spec(dice)
    observation = pages.page(dice, of)
    fast, slow = _both(of, observation)
    assert _said(fast) == _said(slow)
    settled = bytearray(fast.outcomes)
    for row in fast.rows:
        at = row[INDEX] - observation.first_index
        assert settled[at] == 0, "a record has a row and an outcome, or two rows"
        settled[at] = 1
    assert sum(counts(settled)) == len(observation.records)


def _plain(observation: Observation) -> Observation:
    """Only what is read without a closer look, so that its shape can be learnt."""
    plain = [raw for raw in observation.records if read_plain(raw, exact=True) is not ODD]
    return msgspec.structs.replace(observation, records=plain, missing=[])


def _by_shape(seed: int) -> int:
    """Maps pages again whose shape was learnt; how many of them were read by it."""
    dice, by_shape = Random(seed), 0
    of = specs.spec(dice)
    compiled = compile_mapping(of, version_id=6)
    decoded: list[object] = []
    for _ in range(3):
        observation = pages.page(dice, of)
        for one in (_plain(observation), _plain(observation), observation):
            context = seen(resolve(of, one.plan), one, _PLACE, 6)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(shape, "LEAST_RECORDS", 1)
                patched.setattr(compiler, "read_unchecked", partial(_noting, decoded))
                assert _said(compiled.map_page(one, _PLACE)) == _said(interpret_page(one, context))
            by_shape += sum(isinstance(value, msgspec.Struct) for value in decoded)
            decoded.clear()
    return by_shape


def _noting(
    decoded: list[object], records: Sequence[bytes], decode: Decode
) -> tuple[list[object], bytes] | None:
    found = read_unchecked(records, decode)
    decoded += () if found is None else found[0]
    return found


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_compiled_by_a_learnt_shape_equals_interpreted(seed: int) -> None:
    _by_shape(seed)


def test_random_pages_are_read_by_their_shape() -> None:
    """Without this the comparison above might compare nothing."""
    assert sum(map(_by_shape, range(150))) > 500


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_compiled_predicates_hold_where_the_reference_does(seed: int) -> None:
    """Every operator with every sort of value, none, null, and what only looks alike."""
    dice = Random(seed)
    of = replace(
        spec(column("tag", "text")),
        where=specs.predicate(dice) if dice.random() < 0.7 else None,
        deleted=specs.predicate(dice) if dice.random() < 0.5 else None,
    )
    members = ("a", "b", "c", "d")
    records = []
    for number in range(30):
        some = {name: dice.choice(_ALIKE) for name in members if dice.random() < 0.7}
        written = "".join(f',"{name}":{value}' for name, value in some.items())
        records.append(f'{{"id":"{number}"{written}}}'.encode())
    observation = page(*records, plan=dice.choice(["interval", "snapshot"]))
    fast, slow = _both(of, observation, again=True)
    assert _said(fast) == _said(slow)


class _Handing:
    """A function that hands every record on as it is."""

    def hasher(self, key: Reference) -> Callable[[str], str]:
        raise AssertionError(key)

    def function(self, spec: FunctionSpec) -> Make:
        return lambda records, observed: list(records)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_what_a_function_hands_on_is_mapped_like_the_record(seed: int) -> None:
    dice = Random(seed)
    of = replace(specs.spec(dice), entity=ByPlan(parse_entity_path("$")))
    observation = pages.page(dice, of)
    plain = [raw for raw in observation.records if b"\\u0000" not in raw and not _odd(raw)]
    observation = msgspec.structs.replace(observation, records=plain, missing=[])
    made = replace(of, python=FunctionSpec("a", "b", 1.0, 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiler, "members_of", lambda _: frozenset(_members(plain)))
        found = compile_mapping(made, 6, _Handing()).map_page(observation, _PLACE)
    expected = compile_mapping(of, 6).map_page(observation, _PLACE)
    assert _said(found) | {"faults": []} == _said(expected) | {"faults": []}
    assert sorted(one.index for one in found.faults) == sorted(one.index for one in expected.faults)


def _odd(raw: bytes) -> bool:
    """JSON that is no object: never a row, though a mapping may ignore it."""
    try:
        return not isinstance(read_record(raw), dict)
    except Unreadable:
        return False


def _members(records: list[bytes]) -> Iterator[str]:
    for raw in records:
        with contextlib.suppress(Unreadable):
            record = read_record(raw)
            yield from record if isinstance(record, dict) else ()


def test_random_pages_reach_rows_and_most_faults() -> None:
    """Without this the comparison above might compare nothing."""
    reached: Counter[str] = Counter()
    for seed in range(500):
        dice = Random(seed)
        of = specs.spec(dice)
        fast, _ = _both(of, pages.page(dice, of))
        reached["row"] += len(fast.rows)
        reached["child"] += sum(len(rows) for of in fast.children.values() for rows in of)
        reached.update(fault.reason.value for fault in fast.faults)
        reached["ignored"] += fast.outcomes.count(3)
    assert reached["row"] > 300, reached
    assert reached["child"] > 200, reached
    wanted = {
        "unreadable", "not_an_object", "missing_key", "missing_revision", "missing_value",
        "duplicate_child", "wrong_type", "out_of_range", "too_long", "nul", "no_match", "unknown_value", "bad_time",
        "naive_time", "oversized", "unsplittable", "ignored",
    }  # fmt: skip
    assert wanted <= {name for name, count in reached.items() if count}, reached

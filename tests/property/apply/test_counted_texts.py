"""Names and texts that generated code counts: never more than there are, so a page whose quotes are twice
as many has no member that is named twice."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from apply.mapping.compile import CountedPage, compile_mapping
from apply.mapping.interpret import interpret_page, seen
from apply.mapping.raw import Unreadable, read_record, read_unchecked
from apply.mapping.rules import resolve
from apply.mapping.types import Place
from tests.unit.apply.mapped import column, page, path, spec

_PLACE = Place(partition_id_no=4, generation=1, offset=11, tenant="north", began=None)
_SPEC = spec(
    column("total", "numeric(12,2)", path=path("amount.total")),
    column("status", "text", path=path("state.name"), values={"open": "open", "paid": "settled"}),
    column("at", "timestamptz"), column("reference", "uuid"), column("labels", "text[]"),
    column("n", "integer", min=0), column("yes", "boolean"), column("code", "char(3)"),
    column("either", "text", path=path("first", "second")), column("whole", "jsonb"),
    column("taken", "text", path=path("name")), column("again", "text", path=path("name")),
    column("net", "numeric(12,2)", path=path("$.money.net")),
    column("deep", "numeric(12,2)", path=path("$.box.inner.deep")),
)  # fmt: skip
_USUAL = {
    "amount": '{"total":12.50,"tax":7.25,"currency":"EUR"}', "state": '{"name":"open","by":"system"}',
    "at": '"2024-03-01T08:12:31Z"', "reference": '"7f2c1e0a-0b1c-4d2e-8f3a-123456789abc"',
    "money": '{"net":1.50}', "box": '{"inner":{"deep":-0.5}}',
    "labels": '["a","b"]', "n": "5", "yes": "true", "code": '"EUR"', "first": '"x"', "second": '"y"',
    "whole": "1.10", "name": '"n"', "unread": '"text"', "tags": '["t"]', "note": '"a: b"',
}  # fmt: skip
_OTHER = (
    "null", '""', '"x"', "7", "1.5", "true", "[]", '["q",null]', '["q",1]', "{}", '{"k":"v"}',
    '"\\"quoted\\""', '{"total":"1.00","tax":"x","currency":null}', '{"name":null,"by":7}',
    '{"total":1e2,"tax":null,"currency":"EUR"}', '{"net":"2"}', '{"inner":null}', '{"inner":{"deep":null}}', '"\\u0022"', '"2024-13-01T08:12:31Z"',
)  # fmt: skip


def _record(dice: Random, number: int, odd: float, twice: float) -> bytes:
    written = [f'"id":"{number}"']
    for name, usual in _USUAL.items():
        if dice.random() < odd / 3:
            continue
        written.append(f'"{name}":{dice.choice(_OTHER) if dice.random() < odd else usual}')
    if dice.random() < twice:
        again = dice.choice(list(_USUAL))
        value = dice.choice(_OTHER) if dice.random() < 0.7 else _USUAL[again]
        written.insert(dice.randrange(len(written) + 1), f'"{again}":{value}')
    return f"{{{','.join(written)}}}".encode()


def _texts(value: object) -> int:
    """Member names and texts of a value that was read."""
    if isinstance(value, dict):
        return len(value) + sum(map(_texts, value.values()))
    return sum(map(_texts, value)) if isinstance(value, list) else int(isinstance(value, str))


def _is_refused(raw: bytes) -> bool:
    try:
        read_record(raw)
    except Unreadable:
        return True
    return False


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_never_more_are_counted_than_there_are(seed: int) -> None:
    dice, counted = Random(seed), list[CountedPage]()
    compiled = compile_mapping(_SPEC, 6)
    odd, twice = dice.choice([0, 0.02, 0.1]), dice.choice([0, 0.1])
    for _ in range(6):
        observation = page(*(_record(dice, at, odd, twice) for at in range(10)))
        found = compiled.map_page(observation, _PLACE)
        context = seen(resolve(_SPEC, observation.plan), observation, _PLACE, 6)
        expected = interpret_page(observation, context)
        assert sorted(map(repr, found.rows)) == sorted(map(repr, expected.rows))
        assert (found.outcomes, found.faults) == (expected.outcomes, expected.faults)
        shaped = compiled.mapper.__self__.plans["interval"].shaped  # type: ignore[attr-defined]
        if shaped is None:
            continue
        read = read_unchecked(observation.records, shaped.decode)
        if read is None:
            continue
        one = CountedPage()
        texts = one.run(shaped.map_ordinary, read[0], observation.records, [], context)
        quotes = read[1].count(b'"')
        assert 2 * texts <= quotes
        assert 2 * texts < quotes or not any(map(_is_refused, observation.records))
        counted.append(one)
        for raw in observation.records:
            alone = read_unchecked([raw], shaped.decode)
            assert alone is not None
            texts = CountedPage().run(shaped.map_ordinary, alone[0], [raw], [], context)
            assert texts <= _texts(json.loads(raw))
    if not odd and not twice:
        assert counted, "usual records are read by their shape, or nothing was compared"


def test_all_texts_of_usual_records_are_counted() -> None:
    """Else nothing would ever be proven by them."""
    dice, compiled = Random(1), compile_mapping(_SPEC, 6)
    observation = page(*(_record(dice, at, 0, 0) for at in range(20)))
    compiled.map_page(observation, _PLACE)
    compiled.map_page(observation, _PLACE)  # now the list of labels is known too
    shaped = compiled.mapper.__self__.plans["interval"].shaped  # type: ignore[attr-defined]
    read = read_unchecked(observation.records, shaped.decode)
    assert read is not None
    context = seen(resolve(_SPEC, observation.plan), observation, _PLACE, 6)
    texts = CountedPage().run(shaped.map_ordinary, read[0], observation.records, [], context)
    assert shaped.has_quotes(read[1], texts)

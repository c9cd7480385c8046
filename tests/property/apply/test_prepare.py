"""What is done before the transaction is what the transaction would have done."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from apply.batch import Batch, PageWork, Part, Work
from apply.copy_form import RowForms
from apply.copy_frame import chunks
from apply.fold import fold
from apply.mapping.compile import compile_mapping
from apply.mapping.types import CompiledMapping, Place, Row
from apply.prefilter import Question
from apply.prepare import prepare
from apply.share import shares
from tests.property.apply import pages, specs
from tests.unit.apply.mapped import column, page, spec


def _batch(compiled: CompiledMapping, dice: Random, *, asked: bool = False) -> Batch:
    """Pages of two partitions, mapped and formed as the decoder does."""
    forms, questions = RowForms(compiled), Question(compiled)
    parts = []
    for partition in range(2):
        part = Part(partition, 1, 0, 0, 3)
        for offset in range(3):
            observation = pages.page(dice, compiled.spec)
            mapped = compiled.map_page(observation, Place(partition, 0, offset, "north", None))
            work = Work(compiled.version_id, compiled, mapped)
            if asked:
                work.questions = questions.form_all(mapped.rows)
            else:
                work.forms = forms.form_all(mapped.rows)
            part.pages.append(PageWork(offset, 0, partition, partition, observation, [work]))
        parts.append(part)
    return Batch(parts)


def _rows(batch: Batch) -> list[Row]:
    return [row for one in batch.pages() for work in one.works for row in work.mapped.rows]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**40), asked=st.booleans())
def test_it_folds_and_forms_as_the_transaction_would(seed: int, asked: bool) -> None:
    dice = Random(seed)
    compiled = compile_mapping(specs.spec(dice), 3)
    batch = _batch(compiled, dice, asked=asked)
    prepare(batch)
    [share] = shares(batch)
    assert share.prepared is not None
    assert share.prepared.folded == fold(_rows(batch), compiled)
    winners = share.prepared.folded.winners
    form = Question(compiled).form if asked else RowForms(compiled).form
    ready, other = share.prepared.copy, share.prepared.question
    if asked:
        ready, other = other, ready
    assert other is None
    if winners and all(any(row is one for one in _rows(batch)) for row in winners):
        assert ready is not None
        assert b"".join(ready) == b"".join(chunks(map(form, winners)))
        assert not share.forms()
        assert not share.questions()


def test_a_batch_that_something_is_taken_out_of_is_not_prepared() -> None:
    dice = Random(5)
    compiled = compile_mapping(spec(column("v", "text")), 3)
    batch = _batch(compiled, dice)
    prepare(batch)
    assert batch.prepared
    assert batch.without(frozenset([7])) is batch
    for less in (batch.without(frozenset([1])), batch.until({0: 1})):
        assert not less.prepared
        assert [share.prepared for share in shares(less)] == [None]


def test_a_row_that_cannot_be_formed_leaves_all_to_the_transaction() -> None:
    compiled = compile_mapping(spec(column("v", "text")), 3)
    observation = page(b'{"id":"a","v":"x"}', b'{"id":"b","v":"y"}')
    mapped = compiled.map_page(observation, Place(1, 0, 0, None, None))
    form = RowForms(compiled).form
    work = Work(3, compiled, mapped, [form(mapped.rows[0]), None])
    batch = Batch([Part(0, 1, 0, 0, 1, pages=[PageWork(0, 0, 0, 1, observation, [work])])])
    prepare(batch)
    assert batch.prepared[3].copy is None
    [share] = shares(batch)
    assert share.forms() == {id(mapped.rows[0]): form(mapped.rows[0])}

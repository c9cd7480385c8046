"""Promise: never backwards. Whatever the order, repetition, batching or replay, the newest stays."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apply.guard import beats, observed_order, wins
from apply.mapping.types import DELETED, MAPPING_VERSION, PARTITION_ID, REVISION, Row
from schemas.definitions.mapping import RevisionKind
from tests.property.apply.twin import Table, mapping, row

KINDS = list(RevisionKind)
_MAPPINGS = {kind: mapping(kind) for kind in KINDS}
seeds = st.integers(0, 2**40)
kinds = st.sampled_from(KINDS)


def _observations(dice: Random, kind: RevisionKind, keys: str = "ab") -> list[Row]:
    """What a log may say of a few keys: one row per offset. No listings.

    With `exact` the content follows from epoch and revision, as declared.
    """
    rows = []
    for offset in range(dice.randint(1, 7)):
        epoch, revision = dice.randint(0, 1), dice.randint(1, 3)
        value = dice.randint(1, 3)
        deleted = dice.random() < 0.2
        if kind is RevisionKind.EXACT:
            value, deleted = epoch * 10 + revision, revision == 2
        rows.append(
            row(kind, dice.choice(keys), value, revision=revision, epoch=epoch, offset=offset,
                index=dice.randint(0, 1), generation=offset // 4, deleted=deleted)
        )  # fmt: skip
    return rows


def _newest(kind: RevisionKind, rows: list[Row]) -> Row:
    """The row that the order of the design calls newest, without any code of the product."""

    def order(one: Row) -> tuple[object, ...]:
        revision = () if kind is RevisionKind.NONE else (one[REVISION],)
        epoch, generation, _, offset, index, version = one[-10:-4]
        return (epoch, *revision, generation, offset, index, version)

    return max(rows, key=order)


def _content(one: Row, kind: RevisionKind) -> tuple[object, ...]:
    """With `exact`, which observation of a revision is kept does not matter."""
    return (one[:2], one[DELETED], one[MAPPING_VERSION]) if kind is RevisionKind.EXACT else one


def _in_batches(dice: Random, rows: list[Row]) -> list[list[Row]]:
    cuts = sorted(dice.sample(range(len(rows) + 1), min(2, len(rows))))
    return [rows[start:end] for start, end in pairwise([0, *cuts, len(rows)])]


@settings(max_examples=400, deadline=None)
@given(seed=seeds, kind=kinds)
def test_any_order_and_repetition_ends_with_the_newest(seed: int, kind: RevisionKind) -> None:
    dice = Random(seed)
    rows = _observations(dice, kind)
    shuffled = rows + dice.choices(rows, k=dice.randint(0, 4))
    dice.shuffle(shuffled)
    table = Table(_MAPPINGS[kind])
    for batch in _in_batches(dice, shuffled):
        table.apply(batch)
    for key in {one[0] for one in rows}:
        newest = _newest(kind, [one for one in rows if one[0] == key])
        assert _content(table.rows[key], kind) == _content(newest, kind)


@settings(max_examples=300, deadline=None)
@given(seed=seeds, kind=kinds)
def test_a_batch_is_what_its_rows_are_one_by_one(seed: int, kind: RevisionKind) -> None:
    dice = Random(seed)
    rows = _observations(dice, kind)
    single, whole = Table(_MAPPINGS[kind]), Table(_MAPPINGS[kind])
    for one in rows:
        single.apply([one])
    whole.apply(rows)
    assert {key: _content(one, kind) for key, one in single.rows.items()} == {
        key: _content(one, kind) for key, one in whole.rows.items()
    }


@settings(max_examples=300, deadline=None)
@given(seed=seeds, kind=kinds)
def test_replay_of_a_new_mapping_reaches_every_row(seed: int, kind: RevisionKind) -> None:
    """Live goes on under the new version while the old observations come again."""
    dice = Random(seed)
    rows = _observations(dice, kind)
    again = [_mapped_by(one, 2) for one in rows]
    cut = dice.randint(0, len(rows))
    table = Table(_MAPPINGS[kind])
    for one in rows[:cut]:  # live, before the new version
        table.apply([one])
    live, replay = again[cut:], again[:cut]
    while live or replay:  # live and the replay side by side, the replay in any batches
        source = dice.choice([one for one in (live, replay) if one])
        taken = [source.pop(0) for _ in range(dice.randint(1, len(source)))]
        table.apply(taken)
    for key, one in table.rows.items():
        assert one[MAPPING_VERSION] == 2, key
        newest = _newest(kind, [row for row in again if row[0] == key])
        assert _content(one, kind) == _content(newest, kind)


def _mapped_by(one: Row, version: int) -> Row:
    found = list(one)
    found[MAPPING_VERSION] = version
    return tuple(found)


@settings(max_examples=300, deadline=None)
@given(seed=seeds, kind=kinds)
def test_two_rows_never_both_win(seed: int, kind: RevisionKind) -> None:
    dice = Random(seed)
    one, other = (_any_row(dice, kind) for _ in range(2))
    assert not (beats(one, other, kind) and beats(other, one, kind))
    if observed_order(one) != observed_order(other):
        assert beats(one, other, kind) or beats(other, one, kind)
    assert not wins(one, one, kind)


def _any_row(dice: Random, kind: RevisionKind) -> Row:
    offset = dice.randint(3, 9)
    return row(
        kind, "a", dice.randint(1, 2), revision=dice.choice([None, 1, 2, 3]),
        epoch=dice.randint(0, 1), generation=dice.randint(0, 1), offset=offset,
        index=dice.randint(0, 1), version=dice.randint(1, 2), deleted=dice.random() < 0.3,
        began=dice.choice([None, offset - 1, offset - 3]),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(seed=seeds, kind=kinds)
def test_a_row_of_another_partition_id_stays(seed: int, kind: RevisionKind) -> None:
    """The first owner keeps the key; everything of others is told apart, nothing is lost silently."""
    dice = Random(seed)
    rows = [
        (*one[:PARTITION_ID], dice.randint(1, 3), *one[PARTITION_ID + 1 :])
        for one in _observations(dice, kind)
    ]
    first: dict[str, int] = {}
    table = Table(_MAPPINGS[kind])
    for batch in _in_batches(dice, rows):
        written = table.apply(batch)
        for one in batch:
            first.setdefault(one[0], one[PARTITION_ID])
        strangers = [one for one in batch if one[PARTITION_ID] != first[one[0]]]
        told = {(one[0], one[PARTITION_ID]) for one in written.foreign}
        assert told == {(one[0], one[PARTITION_ID]) for one in strangers}
    assert {key: one[PARTITION_ID] for key, one in table.rows.items()} == first


@pytest.mark.parametrize("kind", KINDS)
def test_the_fold_sorts_as_postgres_does(kind: RevisionKind) -> None:
    keys = ["b", "a", "Z", "é", "z", "ab", "", "\U0001f600", "\ufffd"]
    rows = [row(kind, key, 1, revision=1, offset=at) for at, key in enumerate(keys)]
    table = Table(_MAPPINGS[kind])
    written = table.apply(rows)
    assert [one[0] for one in written.inserted] == sorted(keys, key=lambda key: key.encode())

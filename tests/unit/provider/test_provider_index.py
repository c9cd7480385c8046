"""The sorted index against a plain sorted list, with enough facts to split blocks and empty them."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right

import pytest

from ops.demo.provider.facts import Fact, Kind, by_time
from ops.demo.provider.index import SortedFacts


def _fact(stamp_us: int, id_: str) -> Fact:
    return Fact(id_, 1, stamp_us, 1, 0, 0, Kind.GENERATED)


@pytest.mark.parametrize("seed", range(3))
def test_it_behaves_like_a_sorted_list(seed: int) -> None:
    rng = random.Random(seed)
    index = SortedFacts[tuple[int, str]](by_time)
    plain: list[Fact] = []
    first = [_fact(rng.randrange(500), f"seeded-{n}") for n in range(1_500)]
    index.load(first)
    plain = sorted(first, key=by_time)
    for step in range(6_000):
        # Grows, then shrinks to nothing, so that blocks split and go.
        if step < 4_000 and rng.random() < 0.8:
            fact = _fact(rng.randrange(500), f"{step}")
            index.add(fact)
            plain.insert(bisect_left(plain, by_time(fact), key=by_time), fact)
        elif plain:
            fact = plain.pop(rng.randrange(len(plain)))
            index.remove(fact)
        if step % 97 == 0:
            _same(index, plain, rng)
    for fact in list(plain):
        index.remove(fact)
    assert len(index) == 0
    assert index.slice(0, 10) == []
    assert index.rank((0, "")) == 0


def _same(index: SortedFacts[tuple[int, str]], plain: list[Fact], rng: random.Random) -> None:
    assert len(index) == len(plain)
    assert index.slice(0, len(plain)) == plain
    start = rng.randrange(len(plain) + 2)
    assert index.slice(start, start + 700) == plain[start : start + 700]
    key = (
        by_time(rng.choice(plain)) if plain and rng.random() < 0.5 else (rng.randrange(-1, 502), "")
    )
    assert index.rank(key) == bisect_left(plain, key, key=by_time)
    assert index.rank_after(key) == bisect_right(plain, key, key=by_time)


def test_what_is_not_there_cannot_be_removed() -> None:
    index = SortedFacts[tuple[int, str]](by_time)
    with pytest.raises(KeyError):
        index.remove(_fact(1, "a"))
    index.add(_fact(1, "a"))
    with pytest.raises(KeyError):
        index.remove(_fact(1, "a"))

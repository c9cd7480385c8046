"""Facts in the order of a key, in blocks, so that ranks, slices and removals stay cheap at a million.

Keys are unique within one index. What a fact's key is never changes while it is in here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from typing import Generic, TypeVar

from .facts import Fact

_LOAD = 1_000
K = TypeVar("K", str, tuple[int, str])


class SortedFacts(Generic[K]):
    """A sorted list of facts that knows the rank of every key."""

    def __init__(self, key: Callable[[Fact], K]) -> None:
        self._key: Callable[[Fact], K] = key
        self._blocks: list[list[Fact]] = []
        self._highest: list[K] = []
        # Rank of each block's first fact; None after a change, computed when next asked for.
        self._starts: list[int] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def load(self, facts: Iterable[Fact]) -> None:
        """Adds many facts at once."""
        self._rebuild(sorted(chain(*self._blocks, facts), key=self._key))

    def clear(self) -> None:
        self._rebuild([])

    def _rebuild(self, ordered: list[Fact]) -> None:
        self._blocks = [ordered[at : at + _LOAD] for at in range(0, len(ordered), _LOAD)]
        self._highest = [self._key(block[-1]) for block in self._blocks]
        self._starts, self._count = None, len(ordered)

    def add(self, fact: Fact) -> None:
        key = self._key(fact)
        self._count += 1
        self._starts = None
        if not self._blocks:
            self._blocks, self._highest = [[fact]], [key]
            return
        at = min(bisect_left(self._highest, key), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, fact, key=self._key)
        self._highest[at] = max(self._highest[at], key)
        if len(block) > 2 * _LOAD:
            self._blocks[at : at + 1] = [block[:_LOAD], block[_LOAD:]]
            self._highest.insert(at, self._key(block[_LOAD - 1]))

    def remove(self, fact: Fact) -> None:
        """Raises KeyError when exactly this fact is not here."""
        key = self._key(fact)
        at = bisect_left(self._highest, key)
        block = self._blocks[at] if at < len(self._blocks) else []
        place = bisect_left(block, key, key=self._key)
        if place == len(block) or block[place] is not fact:
            raise KeyError(key)
        del block[place]
        self._count -= 1
        self._starts = None
        if not block:
            del self._blocks[at], self._highest[at]
        elif place == len(block):
            self._highest[at] = self._key(block[-1])

    def rank(self, key: K) -> int:
        """How many facts have a lower key."""
        at = bisect_left(self._highest, key)
        if at == len(self._blocks):
            return self._count
        return self._ranks()[at] + bisect_left(self._blocks[at], key, key=self._key)

    def rank_after(self, key: K) -> int:
        """How many facts have this key or a lower one."""
        at = bisect_right(self._highest, key)
        if at == len(self._blocks):
            return self._count
        return self._ranks()[at] + bisect_right(self._blocks[at], key, key=self._key)

    def slice(self, start: int, stop: int) -> list[Fact]:
        """The facts of ranks `start` to `stop` (exclusive); shorter where the index ends."""
        taken: list[Fact] = []
        if start >= min(stop, self._count):
            return taken
        ranks = self._ranks()
        at = bisect_right(ranks, start) - 1
        while at < len(self._blocks) and ranks[at] < stop:
            offset = ranks[at]
            taken += self._blocks[at][max(0, start - offset) : stop - offset]
            at += 1
        return taken

    def _ranks(self) -> list[int]:
        if self._starts is None:
            lengths = [len(block) for block in self._blocks]
            self._starts = list(accumulate(lengths, initial=0))[:-1]
        return self._starts

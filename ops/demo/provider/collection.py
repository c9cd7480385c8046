"""One collection of one tenant: the ledger of all its facts, and the orders in which they can be read.

Every write is a new fact at the end of the ledger; nothing is ever changed in place.
The primary store (feed, full listings) knows a fact at once, the index by time when it becomes visible.
"""

from __future__ import annotations

import heapq
import random
import uuid

from .clock import Clock
from .content import Content
from .facts import Fact, Kind, by_id, by_time
from .index import SortedFacts
from .settings import Settings


class Absent(KeyError):
    """The record is not there (any more)."""


class Budget:
    """How many more bytes of rendered bodies may be kept, over all collections."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes


class Collection:
    """See the module. `name` is accounts or events; times are microseconds of the provider's clock."""

    def __init__(
        self,
        tenant: str,
        name: str,
        content: Content,
        settings: Settings,
        clock: Clock,
        budget: Budget,
        seed: int,
    ) -> None:
        self.tenant, self.name = tenant, name
        self._content, self._settings, self._clock, self._budget = content, settings, clock, budget
        self._rng = random.Random(f"{seed}/{tenant}/{name}/instance")
        self._numbers = 0
        # What came before each re-creation: (instance, its ledger).
        self.past: list[tuple[str, list[Fact]]] = []
        self.live = SortedFacts[str](by_id)
        self.by_time = SortedFacts[tuple[int, str]](by_time)
        self._begin()

    def _begin(self) -> None:
        self.instance = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        self.facts: list[Fact] = []
        # The latest fact of every id, tombstones too.
        self.latest: dict[str, Fact] = {}
        self.live.clear()
        self.by_time.clear()
        # Facts not yet in the index, by when they come in; and for their ids what the index holds now.
        self._waiting: list[tuple[int, int, Fact]] = []
        self._held: dict[str, tuple[int, Fact | None]] = {}

    def new_id(self) -> str:
        """An id that was never used in here."""
        while True:
            self._numbers += 1
            fresh = self._content.new_id(self.name, self._numbers)
            if fresh not in self.latest:
                return fresh

    def get(self, id_: str) -> Fact:
        """The live state; raises Absent."""
        fact = self.latest.get(id_)
        if fact is None or fact.deleted:
            raise Absent(id_)
        return fact

    def put(
        self,
        id_: str,
        *,
        stamp_us: int | None = None,
        version: int | None = None,
        body: bytes | None = None,
        kind: Kind = Kind.GENERATED,
        lag_us: int | None = None,
    ) -> Fact:
        """Inserts or updates. Not given: stamp is now, version one higher, body invented, lag as set."""
        now_us = self._clock.now_us()
        before = self.latest.get(id_)
        fact = Fact(
            id=id_,
            version=version if version is not None else (before.version + 1 if before else 1),
            stamp_us=self._settings.cut(now_us) if stamp_us is None else stamp_us,
            seq=len(self.facts) + 1,
            committed_us=now_us,
            visible_us=now_us + (self._lag_us() if lag_us is None else lag_us),
            kind=kind,
            body=body,
        )
        self._commit(fact, before)
        return fact

    def delete(self, id_: str) -> Fact:
        """A hard delete: the feed gives a tombstone, listings nothing. Raises Absent."""
        self.get(id_)
        return self.put(id_, kind=Kind.TOMBSTONE)

    def _lag_us(self) -> int:
        jitter_ms = self._settings.visibility_jitter_ms
        return 1_000 * (
            self._settings.visibility_lag_ms
            + (self._rng.randrange(jitter_ms + 1) if jitter_ms else 0)
        )

    def _commit(self, fact: Fact, before: Fact | None) -> None:
        self.facts.append(fact)
        self.latest[fact.id] = fact
        if before is not None:
            self._forget_body(before)
            if not before.deleted:
                self.live.remove(before)
        if not fact.deleted:
            self.live.add(fact)
        waiting, indexed = self._held.get(fact.id, (0, before))
        if fact.visible_us > fact.committed_us or waiting:
            self._held[fact.id] = (waiting + 1, indexed)
            heapq.heappush(self._waiting, (fact.visible_us, fact.seq, fact))
        else:
            self._index(fact, before)

    def _index(self, fact: Fact, before: Fact | None) -> None:
        if before is not None and not before.deleted:
            self.by_time.remove(before)
        if not fact.deleted:
            self.by_time.add(fact)

    def refresh(self) -> None:
        """Lets everything into the index by time that is visible by now."""
        now_us = self._clock.now_us()
        while self._waiting and self._waiting[0][0] <= now_us:
            fact = heapq.heappop(self._waiting)[2]
            waiting, indexed = self._held.pop(fact.id)
            # A later state may have become visible before an earlier one: it stays.
            if indexed is None or indexed.seq < fact.seq:
                self._index(fact, indexed)
                indexed = fact
            if waiting > 1:
                self._held[fact.id] = (waiting - 1, indexed)

    def seed(self, count: int, from_us: int, to_us: int) -> None:
        """Inserts `count` records at once, visible at once, their stamps spread evenly over [from, to)."""
        now_us = self._clock.now_us()
        fresh = []
        for number in range(count):
            stamp_us = self._settings.cut(from_us + (to_us - from_us) * number // count)
            seq = len(self.facts) + number + 1
            fresh.append(Fact(self.new_id(), 1, stamp_us, seq, now_us, now_us, Kind.GENERATED))
        self.facts += fresh
        self.latest.update((fact.id, fact) for fact in fresh)
        self.live.load(fresh)
        self.by_time.load(fresh)

    def render(self) -> None:
        """Renders all live records now, as far as their bodies may be kept, so that no first reader waits for it."""
        for fact in self.live.slice(0, len(self.live)):
            self.body(fact)

    def recreate(self, keep: bool) -> None:
        """A new instance: sequence and versions begin again; with `keep` the live records are written anew."""
        kept = self.live.slice(0, len(self.live)) if keep else []
        self.past.append((self.instance, self.facts))
        for fact in self.facts:
            self._forget_body(fact)
        self._begin()
        for fact in kept:
            given = fact.body if fact.kind in (Kind.GIVEN, Kind.RAW) else None
            self.put(fact.id, body=given, kind=fact.kind)

    def body(self, fact: Fact) -> bytes:
        """The record as it is shown, or the tombstone."""
        if fact.body is not None:
            return fact.body
        if fact.deleted:
            return b'{"id":"%b","deleted":true,"version":%d}' % (fact.id.encode(), fact.version)
        body = self.invent(fact.id, fact.version, fact.stamp_us)
        if self._budget.left_bytes > len(body) and self.latest.get(fact.id) is fact:
            self._budget.left_bytes -= len(body)
            fact.body = body
        return body

    def invent(self, id_: str, version: int, stamp_us: int) -> bytes:
        """The body that a state of this id, version and stamp has."""
        return self._content.render(self.name, id_, version, stamp_us, self._settings.shown_us)

    def bodies(self, facts: list[Fact]) -> bytes:
        """The records of a page, joined by commas."""
        return b",".join([fact.body or self.body(fact) for fact in facts])

    def _forget_body(self, fact: Fact) -> None:
        if fact.kind is Kind.GENERATED and fact.body is not None:
            self._budget.left_bytes += len(fact.body)
            fact.body = None

    def forget_bodies(self) -> None:
        """Renders everything anew from now on: what is shown of a stamp has changed."""
        for fact in self.facts:
            self._forget_body(fact)

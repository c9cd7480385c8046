"""Tries exceptions again: due ones, by the owner of their partition, through the same guard.

A record that becomes a row, or is beaten by one, is resolved; one that fails again waits longer;
after the last attempt it is quarantined. The verbs of operators only say that something is due.
Mapping may take its time, so it happens between transactions, and what is due is looked at again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial

from apply.batch import Batch
from apply.changes import Change
from apply.exception_states import Event, sources
from apply.exceptions import Said, arrays, move
from apply.faults import TIMED_OUT, SinkFault
from apply.mapping.types import CompiledMapping
from apply.outcomes import BY_HAND, Outcome, Reason, RecordFault
from apply.queries import load
from apply.same_record import Where
from apply.sink import Connection
from apply.store import Store
from apply.tries import Due, Result, Tried, part, result, settle, tried

_SQL = load("retry")
_EXCEPTIONS = load("exceptions")
_AT_ONCE = 200
_ALONE_AT_ONCE = 50
_MAPPING_S = 5.0
"""So long one turn maps what is due, or one record: batches wait meanwhile."""
_ENDED = "the process ended when this record was tried again"
REMAPPED_AT_ONCE = 500
_KILLED = Reason.KILLED_WORKER
_ALONE = (_KILLED, Reason.TIMED_OUT)


@dataclass(frozen=True, slots=True)
class _Begun:
    """An exception that is tried by itself, and what was said of it before."""

    due: Due
    detail: str


class Retries:
    """The chore of trying again. Used by the writer's thread."""

    def __init__(self, mappings: Sequence[CompiledMapping]) -> None:
        self._by_version = {one.version_id: one for one in mappings}
        self._by_name = {one.spec.name: one for one in mappings}
        self._ours = {
            "names": [one.spec.name for one in mappings],
            "versions": [one.spec.version for one in mappings],
        }
        self._proven: dict[int, int] = {}
        self._begun: _Begun | None = None
        self._slow = self._stalled = False

    def do(self, store: Store, now: datetime) -> int:
        """What is due now. Returns how many were tried. Raises SinkFault.

        All at once, but alone: what has ended a process, what timed out, and, where the owner
        before has ended in the middle of something, each of those that it may have had in hand.
        """
        if self._begun is not None:
            begun = self._begun  # the sink failed while it was tried, so it has ended no process
            store.beside(partial(self._take_back, begun))
            self._begun = None
        count = self._killers(store, now) + self._suspects(store, now) + self._slow_ones(store, now)
        tries = self._mapped(self._find(store, now, but=_ALONE))
        try:
            return count + store.beside(partial(self._land, store, tries, now))
        except SinkFault as fault:
            self._slow = fault.reason in TIMED_OUT
            raise

    def _find(
        self, store: Store, now: datetime, *, only: Collection[Reason] = (),
        but: Collection[Reason] = (), most: int = _AT_ONCE,
    ) -> list[Due]:  # fmt: skip
        return store.beside(lambda c, held: (self._due(c, held, now, only, but, most), []))

    def _due(
        self, connection: Connection, partitions: Collection[int], now: datetime,
        only: Collection[Reason], but: Collection[Reason], most: int,
    ) -> list[Due]:  # fmt: skip
        """What is due there, of these reasons `only`, or of all `but` these."""
        asked = {
            **self._ours, "now": now, "partitions": list(partitions), "limit": most,
            "reasons": [one.value for one in only or but], "only": bool(only),
        }  # fmt: skip
        return [Due(*row) for row in connection.execute(_SQL["due"], asked)]

    def _mapped(self, due: Sequence[Due]) -> list[Tried]:
        """As pages; at least one, and no more than there is time for."""
        found: list[Tried] = []
        until = time.monotonic() + _MAPPING_S
        for one in due:
            if found and time.monotonic() > until:
                break
            found.append(tried(one, self._by_version, self._by_name))
        return found

    def _killers(self, store: Store, now: datetime) -> int:
        """One record that has ended a process, back in quarantine before it is tried: should it do
        so again, nobody tries it again after that."""
        due = store.beside(lambda connection, held: (self._set_aside(connection, held, now), []))
        tries = self._mapped([one for one in due if one.mapping is not None])
        if tries:
            store.beside(partial(self._try_killers, store, tries, now))
        return len(due)

    def _set_aside(self, connection: Connection, held: list[int], now: datetime) -> list[Due]:
        due = self._due(connection, held, now, (_KILLED,), (), 1)
        faults = [RecordFault(one.index, _KILLED, _ENDED) for one in due]
        results = [
            Result(one, Outcome.QUARANTINED, fault, None)
            for one, fault in zip(due, faults, strict=True)
        ]
        settle(connection, results, now)
        return due

    def _try_killers(
        self, store: Store, tries: Sequence[Tried], now: datetime, connection: Connection,
        held: list[int],
    ) -> tuple[int, list[Change]]:  # fmt: skip
        places = [one.due.where for one in tries if one.due.partition in held]
        move(connection, Event.RETRY, places, Said(now, due_at=now))
        return self._land(store, tries, now, connection, held)

    def _suspects(self, store: Store, now: datetime) -> int:
        """One by one, each a killer from the moment that it is tried: until nothing is due where the
        owner before never gave the partition back. Whatever ended it may have been one of these."""
        claims = {number: held.claim for number, held in store.positions.items() if held.unclean}
        doubtful = {n for n, claim in claims.items() if self._proven.get(n) != claim}
        for count in range(_ALONE_AT_ONCE if doubtful else 0):
            begun = store.beside(lambda c, held: (self._begin(c, doubtful & {*held}, now), []))
            if begun is None:
                self._proven = claims
                return count
            self._begun = begun
            store.beside(partial(self._try_begun, store, self._mapped([begun.due]), begun, now))
            self._begun = None
        return _ALONE_AT_ONCE if doubtful else 0

    def _begin(
        self, connection: Connection, partitions: Collection[int], now: datetime
    ) -> _Begun | None:
        due = self._due(connection, partitions, now, (), (_KILLED,), 1)
        if not due:
            return None
        said = {"reason": _KILLED.value, "detail": _ENDED, "before": due[0].reason}
        row = connection.execute(_SQL["begin"], {**asdict(due[0].where), **said}).fetchone()
        assert row is not None
        return _Begun(due[0], row[0])

    def _take_back(
        self, begun: _Begun, connection: Connection, _: list[int]
    ) -> tuple[int, list[Change]]:
        said = {"reason": begun.due.reason, "detail": begun.detail, "before": _KILLED.value}
        connection.execute(_SQL["begin"], {**asdict(begun.due.where), **said})
        return 1, []

    def _try_begun(
        self, store: Store, tries: Sequence[Tried], begun: _Begun, now: datetime,
        connection: Connection, held: list[int],
    ) -> tuple[int, list[Change]]:  # fmt: skip
        self._take_back(begun, connection, held)
        slow = self._slow or begun.due.reason == Reason.TIMED_OUT
        return self._land(store, tries, now, connection, held, blame_timeouts=slow)

    def _slow_ones(self, store: Store, now: datetime) -> int:
        """One by one until one of them times out again: it waits longer then, and holds up nobody."""
        only: tuple[Reason, ...] = () if self._slow else (Reason.TIMED_OUT,)
        for count in range(_ALONE_AT_ONCE):
            tries = self._mapped(self._find(store, now, only=only, but=(_KILLED,), most=1))
            if not tries:
                self._slow = False
                return count
            store.beside(partial(self._land, store, tries, now, blame_timeouts=True))
            if self._stalled:
                return count + 1
        return _ALONE_AT_ONCE

    def _land(
        self, store: Store, tries: Sequence[Tried], now: datetime, connection: Connection,
        held: list[int], *, blame_timeouts: bool = False,
    ) -> tuple[int, list[Change]]:  # fmt: skip
        """Those that are still ours, and that nobody has decided about since they were found."""
        self._stalled = False
        if not tries:
            return 0, []
        places = arrays([one.due.where for one in tries if one.due.partition in held])
        rows = connection.execute(_SQL["still_due"], {**places, "now": now})
        due = {Where(*row) for row in rows}
        tries = [one for one in tries if one.due.where in due]
        pages = [one.page for one in tries if one.page is not None]
        changes = store.land(connection, Batch([part(pages)]), blame_timeouts=blame_timeouts)
        results = [result(one) for one in tries]
        self._stalled = any(one.timed_out for one in results)
        still = settle(connection, results, now)
        if store.copies is not None:
            store.copies.write(connection, still, now)
        return len(tries), changes

    def remap(self, store: Store, now: datetime) -> int:
        """Let the versions in use try what older ones refused. Returns how many are due now.

        In steps of `REMAPPED_AT_ONCE`; what was tried by a version is never picked for it again.
        """
        return store.beside(lambda connection, held: (self._remap(connection, held, now), []))

    def _remap(self, connection: Connection, held: list[int], now: datetime) -> int:
        asked = {
            **self._ours, "ids": list(self._by_version), "partitions": held,
            "sources": list(sources(Event.REMAP)), "by_hand": [one.value for one in BY_HAND],
            "limit": REMAPPED_AT_ONCE,
        }  # fmt: skip
        by_version: dict[int, list[Where]] = defaultdict(list)
        for *where, version in connection.execute(_EXCEPTIONS["remappable"], asked):
            by_version[version].append(Where(*where))
        for version, places in by_version.items():
            note = f"version {self._by_version[version].spec.version} is in use"
            said = Said(now, "apply", note, due_at=now, tried_version=version)
            move(connection, Event.REMAP, places, said)
        return sum(len(places) for places in by_version.values())

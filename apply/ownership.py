"""Which partitions this worker reads: wanted by the group, claimed in Postgres, checked in the log.

The group only says what to try for. A partition is read once its claim is ours and the log agrees
with its position; it is left at once when somebody else has claimed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog
from psycopg.types.json import Jsonb

from apply import metrics
from apply.careful import Careful
from apply.claim import Position, halt
from apply.consumer import Opening, Reader
from apply.inbox import (
    Assigned,
    CheckFailed,
    Event,
    LogChecked,
    LogFault,
    ReaderFailed,
    ReadFault,
    Revoked,
    Stuck,
    Suspects,
)
from apply.listings import REMEMBERED, KnownSnapshot, Listings
from apply.opening import Checks
from apply.queries import load
from apply.store import Store

_log = structlog.get_logger(__name__)
_POSITION = load("position")
_SNAPSHOTS = load("snapshots")
_HALTED_S = 2.0
_CHECK_AGAIN_S = 2.0
_LOOK_AGAIN_S = 10.0
"""How long a topic made anew may be read before it is noticed; a new generation begins at its start."""
_READ_FAULTS_MAX = 3
_DRAIN_S = 5.0
UNKNOWN_SCHEMA = "unknown_schema"


class Ownership:
    """Used by the writer's thread only."""

    def __init__(
        self,
        store: Store,
        reader: Reader,
        checks: Checks,
        careful: Careful,
        pipeline: str,
        patience_s: float,
    ) -> None:
        """`patience_s`: how long after losing a claim it is tried for again, if the group insists."""
        self._store, self._reader, self._checks = store, reader, checks
        self._careful = careful
        self._pipeline, self._patience_s = pipeline, patience_s
        self._wanted: set[int] = set()
        self._claim_at: dict[int, float] = {}
        self._check_at: dict[int, float] = {}
        self._look_at = 0.0
        self._sessions: dict[int, int] = {}
        self._session = 0
        self._halted: set[int] = set()
        self._halted_at = 0.0
        self._read_faults: dict[int, int] = {}
        self._stuck_since: dict[int, tuple[float, dict[str, str]]] = {}
        self._now = 0.0

    def heard(self, event: Event) -> None:
        """Take one event in. What needs the sink is only noted: `due` does it, and again if it fails."""
        match event:
            case Assigned():
                self._wanted |= event.partitions
                self._claim_at.update(dict.fromkeys(event.partitions, 0.0))
            case Revoked():
                self._give_back(event.partitions)
            case LogChecked():
                self._checked(event)
            case LogFault():
                self._halt(event)
            case CheckFailed():
                self._check_later(event.position.partition, _CHECK_AGAIN_S)
            case ReadFault():
                self._read_fault(event)
            case Stuck():
                self._stuck(event)
            case Suspects():
                if self.reads(event.partition, event.session):
                    self._careful.give(event)
            case ReaderFailed():
                if event.lacks is None:  # else the writer says it, once
                    _log.error("reading begins again", detail=event.detail)
                metrics.READ_FAILURES.inc()
                for partition in list(self._sessions):
                    self.reopen(partition)

    def reads(self, partition: int, session: int) -> bool:
        """Whether a part of this session still counts."""
        return self._sessions.get(partition) == session

    def due(self, now: float) -> None:
        """Claims and checks that are due, `now` on a monotonic clock. Raises SinkFault."""
        self._now = now
        self._look(now)
        for partition, at in list(self._claim_at.items()):
            if at <= now:
                self._take_over(partition)
                del self._claim_at[partition]
        for partition, at in list(self._check_at.items()):
            if at <= now:
                self._check(partition)
                del self._check_at[partition]
        if self._halted and now >= self._halted_at:
            self._halted_at = now + _HALTED_S
            self._look_at_halted()
        self._halt_stuck(now)
        metrics.OWNED.set(len(self._sessions))

    def step_down(self, lost: Iterable[int]) -> None:
        """Somebody else has claimed these: read and write them no more."""
        for partition in lost:
            _log.warning("stepped down: another worker claimed it", partition=partition)
            metrics.STEPPED_DOWN.inc()
            self._leave_one(partition)
            self._store.forget([partition])
            if partition in self._wanted:
                self._claim_at[partition] = self._now + self._patience_s

    def reopen(self, partition: int) -> None:
        """Read again from where Postgres says; parts of the earlier session no longer count."""
        self._sessions.pop(partition, None)
        self._careful.drop(partition)
        self._check_later(partition, 0.0)

    def stopped(self, partitions: Iterable[int]) -> None:
        """A mapping takes no more faults there: read no further until they are decided about."""
        for partition in partitions:
            held = self._store.positions.get(partition)
            if held is not None:
                self._show_halted(held)

    def leave(self) -> None:
        """Give everything back. Raises SinkFault."""
        self._give_back(frozenset(self._store.positions))

    def _give_back(self, partitions: frozenset[int]) -> None:
        for partition in partitions:
            self._wanted.discard(partition)
            self._leave_one(partition)
        self._store.release(partitions)

    def _leave_one(self, partition: int) -> None:
        self._reader.close([partition])
        self._careful.forget(partition)
        self._sessions.pop(partition, None)
        self._claim_at.pop(partition, None)
        self._check_at.pop(partition, None)
        self._stuck_since.pop(partition, None)
        self._halted.discard(partition)
        metrics.HALTED.labels(str(partition)).set(0)

    def _take_over(self, partition: int) -> None:
        position = self._store.claim(partition)
        self._careful.claimed(position)
        _log.info(
            "took over", partition=partition, next_offset=position.next_offset, claim=position.claim
        )
        if position.halted is not None and position.halted.get("cause") == UNKNOWN_SCHEMA:
            # this version may be the one that can read it
            self._set_halted(position, None)
        elif position.halted is not None:
            self._show_halted(position)
            return
        self._check(partition)

    def _check(self, partition: int) -> None:
        position = self._store.positions.get(partition)
        if position is not None:
            self._checks.submit(position, self._known_topic_id(partition))

    def _look(self, now: float) -> None:
        """A topic made anew under a reader is read on where the old one ended, without an error."""
        if now < self._look_at or not self._sessions:
            return
        self._look_at = now + _LOOK_AGAIN_S
        known: dict[int, str] = {}
        for number, _, topic_id, _ in self._store.connection.execute(_POSITION["generations"]):
            known.setdefault(number, str(topic_id))
        if read := frozenset(known[number] for number in self._sessions if number in known):
            self._checks.look(read)

    def _known_topic_id(self, partition: int) -> str | None:
        for number, _, topic_id, _ in self._store.connection.execute(_POSITION["generations"]):
            if number == partition:
                return str(topic_id)
        return None

    def _check_later(self, partition: int, wait_s: float) -> None:
        self._check_at[partition] = self._now + wait_s

    def _checked(self, event: LogChecked) -> None:
        held = self._store.positions.get(event.partition)
        if held is None:
            return
        if held.next_offset != event.next_offset or held.generation != event.generation:
            self._check_later(event.partition, 0.0)
            return
        self._store.connection.execute(
            _POSITION["first_generation"],
            {"partition": event.partition, "topic_id": event.topic_id},
        )
        self._open(held, event.end)

    def _open(self, held: Position, log_end: int) -> None:
        asked = {
            "partition": held.partition, "generation": held.generation, "most": REMEMBERED,
            "beside": None,
        }  # fmt: skip
        known = [
            KnownSnapshot(*row)
            for row in self._store.connection.execute(_SNAPSHOTS["known"], asked)
        ]
        self._session += 1
        self._sessions[held.partition] = self._session
        self._reader.open(
            Opening(
                partition=held.partition,
                session=self._session,
                generation=held.generation,
                next_offset=held.next_offset,
                leader_epoch=held.leader_epoch,
                listings=Listings.of(known),
                suspects=self._careful.wanted(held, log_end),
            )
        )

    def _halt(self, event: LogFault) -> None:
        held = self._store.positions.get(event.partition)
        if held is None:
            return
        halted = halt(
            self._store.connection, self._pipeline, held,
            cause=event.cause, detail=event.detail,
            first_lost=event.first_lost, first_kept=event.first_kept, now=datetime.now(UTC),
        )  # fmt: skip
        if not halted:
            self.step_down([event.partition])
            return
        self._show_halted(held)

    def _show_halted(self, held: Position) -> None:
        self._leave_one(held.partition)
        self._halted.add(held.partition)
        metrics.HALTED.labels(str(held.partition)).set(1)
        why = held.halted or {"unblocked_by": f"gapless accept-gap --partition {held.partition}"}
        _log.error(
            "halted until an operator decides",
            partition=held.partition, cause=why.get("cause"), next=why.get("unblocked_by"),
        )  # fmt: skip

    def _look_at_halted(self) -> None:
        asked = {"pipeline": self._pipeline, "partitions": sorted(self._halted)}
        for (partition,) in self._store.connection.execute(_POSITION["halted"], asked):
            self._halted.discard(partition)
            metrics.HALTED.labels(str(partition)).set(0)
            self._claim_at[partition] = 0.0

    def _read_fault(self, event: ReadFault) -> None:
        if not self.reads(event.partition, event.session):
            return
        count = self._read_faults.get(event.partition, 0) + 1
        self._read_faults[event.partition] = count
        _log.warning("the log refused an offset", partition=event.partition, detail=event.detail)
        self._sessions.pop(event.partition, None)
        held = self._store.positions.get(event.partition)
        if held is not None and count >= _READ_FAULTS_MAX:
            # checks found nothing wrong, but the broker keeps saying that the epochs diverge
            self._read_faults[event.partition] = 0
            at = held.last_offset if held.last_offset is not None else held.next_offset
            self._halt(
                LogFault(
                    event.partition, held.claim, "truncated", event.detail, at, held.next_offset
                )
            )
        else:
            self._check_later(event.partition, 0.0 if count == 1 else _CHECK_AGAIN_S)

    def _stuck(self, event: Stuck) -> None:
        held = self._store.positions.get(event.partition)
        if held is None or not self.reads(event.partition, event.session):
            return
        halted = {
            "cause": UNKNOWN_SCHEMA,
            "detail": f"offset {event.offset}: {event.detail}",
            "since": datetime.now(UTC).isoformat(),
            "unblocked_by": "upgrade gapless apply and start it again",
        }
        _log.error("a newer version wrote this", partition=event.partition, **halted)
        # the session stays valid for a while, so that what was read before it is applied first
        self._stuck_since[event.partition] = (self._now + _DRAIN_S, halted)

    def _halt_stuck(self, now: float) -> None:
        for partition, (at, halted) in list(self._stuck_since.items()):
            held = self._store.positions.get(partition)
            if at > now:
                continue
            if held is not None:
                self._set_halted(held, halted)
                self._sessions.pop(partition, None)
                metrics.HALTED.labels(str(partition)).set(1)
            del self._stuck_since[partition]

    def _set_halted(self, held: Position, halted: dict[str, str] | None) -> None:
        self._store.connection.execute(
            _POSITION["halt"],
            {
                "pipeline": self._pipeline,
                "partition": held.partition,
                "claim": held.claim,
                "halted": None if halted is None else Jsonb(halted),
            },
        )

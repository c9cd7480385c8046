"""Applies a partition whose batches have ended the process: little by little, each step noted first.

For what may have been in hand then, and no further. Used by the writer's thread: here even reading a
value waits until its trial is durable, so that whoever takes over knows what to suspect. What is
tried next is decided in `trial`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from apply import trial as trials
from apply.batch import Batch, MarkWork, PageWork, Part, before_sweeps
from apply.blame import part_of
from apply.claim import Position
from apply.decode import Decoder
from apply.inbox import Event, Stuck, Suspects
from apply.store import Store
from apply.trial import Stage, Trial
from schemas.codec import UnknownSchema, UnreadableValue, decode
from schemas.log.reader import LogRecord
from schemas.records import Observation

_log = structlog.get_logger(__name__)
_UNCLEAN = 2
"""So often in a row a position was left behind where it stood: then its batch is suspected."""
_IN_FLIGHT = 4
"""Batches that one worker holds at most: at the writer, two waiting, one being read."""
_BATCH_BYTES = 9_000_000  # of a batch with the page that filled it
_TOGETHER, _TOGETHER_BYTES = 16, 100_000


@dataclass(slots=True)
class _Watch:
    """What is left of the stretch that may have been in hand: nothing from the offset `until` on.

    `alone_until`: up to this offset log records are tried one by one.
    """

    suspect: Trial | None
    alone_until: int = 0
    until: int | None = None
    records: int = 0
    bytes: int = 0
    largest: int = 0


@dataclass(slots=True)
class _Waiting:
    session: int
    opening: Suspects
    records: list[LogRecord] = field(default_factory=list)


class Careful:
    """The partitions of one worker that are applied carefully."""

    def __init__(
        self, store: Store, decoder: Decoder, batch_records: int, tell: Callable[[Event], None]
    ) -> None:
        """`decoder`: of this thread alone. `tell`: who has to hear of a value of a newer version."""
        self._store, self._decoder, self._tell = store, decoder, tell
        self._batch_records = batch_records
        self._watches: dict[int, _Watch] = {}
        self._waiting: dict[int, _Waiting] = {}

    def claimed(self, position: Position) -> None:
        """A partition was taken over: is what it stands before suspected?"""
        self.forget(position.partition)
        found = trials.read(position.trial, position.generation, position.next_offset)
        if found is None and position.unclean < _UNCLEAN:
            return
        if found is not None and position.unclean:
            found = trials.after_end(found)
        watch = self._watches[position.partition] = _Watch(found)
        if found is not None and found.count > 1:
            watch.alone_until = found.end

    def wanted(self, held: Position, log_end: int) -> bool:
        """Whether the partition is to be read as suspects. `log_end`: where the log ends now."""
        watch = self._watches.get(held.partition)
        if watch is None:
            return False
        if watch.until is None:
            watch.until = log_end  # nobody can have had in hand what was not there
            if held.next_offset < log_end:
                _log.warning(
                    "applied carefully: what is next may have ended the process",
                    partition=held.partition, offset=held.next_offset, times=held.unclean,
                )  # fmt: skip
        most = _IN_FLIGHT * (self._batch_records + watch.largest)
        if (
            held.next_offset >= watch.until
            or watch.records > most
            or watch.bytes > _IN_FLIGHT * _BATCH_BYTES
        ):
            _log.info("applied as usual", partition=held.partition)
            del self._watches[held.partition]
            return False
        return True

    def forget(self, partition: int) -> None:
        """It is no longer ours."""
        self.drop(partition)
        self._watches.pop(partition, None)

    def drop(self, partition: int) -> None:
        """It is read again: what came before does not count."""
        self._waiting.pop(partition, None)

    def give(self, found: Suspects) -> None:
        """Log records that nobody has looked into yet."""
        self._waiting[found.partition] = _Waiting(found.session, found, list(found.records))

    def done(self) -> list[int]:
        """Partitions whose log records are all durable: they can be read on. To ask without a
        batch in hand."""
        found = []
        for partition, waiting in list(self._waiting.items()):
            held = self._store.positions.get(partition)
            if held is not None:
                waiting.records = [r for r in waiting.records if r.offset >= held.next_offset]
            if held is None or not waiting.records:
                del self._waiting[partition]
                found.append(partition)
        return found

    @property
    def waits(self) -> bool:
        """Whether there is something to be applied."""
        return bool(self._waiting)

    def next(self) -> Batch | None:
        """What is to be applied next, all by itself; None: nothing waits.

        Raises SinkFault, then it is asked again, or Lost.
        """
        for partition, waiting in self._waiting.items():
            watch = self._watches.get(partition)
            if watch is not None:
                return self._batch(self._store.positions[partition], watch, waiting)
        return None

    def _batch(self, held: Position, watch: _Watch, waiting: _Waiting) -> Batch | None:
        group = waiting.records[:1]
        suspect = watch.suspect
        try:
            if suspect is not None and suspect.start == group[0].offset and suspect.count == 1:
                works = [self._investigated(held, watch, suspect, group[0], waiting)]
            else:
                group = self._group(watch, waiting)
                together = Trial(group[0].offset, group[-1].offset + 1, len(group))
                self._note(held, together)
                listings = waiting.opening.listings
                works = [self._decoder.decode(one, held.generation, listings) for one in group]
                most = before_sweeps(works)
                group, works = group[:most], works[:most]
        except UnknownSchema as error:
            # of the first one, or of all that would be read together: each comes alone then
            watch.alone_until = max(watch.alone_until, group[-1].offset + 1)
            if len(group) == 1:
                self.drop(held.partition)
                at = group[0].offset
                self._tell(Stuck(held.partition, waiting.session, at, str(error)))
            return None
        return _cut(held, watch, waiting.session, group, works)

    def _note(self, held: Position, trial: Trial) -> None:
        self._store.note_trial(held.partition, trial.stored(held.generation))

    def _group(self, watch: _Watch, waiting: _Waiting) -> list[LogRecord]:
        group, size = waiting.records[:1], len(waiting.records[0].value or b"")
        for one in waiting.records[1:_TOGETHER]:
            size += len(one.value or b"")
            if one.offset < watch.alone_until or group[0].offset < watch.alone_until:
                break
            if size > _TOGETHER_BYTES:
                break
            group.append(one)
        return group

    def _investigated(
        self, held: Position, watch: _Watch, at: Trial, record: LogRecord, waiting: _Waiting
    ) -> PageWork | MarkWork | None:
        """The work of a log record that ended the process, less what is to blame in it."""
        listings, generation = waiting.opening.listings, held.generation
        readable = at.stage in (Stage.RECORDS, Stage.REST) or at.first > 0
        if at.stage is Stage.VALUE:
            self._note(held, at)
            readable = True
        page = _page(record) if readable else None
        count = 0 if page is None else len(page.records)
        if at.stage is Stage.VALUE:
            at = watch.suspect = trials.read_value(at, count)
        elif at.stage is Stage.RECORDS and at.last <= at.first:
            at = watch.suspect = trials.passed(at, count)
        while at.stage is Stage.RECORDS and page is not None:
            self._note(held, at)
            part = part_of(page, at.first, at.last)
            work = self._decoder.page(record, generation, part, listings)
            self._store.rehearse(Batch([_part(held, waiting.session, [record], [work])]))
            at = watch.suspect = trials.passed(at, count)
        self._note(held, at)
        blamed = range(count) if at.stage is Stage.GIVEN_UP else at.poison
        if blamed or at.stage is Stage.GIVEN_UP:
            _log.error(
                "quarantined: it ends the process", partition=held.partition, offset=record.offset,
                records=len(blamed), of=count,
            )  # fmt: skip
        if page is not None and count:
            return self._decoder.page(record, generation, page, listings, blamed)
        if at.stage is Stage.GIVEN_UP:
            return self._decoder.killer(record, generation)
        return self._decoder.decode(record, generation, listings)


def _page(record: LogRecord) -> Observation | None:
    try:
        found = None if record.value is None else decode(record.value)
    except UnknownSchema:
        raise
    except UnreadableValue:
        return None
    return found if isinstance(found, Observation) else None


def _cut(
    held: Position,
    watch: _Watch,
    session: int,
    group: list[LogRecord],
    works: list[PageWork | MarkWork | None],
) -> Batch:
    part = _part(held, session, group, works)
    sizes = [len(page.observation.records) for page in part.pages]
    batch = Batch([part], sum(sizes), sum(len(one.value or b"") for one in group))
    watch.records += batch.records
    watch.bytes += batch.size
    watch.largest = max(watch.largest, *sizes, 0)
    return batch


def _part(
    held: Position,
    session: int,
    group: list[LogRecord],
    works: list[PageWork | MarkWork | None],
) -> Part:
    last = group[-1]
    return replace(
        Part(held.partition, session, held.generation, held.next_offset, last.offset + 1),
        first_ms=group[0].timestamp_ms,
        last_offset=last.offset,
        last_key=last.key,
        leader_epoch=last.leader_epoch,
        pages=[one for one in works if isinstance(one, PageWork)],
        marks=[one for one in works if isinstance(one, MarkWork)],
    )

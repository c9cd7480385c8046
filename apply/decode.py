"""From a record of the log to work: decoded, mapped by every mapping of its stream, never skipped.

A value that nobody can read is a quarantined record; one of a newer schema stops the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
import structlog

from apply.batch import UNMAPPED, MarkWork, PageWork, Work
from apply.blame import map_without
from apply.children import ChildForms
from apply.copy_form import RowForms
from apply.functions.process import FunctionUnavailable
from apply.listings import Listings
from apply.mapping.types import CompiledMapping, Mapped, Place
from apply.outcomes import Outcome, Reason, RecordFault
from apply.prefilter import Question
from schemas import keys
from schemas.codec import UnknownSchema, UnreadableValue, decode
from schemas.log.reader import LogRecord
from schemas.records import Mark, MissingRecord, Observation

_log = structlog.get_logger(__name__)
Mappings = Mapping[tuple[str, str], Sequence[CompiledMapping]]
"""The mappings of each (source, stream)."""
Resolve = Callable[[str, int], int]
"""The number of a partition id (text, partition of the log)."""
Beaten = Callable[[int], bool]
"""Whether most rows of a mapping version (its number) are expected to be older than what is stored."""
FOREIGN_PLAN = "foreign"


def never(_version_id: int) -> bool:
    """Nothing is expected to be older."""
    return False


class Decoder:
    """Decodes and maps the records of one pipeline. Used by one thread."""

    def __init__(
        self,
        mappings: Mappings,
        resolve: Resolve,
        *,
        unmapped: bool,
        only: str | None = None,
        beaten: Beaten = never,
    ) -> None:
        """`unmapped`: streams without a mapping get ledger rows too (the live pipeline). `only`: the
        one partition id whose pages count (a replay of one tenant). `beaten`: where so, rows are
        formed as the prefilter asks about them, not as they are stored."""
        self._mappings = mappings
        self._resolve = resolve
        self._unmapped = unmapped
        self._only = only
        self._beaten = beaten
        every = [compiled for of in mappings.values() for compiled in of]
        self._forms = {compiled: RowForms(compiled).form_all for compiled in every}
        self._questions = {compiled: Question(compiled).form_all for compiled in every}
        self._child_forms = {one: ChildForms(one).form_all for one in every if one.children}
        self._streams: dict[str, tuple[Sequence[CompiledMapping], str | None]] = {}

    def decode(
        self, record: LogRecord, generation: int, listings: Listings
    ) -> PageWork | MarkWork | None:
        """The work of one record; None for tombstones and ticks.

        Raises UnknownSchema for a value of a newer version: the partition has to wait.
        """
        if record.value is None:
            return None
        try:
            found = decode(record.value)
        except UnknownSchema:
            raise
        except UnreadableValue as error:
            return self._foreign(record, generation, str(error))
        if isinstance(found, Mark):
            listings.saw_mark(found, record.offset)
            if found.kind == "tick":
                return None
            number = self._resolve(found.partition_id, record.partition)
            return MarkWork(record.offset, generation, record.partition, number, found)
        if isinstance(found, Observation):
            return self.page(record, generation, found, listings)
        return self._foreign(record, generation, f"a {type(found).__name__} among observations")

    def page(
        self,
        record: LogRecord,
        generation: int,
        observation: Observation,
        listings: Listings,
        blamed: Collection[int] = (),
    ) -> PageWork | None:
        """The work of a page, or of a part of one; records at the positions `blamed` end the process,
        so nobody looks at them."""
        compiled, tenant = self._stream(observation.partition_id)
        if not compiled and not self._unmapped:
            return None
        number = self._resolve(observation.partition_id, record.partition)
        began = listings.began(observation)
        place = Place(number, generation, record.offset, tenant, began)
        works = [self._work(c, observation, place, blamed) for c in compiled]
        if not works:
            mapped = map_without(unmapped, observation, blamed) if blamed else unmapped(observation)
            works = [Work(UNMAPPED, None, mapped)]
        return PageWork(
            offset=record.offset,
            generation=generation,
            partition=record.partition,
            partition_id_no=number,
            observation=observation,
            works=works,
            present_in=listings.present_in(observation) if compiled else (),
        )

    def _work(
        self,
        compiled: CompiledMapping,
        observation: Observation,
        place: Place,
        blamed: Collection[int],
    ) -> Work:
        if blamed:
            mapped = map_without(lambda part: map_page(compiled, part, place), observation, blamed)
        else:
            mapped = map_page(compiled, observation, place)
        work = Work(compiled.version_id, compiled, mapped)
        if self._beaten(compiled.version_id):
            work.questions = self._questions[compiled](mapped.rows)
            return work
        work.forms = self._forms[compiled](mapped.rows)
        if mapped.children:
            work.child_forms = self._child_forms[compiled](mapped.children)
        return work

    def _stream(self, partition_id: str) -> tuple[Sequence[CompiledMapping], str | None]:
        found = self._streams.get(partition_id)
        if found is None:
            source, stream, tenant = keys.split_partition_id(partition_id)
            counts = self._only is None or partition_id == self._only
            mappings = self._mappings.get((source, stream), ()) if counts else ()
            found = self._streams[partition_id] = (mappings, tenant)
        return found

    def killer(self, record: LogRecord, generation: int) -> PageWork | None:
        """A value that ends the process as a whole: kept as one quarantined record."""
        detail = "the process that read or stored this value ended, again and again"
        return self._foreign(record, generation, detail, Reason.KILLED_WORKER)

    def _foreign(
        self,
        record: LogRecord,
        generation: int,
        detail: str,
        reason: Reason = Reason.UNREADABLE,
    ) -> PageWork | None:
        """A value that is no record of ours: kept whole as one quarantined record."""
        if not self._unmapped:
            return None
        _log.warning("foreign value in the log", partition=record.partition, offset=record.offset)
        owner = keys.tick_id(record.partition)
        observation = Observation(
            partition_id=owner, plan=FOREIGN_PLAN, scope=record.key[:200], pass_="-", page=0,
            reason=FOREIGN_PLAN, method="-", url="-", definition_hash="-", status=0,
            requested_at=record.timestamp_ms * 1000, received_at=record.timestamp_ms * 1000,
            records=[record.value or b""],
        )  # fmt: skip
        mapped = Mapped(
            first_index=0,
            outcomes=bytearray([Outcome.QUARANTINED]),
            faults=[RecordFault(0, reason, detail)],
        )
        number = self._resolve(owner, record.partition)
        works = [Work(UNMAPPED, None, mapped)]
        return PageWork(record.offset, generation, record.partition, number, observation, works)


def unmapped(observation: Observation) -> Mapped:
    """Outcomes of a page whose stream has no mapping: ignored, but for slots without bytes."""
    outcomes = bytearray([Outcome.IGNORED]) * len(observation.records)
    mapped = Mapped(first_index=observation.first_index, outcomes=outcomes)
    for missing in observation.missing:
        _missing(mapped, missing)
    return mapped


def _missing(mapped: Mapped, missing: MissingRecord) -> None:
    at = missing.index - mapped.first_index
    if not 0 <= at < len(mapped.outcomes):
        return
    if missing.why == "erased":
        mapped.outcomes[at] = Outcome.ERASED
        return
    mapped.outcomes[at] = Outcome.QUARANTINED
    mapped.faults.append(
        RecordFault(missing.index, Reason(missing.why), f"{missing.size} bytes were not stored")
    )


def map_page(compiled: CompiledMapping, observation: Observation, place: Place) -> Mapped:
    """`compiled.map_page`; should it raise, the records that make it raise are quarantined alone.

    Raises FunctionUnavailable: then no record is to blame.
    """
    try:
        return compiled.map_page(observation, place)
    except FunctionUnavailable:
        raise
    except Exception:
        _log.exception("mapping failed", mapping=compiled.spec.name, offset=place.offset)
    whole = Mapped(first_index=observation.first_index, outcomes=bytearray())
    for at, raw in enumerate(observation.records):
        index = observation.first_index + at
        missing = [m for m in observation.missing if m.index == index]
        single = replace_records(observation, [raw], missing, index)
        try:
            one = compiled.map_page(single, place)
        except FunctionUnavailable:
            raise
        except Exception as error:
            detail = f"{type(error).__name__} in mapping {compiled.spec.name}"
            one = Mapped(index, bytearray([Outcome.QUARANTINED]))
            one.faults = [RecordFault(index, Reason.MAPPER_FAILED, detail)]
            one.unreadable = 1
        whole.outcomes += one.outcomes
        whole.rows += one.rows
        whole.faults += one.faults
        whole.other_keys += one.other_keys
        whole.unreadable += one.unreadable
        whole.children.update(one.children)
    return whole


def replace_records(
    observation: Observation, records: list[bytes], missing: list[MissingRecord], first_index: int
) -> Observation:
    """The same observation with other records, as a page of a single one needs it."""
    return msgspec.structs.replace(
        observation, records=records, missing=missing, first_index=first_index
    )

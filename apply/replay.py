"""Re-consumes the log for one mapping under its registered version, beside live apply.

In place: the same guard, with the new version last in its order. Has position rows of its own, so
it resumes after any crash; fires no event, moves no mark. Ends where live stood when it began.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import psycopg
import structlog

from apply.batch import Batch
from apply.changes import Change
from apply.decisions import heal_coverage
from apply.decode import Decoder
from apply.dry_run import DryRun
from apply.exception_states import Event
from apply.exceptions import Said, move
from apply.faults import NotPrepared, SinkFault, sink_fault
from apply.functions.outside import Surroundings
from apply.identities import Identities
from apply.listings import REMEMBERED, KnownSnapshot
from apply.mapping.outside import Outside
from apply.mapping.types import CompiledMapping
from apply.pass_over import Stretch, reading
from apply.queries import load
from apply.report import Lost
from apply.same_record import Where
from apply.sink import Connection, connect
from apply.store import Store
from apply.versions import by_stream, registered
from schemas import failpoints
from schemas.definitions.load import Definitions
from schemas.failpoints import Hit
from schemas.log.reader import PartitionReader
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_SQL = load("replay")
_SNAPSHOTS = load("snapshots")
_BACKOFF_S = (0.2, 10.0)
_INTERNAL_MAX = 5
T = TypeVar("T")


class ReplayRefused(Exception):
    """A replay would not do what it should; says what to do first."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets done and to do, over all partitions, and what became of records so far."""

    done: int
    total: int
    pages: int
    outcomes: tuple[int, ...]


@dataclass(slots=True)
class ReplayReport:
    """What a replay did, or a dry run would do.

    `outcomes`: records per outcome, in the order of `Outcome`. `replaced`: open exceptions of older
    versions that this version now speaks for. The rest is filled by dry runs only: rows that would
    be added, changed (also by column) or stay, and records that would newly fail or heal.
    """

    mapping: str
    version: int
    dry_run: bool
    resumed: bool = False
    offsets: int = 0
    pages: int = 0
    outcomes: list[int] = field(default_factory=lambda: [0] * 6)
    replaced: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    changed_columns: dict[str, int] = field(default_factory=dict)
    newly_failing: int = 0
    healed: int = 0


def pipeline_of(mapping: str, version: int) -> str:
    """The name under which a replay keeps its positions."""
    return f"replay:{mapping}:{version}"


def run_replay(
    settings: Settings,
    definitions: Definitions,
    mapping: str,
    *,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
    hit: Hit = failpoints.none,
    pause_s: float = 0.0,
) -> ReplayReport:
    """Replay one mapping to its end; call it again after a crash, and it goes on.

    `pause_s` throttles: a rest in seconds after every poll of the log. Raises NotPrepared,
    ReplayRefused, SinkFault, apply.pass_over.PassFailed, schemas.log.reader.LogUnavailable.
    """
    with closing(Surroundings(definitions.folder)) as outside:
        try:
            with connect(settings.postgres, "replay") as connection:
                compiled = _compiled(connection, definitions, mapping, outside)
                replay = _Replay(settings, compiled, progress or (lambda _: None), hit, pause_s)
                with connection.transaction():
                    stretches = _planned(
                        settings, connection, compiled, replay.report, dry_run=dry_run
                    )
                if dry_run:
                    return replay.rehearse(connection, stretches)
        except psycopg.Error as error:
            raise sink_fault(error) from error
        return replay.run(stretches)


def _compiled(
    connection: Connection, definitions: Definitions, mapping: str, outside: Outside
) -> CompiledMapping:
    spec = definitions.mappings.get(mapping)
    if spec is None:
        known = ", ".join(sorted(definitions.mappings)) or "none"
        raise NotPrepared(f"there is no mapping {mapping!r}; known: {known}")
    return registered(connection, [spec], outside)[0]


def _planned(
    settings: Settings,
    connection: Connection,
    compiled: CompiledMapping,
    report: ReplayReport,
    *,
    dry_run: bool,
) -> list[Stretch]:
    """What is to be read: the rest of a replay that was interrupted, else everything.

    Writes the positions of a new replay, unless it is a dry run.
    """
    live = connection.execute(_SQL["live"]).fetchall()
    behind = [p for p, _, _, owned, versions in live
              if owned and compiled.version_id not in versions]  # fmt: skip
    if behind and not dry_run:
        raise ReplayRefused(
            f"apply still runs without version {compiled.spec.version} of {compiled.spec.name}: "
            "start it again with these definitions, then replay"
        )
    name = pipeline_of(compiled.spec.name, compiled.spec.version)
    own = {row[0]: row for row in connection.execute(_SQL["own"], {"pipeline": name})}
    unfinished = any(row[2] < row[3] for row in own.values())
    report.resumed = unfinished and not dry_run
    stretches = []
    for partition, generation, at, _, _ in live:
        row = own.get(partition)
        if unfinished and not dry_run and row is not None and row[1] == generation:
            stretches.append(_stretch(connection, partition, generation, row[2], row[3]))
            continue
        with PartitionReader(settings, settings.observations, partition, "replay-low") as reader:
            start = min(reader.low(), at)
        stretches.append(_stretch(connection, partition, generation, start, at))
        if not dry_run:
            connection.execute(
                _SQL["begin"],
                {
                    "pipeline": name, "partition": partition, "generation": generation,
                    "start": start, "end": at,
                },
            )  # fmt: skip
    return stretches


def _stretch(
    connection: Connection, partition: int, generation: int, start: int, end: int
) -> Stretch:
    asked = {"partition": partition, "generation": generation, "most": REMEMBERED}
    known = tuple(KnownSnapshot(*row) for row in connection.execute(_SNAPSHOTS["known"], asked))
    return Stretch(partition, generation, start, end, known)


class _Replay:
    """One run of a replay, on the caller's thread."""

    def __init__(
        self,
        settings: Settings,
        compiled: CompiledMapping,
        progress: Callable[[Progress], None],
        hit: Hit,
        pause_s: float,
    ) -> None:
        self._settings, self._compiled = settings, compiled
        self._progress, self._hit, self._pause_s = progress, hit, pause_s
        spec = compiled.spec
        self.report = ReplayReport(spec.name, spec.version, dry_run=False)
        self._pipeline = pipeline_of(spec.name, spec.version)
        identities = Identities(settings.postgres, threading.Event())
        self._decoder = Decoder(by_stream([compiled]), identities.number, unmapped=False)
        self._total = 0

    def rehearse(self, connection: Connection, stretches: list[Stretch]) -> ReplayReport:
        """Count what would change; writes nothing that stays."""
        self.report.dry_run = True
        rehearsal = DryRun(connection, self._compiled, self.report)
        self._total = sum(one.end - one.start for one in stretches)
        with self._reading(stretches) as batches:
            for batch in batches():
                rehearsal.take(batch)
                self._count(batch)
        rehearsal.compare()
        return self.report

    def run(self, stretches: list[Stretch]) -> ReplayReport:
        """Apply to the end, then let this version speak for the exceptions of older ones."""
        self._total = sum(one.end - one.start for one in stretches)
        store = Store(
            self._settings.postgres, self._pipeline, self._settings.worker, [self._compiled],
            hit=self._hit, replay=True,
        )  # fmt: skip
        try:
            self._until_well(store, lambda: _claim(store, stretches))
            with self._reading(stretches) as batches:
                for batch in batches():
                    self._write(store, batch)
            while self._until_well(store, lambda: store.beside(self._replace)):
                pass
            store.release(list(store.positions))
        finally:
            store.close()
        return self.report

    def _reading(
        self, stretches: list[Stretch]
    ) -> AbstractContextManager[Callable[[], Iterator[Batch]]]:
        return reading(
            self._settings, self._decoder, stretches, hit=self._hit, pause_s=self._pause_s
        )

    def _write(self, store: Store, batch: Batch) -> None:
        def write() -> None:
            left = batch.without(_reached(store, batch))
            if left.parts:
                report = store.write(left, datetime.now(UTC))
                pairs = zip(self.report.outcomes, report.outcomes, strict=True)
                self.report.outcomes = [a + b for a, b in pairs]

        try:
            self._until_well(store, write)
        except Lost as lost:
            raise ReplayRefused("another process replays this mapping") from lost
        self._count(batch)
        self._hit("replay.after_commit")

    def _count(self, batch: Batch) -> None:
        self.report.offsets += sum(part.end - part.start for part in batch.parts)
        self.report.pages += sum(len(part.pages) for part in batch.parts)
        self._progress(
            Progress(
                self.report.offsets, self._total, self.report.pages, tuple(self.report.outcomes)
            )
        )

    def _until_well(self, store: Store, work: Callable[[], T]) -> T:
        """Do it, and again after every fault of the sink, which is waited for."""
        failures = 0
        while True:
            try:
                if failures or not store.connected:
                    if store.connect():
                        raise ReplayRefused("another process replays this mapping")
                return work()
            except SinkFault as fault:
                failures += 1
                if fault.reason == "internal" and failures >= _INTERNAL_MAX:
                    raise
                if failures == 1:
                    _log.warning("waiting for Postgres", reason=fault.reason, detail=fault.detail)
                low, high = _BACKOFF_S
                time.sleep(min(high, low * 2 ** min(failures, 10)) * random.uniform(0.5, 1))

    def _replace(self, connection: Connection, _held: list[int]) -> tuple[int, list[Change]]:
        """Some open exceptions of older versions end: this version has judged their records."""
        now, number = datetime.now(UTC), self._compiled.version_id
        note = f"replayed as version {self._compiled.spec.version}"
        found = connection.execute(_SQL["replaced"], {"mapping_version": number}).fetchall()
        places = [Where(*row[:5]) for row in found]
        move(connection, Event.REPLAY, places, Said(now, "replay", note))
        for where, (*_, scope, healed) in zip(places, found, strict=True):
            if healed:
                heal_coverage(connection, where, scope)
        self.report.replaced += len(found)
        return len(found), []


def _claim(store: Store, stretches: list[Stretch]) -> None:
    for stretch in stretches:
        store.claim(stretch.partition)


def _reached(store: Store, batch: Batch) -> frozenset[int]:
    """Partitions whose share of the batch is durable already: the answer to a commit was lost."""
    return frozenset(
        part.partition
        for part in batch.parts
        if (held := store.positions.get(part.partition)) is not None
        and held.next_offset >= part.end > part.start
    )

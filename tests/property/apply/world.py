"""A changing source, a log of its changes and listings, and a sink that applies them: all pure.

The source is read one answer at a time, as ingest does while a snapshot is open. Everything that
the product decides (fold, guard, barrier, sweep) is done by its own functions, through the twin.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apply.listings import REMEMBERED, KnownSnapshot, Listings
from apply.mapping.types import (
    BEGAN,
    DELETED,
    MAPPING_VERSION,
    OFFSET,
    SOURCE_EPOCH,
    CompiledMapping,
    Row,
)
from schemas.definitions.mapping import RevisionKind
from schemas.records import Mark, Observation
from tests.property.apply.twin import Table, changed, row

KEYS = "ab"
_ID = "s/t/x"
_CHANGES = Observation(
    partition_id=_ID, plan="interval", scope="-", pass_="-", page=1, reason="-", method="GET",
    url="-", definition_hash="-", status=200, requested_at=0, received_at=0,
)  # fmt: skip


@dataclass(slots=True)
class Entity:
    """One entity of the source; `last`: its highest revision ever, where revisions count up."""

    alive: bool = False
    revision: int = 0
    value: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the log. `row` None: a mark, or a page of a listing that lacks its key.

    `absent`: the key that a page of a listing lacks because it did not exist then.
    """

    kind: str  # change, begin, list, complete
    at: int  # when the source was read, in changes of the source
    row: Row | None = None
    snapshot: int = 0
    epoch: int = 0
    absent: str | None = None


@dataclass(slots=True)
class Snapshot:
    """A snapshot as the sink knows it: open, held, swept, kept or dropped."""

    began: int
    epoch: int = 0
    state: str = "open"
    present: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    absent: dict[str, int] = field(default_factory=dict)  # when a page truly lacked the key
    complete: bool = False
    barrier: int = 0


@dataclass(slots=True)
class World:
    """`stable`: one listing is proof enough; else a page may miss what exists, though not twice
    running. `feed`: changes show deletes.

    While it runs it checks what may never happen (`_never_back`, `_never_undone`, `_comes_back`).
    """

    kind: RevisionKind
    compiled: CompiledMapping
    stable: bool
    feed: bool
    source: dict[str, Entity] = field(default_factory=lambda: {key: Entity() for key in KEYS})
    now: int = 1
    clock: int = 1
    epoch: int = 0  # of the collection
    known_epoch: int = 0  # as ingest knows it
    log: list[Entry] = field(default_factory=list)
    listing: tuple[int, int, int] | None = None  # snapshot, offset of its begin mark, next key
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    listings: Listings = field(default_factory=Listings)  # what the process that applies knows
    table: Table = field(init=False)
    position: int = 0
    version: int = 1
    quarantined: list[Row] = field(default_factory=list)
    replayed: int | None = None  # the next offset of a running replay
    replay_end: int = 0
    missed: set[str] = field(default_factory=set)  # keys that the last listing missed
    shown: dict[str, int] = field(default_factory=dict)  # when what a row shows was last seen
    floor: dict[str, int] = field(default_factory=dict)  # what was read before must not return
    cleared: dict[str, int] = field(default_factory=dict)  # swept and not seen since: the barrier
    restarted: set[str] = field(default_factory=set)  # keys whose revisions began again, unsaid

    def __post_init__(self) -> None:
        self.table = Table(self.compiled)

    # the source

    def change(self, key: str, how: str) -> None:
        """`change` (or create), `delete`; `..._later` moves a coarse clock on; `again`: a new
        entity under an old key, whose revisions begin again without a word; `trash`: gone, or
        back as it was, under the same revision."""
        entity = self.source[key]
        self.now += 1
        if how == "trash":
            entity.alive = not entity.alive and entity.last > 0
            return
        again = how == "again" and not entity.alive
        if self.kind is RevisionKind.EXACT:
            entity.revision = 1 if again else max(entity.last, entity.revision) + 1
        elif self.kind is RevisionKind.COARSE:
            self.clock += how.endswith("later")
            entity.revision = 1 if again else self.clock
        if again:
            self.restarted.add(key)
        entity.last = max(entity.last, entity.revision)
        entity.alive = not (entity.alive and how.startswith("delete"))
        entity.value = self.now

    def collection_again(self) -> None:
        """All is gone, revisions begin again; ingest does not know yet."""
        self.now += 1
        self.epoch += 1
        self.source = {key: Entity() for key in KEYS}
        self.restarted.update(KEYS)

    def detect(self) -> None:
        """Ingest notices, and gives the snapshot up that it was reading."""
        self.known_epoch = self.epoch
        self.listing = None

    # ingest

    def _append(self, entry: Entry) -> int:
        self.log.append(entry)
        return len(self.log) - 1

    def _read(self, key: str, began: int | None) -> Row:
        entity = self.source[key]
        return row(
            self.kind, key, entity.value if entity.alive else None, revision=entity.revision,
            epoch=self.known_epoch, offset=len(self.log), deleted=not entity.alive, began=began,
            content=entity.value * 2 + entity.alive,
        )  # fmt: skip

    def fetch_change(self, key: str) -> None:
        """A page of changes with one record."""
        entity = self.source[key]
        if entity.alive or (self.feed and entity.last):
            self._append(Entry("change", self.now, self._read(key, None)))

    def rewrite(self, number: int) -> None:
        """An erasure of somebody else writes an old page again, behind everything else."""
        pages = [one for one in self.log if one.row is not None]
        self._append(pages[number % len(pages)])

    def walk(self, *, miss: bool = False) -> None:
        """The next step of a snapshot: its begin mark, a page per key, its complete mark."""
        if self.listing is None:
            number = 1 + max((one.snapshot for one in self.log), default=0)
            offset = self._append(Entry("begin", self.now, None, number, self.known_epoch))
            self.listing = (number, offset, 0)
            return
        number, began, at = self.listing
        if at < len(KEYS):
            key = KEYS[at]
            lives = self.source[key].alive
            missed = lives and miss and not self.stable and key not in self.missed
            (self.missed.add if missed else self.missed.discard)(key)
            found = self._read(key, began) if lives and not missed else None
            absent = None if lives else key
            self._append(Entry("list", self.now, found, number, self.known_epoch, absent))
            self.listing = (number, began, at + 1)
            return
        self._append(Entry("complete", self.now, None, number, self.known_epoch))
        self.listing = None

    # the sink

    def apply(self, count: int, *, quarantine: bool = False, hold: bool = False) -> None:
        """One batch of the next records. `quarantine`: its last row becomes an exception."""
        entries = list(enumerate(self.log))[self.position : self.position + count]
        rows: list[Row] = []
        ended: list[int] = []
        for offset, entry in entries:
            if entry.kind == "begin":
                self._begin(entry, offset)
            elif entry.kind == "complete":
                ended.append(entry.snapshot)
                self.snapshots[entry.snapshot].epoch = entry.epoch
            elif entry.absent is not None:
                self.snapshots[entry.snapshot].absent[entry.absent] = entry.at
            elif entry.row is not None:
                rows.append(changed(entry.row, _mapping_version=self.version))
                self._show(entry)
        if quarantine and rows:
            self.quarantined.append(rows.pop())
        self._upsert(rows, live=True)
        for snapshot in ended:
            self._complete(snapshot, hold=hold)
        self.position += len(entries)

    def _begin(self, entry: Entry, offset: int) -> None:
        for one in self.snapshots.values():
            if one.state == "open":
                one.state = "dropped"
        self.snapshots[entry.snapshot] = Snapshot(offset)
        mark = Mark(
            kind="snapshot_begin",
            partition_id=_ID,
            plan="snapshot",
            scope=str(entry.snapshot),
            at=0,
        )
        self.listings.saw_mark(mark, offset)

    def _show(self, entry: Entry) -> None:
        """Presence: all that is listed, and what changes show to live while a snapshot is open."""
        assert entry.row is not None
        if entry.kind == "list":
            self.snapshots[entry.snapshot].present.add(entry.row[0])
            self.snapshots[entry.snapshot].listed.add(entry.row[0])
        elif not entry.row[DELETED]:
            for snapshot in self.listings.present_in(_CHANGES):
                self.snapshots[int(snapshot)].present.add(entry.row[0])

    def take_over(self) -> None:
        """Another process applies from here: it knows what is durable, and nothing else."""
        known = [
            KnownSnapshot(_ID, str(number), one.began, self._asked_for(one))
            for number, one in sorted(self.snapshots.items(), key=lambda item: item[1].began)
            if one.state != "dropped"
        ]
        self.listings = Listings.of(known[-REMEMBERED:])

    def _asked_for(self, one: Snapshot) -> bool:
        """Whether a sweep may still ask for its presence."""
        return one.state in ("open", "held") or (one.complete and not self.stable)

    def _complete(self, number: int, *, hold: bool) -> None:
        found = self.snapshots[number]
        if found.state != "open":
            return
        found.complete = True
        for one in self.snapshots.values():
            if one.state == "held":
                one.state = "dropped"
        found.state = "held" if hold else "kept"
        if not hold:
            self._sweep(found)

    def release(self) -> None:
        """An operator lets held sweeps happen."""
        for one in self.snapshots.values():
            if one.state == "held":
                one.state = "kept"
                self._sweep(one)

    def _sweep(self, found: Snapshot) -> None:
        present, barrier, proof = set(found.present), found.began, [found]
        if not self.stable:
            before = [
                one
                for one in self.snapshots.values()
                if one.complete and one.began < found.began and one.state != "dropped"
            ]
            if not before:
                return
            older = max(before, key=lambda one: one.began)
            present |= older.present
            barrier = older.began
            proof.append(older)
        before_rows = dict(self.table.rows)
        for key in self.table.sweep(1, 0, barrier, present, found.epoch):
            self._never_undone(key, proof)
            self.shown[key] = self.log[barrier].at
        found.state, found.barrier = "swept", barrier
        for key in set(KEYS) - present:
            old = before_rows.get(key)
            if old is None or old[OFFSET] < barrier:
                self.floor[key] = max(self.floor.get(key, 0), self.log[barrier].at)
                self.cleared[key] = barrier

    def _never_undone(self, key: str, proof: list[Snapshot]) -> None:
        """A row ends only if a listing that was read after what it shows truly lacked it."""
        last = max((one.absent.get(key, -1) for one in proof), default=-1)
        assert last >= self.shown.get(key, 0), f"{key} was swept, last seen {self.shown.get(key)}"

    def _upsert(self, rows: list[Row], *, live: bool = False) -> None:
        """Through the barrier; what was observed below an open listing of its key is superseded."""
        barrier = max((one.barrier for one in self.snapshots.values()), default=0)
        open_ = [one for one in self.snapshots.values() if one.state in ("open", "held")]
        rows = [
            one
            for one in rows
            if not any(one[OFFSET] < it.began and one[0] in it.present for it in open_)
        ]
        before = dict(self.table.rows)
        self.table.apply(rows, {1: (0, barrier)})
        for key, new in self.table.rows.items():
            if before.get(key) is not new:
                self._never_back(key, before.get(key), new, open_)
        for one in rows:
            self._seen_again(one)
            self._comes_back(one, live=live)

    def _never_back(self, key: str, old: Row | None, new: Row, open_: list[Snapshot]) -> None:
        """What a row shows was never read before what it showed, nor before its newest listing.

        Where revisions began again unnoticed, only a listing restores the order.
        """
        at = self.log[new[OFFSET]].at
        same = old is not None and (old[1], old[DELETED]) == (new[1], new[DELETED])
        shown = self.shown.get(key, 0)
        backwards = not same and at < shown and key not in self.restarted
        assert not backwards, f"{key} went back to what was read at {at}, it showed {shown}"
        listed = [self.log[one.began].at for one in open_ if key in one.listed]
        floor = max([self.floor.get(key, 0), *listed])
        assert at >= floor, f"{key} shows what was read at {at}, a listing began at {floor}"
        self.shown[key] = max(at, shown) if same else at
        if new[BEGAN] is not None:
            self.floor[key] = max(self.floor.get(key, 0), self.log[new[BEGAN]].at)

    def _seen_again(self, one: Row) -> None:
        """The row already says it; now it is known to be so at a later time."""
        row = self.table.rows.get(one[0])
        if row is not None and (row[1], row[DELETED]) == (one[1], one[DELETED]):
            at = self.log[one[OFFSET]].at
            self.shown[one[0]] = max(self.shown.get(one[0], 0), at)

    def _comes_back(self, one: Row, *, live: bool) -> None:
        """The first observation after a sweep is news, whatever its revision is."""
        barrier = self.cleared.pop(one[0], None)
        row = self.table.rows.get(one[0])
        if not live or barrier is None or one[OFFSET] <= barrier or row is None:
            return
        same = (row[1], row[DELETED]) == (one[1], one[DELETED])
        if one[SOURCE_EPOCH] >= row[SOURCE_EPOCH] and not same:
            assert row[OFFSET] >= one[OFFSET], f"{one} was swept before, and it stays {row}"

    def retry(self, number: int) -> None:
        """One quarantined record is mapped after all."""
        one = self.quarantined.pop(number % len(self.quarantined))
        self._upsert([changed(one, _mapping_version=self.version)])

    def start_replay(self) -> None:
        """Live switches to the new version first; the end is fixed then."""
        self.version += 1
        self.replayed, self.replay_end = 0, self.position

    def replay(self, count: int) -> None:
        """The next records again, under the new version, beside live apply."""
        assert self.replayed is not None
        end = min(self.replayed + count, self.replay_end)
        entries = self.log[self.replayed : end]
        found = [one.row for one in entries if one.row is not None]
        self._upsert([changed(one, _mapping_version=self.version) for one in found])
        self.replayed = None if end == self.replay_end else end

    # the end

    def settle(self) -> None:
        """Everything comes to rest: what waits is done, and listings complete without changes."""
        self.detect()
        self._finish()
        for _ in range(1 if self.stable else 2):
            for _ in range(len(KEYS) + 2):
                self.walk()
            self._finish()

    def _finish(self) -> None:
        while self.replayed is not None:
            self.replay(5)
        self.apply(len(self.log))
        while self.quarantined:
            self.retry(0)
        self.release()

    def check(self) -> None:
        """The table says what the source says; its rows are of the newest mapping."""
        for key, entity in self.source.items():
            found = self.table.rows.get(key)
            lives = found is not None and not found[DELETED]
            assert lives == entity.alive, f"{key}: the source says {entity}, the table {found}"
            if found is not None and lives:
                assert found[1] == entity.value, f"{key}: {entity}, but the table has {found}"
                assert found[MAPPING_VERSION] == self.version, f"{key} is of an older mapping"

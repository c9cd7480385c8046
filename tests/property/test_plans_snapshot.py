"""The snapshot plan against listings whose positions shift while they are read, with crashes."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.protocol import Ask, Page
from ingest.plans.snapshot import SnapshotPlan
from schemas.definitions.source import End, PagesSpec, SnapshotSpec, Turn
from schemas.keys import PageKey, page_key_of
from tests.property.plan_source import Driver, Fact, S, Source, page_of, request


@dataclass
class Listing:
    """Rows in a live order, cut into pages by position or by the last id."""

    source: Source
    turn: Turn
    rows: list[Fact] = field(default_factory=list)
    size: int = 3

    def answer(self, ask: Ask) -> tuple[list[Fact], Page]:
        offset = 0
        if self.turn is Turn.PAGE:
            offset = (int(str(ask.values["page"])) - 1) * self.size
        elif self.turn is Turn.OFFSET:
            offset = int(str(ask.values["offset"]))
        rows = self.rows
        if self.turn is Turn.LAST_ID:
            last = int(str(ask.values.get("last.id", -1)))
            rows = sorted((r for r in rows if r.number > last), key=lambda r: r.number)
        found = rows[offset : offset + self.size]
        return found, page_of(found, self.source.clock(), total=len(self.rows))


class Snapshots(RuleBasedStateMachine):
    """A complete snapshot names, in all, every row that was there from its begin to its end."""

    @initialize(
        turn=st.sampled_from([Turn.PAGE, Turn.OFFSET, Turn.LAST_ID]),
        end=st.sampled_from([End.EMPTY, End.TOTAL]),
        keep=st.integers(1, 3),
        rows=st.integers(0, 10),
    )
    def start(self, turn: Turn, end: End, keep: int, rows: int) -> None:
        self.source = Source(pages=None)
        self.listing = Listing(self.source, turn)
        pages = PagesSpec(
            turn=turn,
            end=End.EMPTY if turn is Turn.LAST_ID else end,
            size=3,
            stable=turn is Turn.LAST_ID,
            total=None,
        )
        spec = SnapshotSpec(every_s=60.0, request=request(pages), definition_hash="h1")
        self.keep_snapshots = max(keep, spec.listings_needed)
        self.driver = Driver(
            lambda nonce: SnapshotPlan(spec, "s/t", nonce, keep=keep),
            self.source,
            self.listing.answer,
        )
        for _ in range(rows):
            self.add()
        self.always: set[int] | None = None

    def add(self) -> None:
        self.listing.rows.append(self.source.add(self.source.now))

    @rule()
    def insert(self) -> None:
        self.add()

    @rule(at=st.integers(0, 20))
    def delete(self, at: int) -> None:
        """Everything behind it moves up by one."""
        if self.listing.rows:
            gone = self.listing.rows.pop(at % len(self.listing.rows))
            if self.always is not None:
                self.always.discard(gone.number)

    @rule(at=st.integers(0, 20))
    def touch(self, at: int) -> None:
        """A row moves to the end, as in a listing sorted by time of change."""
        if self.listing.rows:
            self.listing.rows.append(self.listing.rows.pop(at % len(self.listing.rows)))

    @rule(count=st.integers(1, 6))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if not self.one():
                break

    @rule()
    def keep(self) -> None:
        self.driver.keep()

    @rule()
    def crash(self) -> None:
        before = self.driver.state.snapshot_id
        self.driver.crash()
        if self.driver.state.snapshot_id != before:
            self.always = None
            # Another snapshot may be in work now: what was always there is known only from here.
            if self.driver.state.snapshot_id is not None:
                self.always = set()

    def one(self) -> bool:
        before = self.driver.state
        complete = len(self.driver.marks("snapshot_complete"))
        went_on = self.driver.step()
        after = self.driver.state
        if after.snapshot_id is not None and before.snapshot_id != after.snapshot_id:
            self.always = {row.number for row in self.listing.rows}
        if len(self.driver.marks("snapshot_complete")) > complete:
            assert self.always is not None
            assert self.always <= self.named()
        return went_on

    def named(self) -> set[int]:
        """Facts on the pages that the last complete mark names."""
        mark = self.driver.marks("snapshot_complete")[-1]
        keys = {(r.pass_, n) for r in mark.passes for n in range(r.first, r.last + 1)}
        return {
            fact.number
            for emitted in self.driver.all
            if emitted.page is not None and emitted.page[1:] in keys
            for fact in emitted.facts
        }

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def consistent(self) -> None:
        self.driver.check_named()
        self.tombstones_in_order()

    def tombstones_in_order(self) -> None:
        """Only pages of older snapshots are tombstoned, after a newer one is complete."""
        complete: list[str] = []
        for emitted in self.driver.all:
            complete += [m.scope for m in emitted.step.marks if m.kind == "snapshot_complete"]
            kept = complete[-self.keep_snapshots :]
            for key in emitted.step.tombstones:
                assert len(complete) > self.keep_snapshots or not any(s in key for s in kept)
                assert not any(f"/{scope}/" in key for scope in kept), "a kept snapshot is gone"

    def teardown(self) -> None:
        """While nothing moves a listing gets complete, and its rows are exactly those named."""
        if not hasattr(self, "driver"):
            return
        # One in work may have read its last page before a row was added: the next one counts.
        if self.driver.state.snapshot_id is not None:
            self.finish()
        self.finish()
        assert {row.number for row in self.listing.rows} <= self.named()
        for _ in range(200):
            if not self.driver.state.tombstone_due:
                break
            self.driver.step()
        self.only_kept_pages_are_left()

    def finish(self) -> None:
        done = len(self.driver.marks("snapshot_complete"))
        for _ in range(2_000):
            self.one()
            if len(self.driver.marks("snapshot_complete")) > done:
                return
        raise AssertionError("never complete")

    def only_kept_pages_are_left(self) -> None:
        left = {e.page for e in self.driver.all if e.page is not None}
        cleared = {key for e in self.driver.all for key in e.step.tombstones}
        kept = {s.snapshot_id for s in self.driver.state.previous}
        for scope, pass_, number in left:
            key = page_key_of(PageKey("s/t", "snapshot", scope, pass_, number, 1))
            assert (
                scope in kept
                or key in cleared
                or scope not in {m.scope for m in self.driver.marks("snapshot_complete")}
            )


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_one_walk_over_shifting_positions_is_not_enough() -> None:
    """A row is deleted behind the reader: the next one moves to a page that was read already."""
    source = Source(pages=None)
    listing = Listing(source, Turn.PAGE)
    spec = SnapshotSpec(60.0, request(PagesSpec(Turn.PAGE, End.EMPTY, size=3)), "h1")
    driver = Driver(lambda nonce: SnapshotPlan(spec, "s/t", nonce), source, listing.answer)
    for _ in range(9):
        listing.rows.append(source.add(source.now))
    driver.step()
    driver.step()
    listing.rows.pop(0)
    for _ in range(100):
        driver.step()
        if driver.marks("snapshot_complete"):
            break
    assert set(range(1, 9)) <= driver.seen()
    assert driver.marks("snapshot_complete")[0].stable is False


def test_a_listing_that_never_holds_still_is_visibly_incomplete() -> None:
    source = Source(pages=None)
    listing = Listing(source, Turn.PAGE)
    spec = SnapshotSpec(60.0, request(PagesSpec(Turn.PAGE, End.EMPTY, size=3)), "h1")
    driver = Driver(lambda nonce: SnapshotPlan(spec, "s/t", nonce), source, listing.answer)
    for _ in range(5):
        listing.rows.append(source.add(source.now))
    for _ in range(200):
        listing.rows.append(source.add(source.now))
        listing.rows.pop(0)
        if not driver.step():
            break
    assert "incomplete" in driver.stalls[0].reason
    assert not driver.marks("snapshot_complete")
    assert driver.state.snapshot_id is None and not driver.state.previous[0].complete
    source.now += 1 * S
    for _ in range(100):
        driver.step()
        if driver.marks("snapshot_complete"):
            break
    assert driver.state.tombstone_due == [driver.state.previous[0].snapshot_id]

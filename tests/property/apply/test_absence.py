"""Deletes by absence, with changes, erasures, retries, replays, take-overs and re-creations between.

Once all is drained and one more listing is complete (two, where it can shift), the table is the
source; and never does a row go back to what was read before what it shows.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from schemas.definitions.mapping import RevisionKind
from tests.property.apply.twin import mapping
from tests.property.apply.world import KEYS, World

_MAPPINGS = {kind: mapping(kind) for kind in RevisionKind}
keys = st.sampled_from(KEYS)
_HOW = st.sampled_from(["change", "change_later", "delete", "delete_later", "again", "trash"])


class Absence(RuleBasedStateMachine):
    """The steps; subclasses say which kind of revision and of listing."""

    kind = RevisionKind.EXACT
    stable = True

    @initialize(feed=st.booleans())
    def begin(self, feed: bool) -> None:
        self.world = World(self.kind, _MAPPINGS[self.kind], self.stable, feed)

    @rule(key=keys, how=_HOW)
    def source_changes(self, key: str, how: str) -> None:
        self.world.change(key, how)

    @rule(key=keys)
    def fetch(self, key: str) -> None:
        self.world.fetch_change(key)

    @rule(miss=st.booleans())
    def walk(self, miss: bool) -> None:
        self.world.walk(miss=miss)

    @rule()
    def walk_to_the_end(self) -> None:
        self.world.walk()
        while self.world.listing is not None:
            self.world.walk()

    @rule(quarantine=st.booleans(), hold=st.booleans())
    def apply_all(self, quarantine: bool, hold: bool) -> None:
        self.world.apply(len(self.world.log), quarantine=quarantine, hold=hold)

    @rule(key=keys, how=_HOW)
    def change_and_fetch(self, key: str, how: str) -> None:
        self.world.change(key, how)
        self.world.fetch_change(key)

    @rule(count=st.integers(1, 6), quarantine=st.booleans(), hold=st.booleans())
    def apply(self, count: int, quarantine: bool, hold: bool) -> None:
        self.world.apply(count, quarantine=quarantine, hold=hold)

    @precondition(lambda self: any(one.row for one in self.world.log))
    @rule(number=st.integers(0, 20))
    def rewrite(self, number: int) -> None:
        self.world.rewrite(number)

    @rule()
    def take_over(self) -> None:
        self.world.take_over()

    @precondition(lambda self: self.world.quarantined)
    @rule(number=st.integers(0, 3))
    def retry(self, number: int) -> None:
        self.world.retry(number)

    @rule()
    def release(self) -> None:
        self.world.release()

    @precondition(lambda self: self.world.replayed is None and self.world.version == 1)
    @rule()
    def start_replay(self) -> None:
        self.world.start_replay()

    @precondition(lambda self: self.world.replayed is not None)
    @rule(count=st.integers(1, 4))
    def replay(self, count: int) -> None:
        self.world.replay(count)

    @precondition(lambda self: self.world.epoch == 0)
    @rule()
    def collection_again(self) -> None:
        self.world.collection_again()

    @precondition(lambda self: self.world.known_epoch < self.world.epoch)
    @rule()
    def detect(self) -> None:
        self.world.detect()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check()


class CoarseAbsence(Absence):
    kind = RevisionKind.COARSE


class UndatedAbsence(Absence):
    kind = RevisionKind.NONE


class ShiftingAbsence(Absence):
    stable = False


class ShiftingCoarseAbsence(CoarseAbsence):
    stable = False


# Health checks measure the machine, which may be busy with other tests.
_RUNS = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
_MACHINES = (Absence, CoarseAbsence, UndatedAbsence, ShiftingAbsence, ShiftingCoarseAbsence)


@pytest.mark.parametrize("machine", _MACHINES)
def test_the_table_becomes_the_source(machine: type[Absence]) -> None:
    run_state_machine_as_test(machine, settings=_RUNS)


@pytest.mark.parametrize("taken_over", [False, True])
def test_what_changes_show_while_a_listing_is_open_is_not_swept(taken_over: bool) -> None:
    """Rule C: restored under its old revision, it changes nothing in the table, yet it lives."""
    world = World(RevisionKind.EXACT, _MAPPINGS[RevisionKind.EXACT], stable=True, feed=False)
    world.change("a", "change")
    world.fetch_change("a")
    world.apply(1)
    world.walk()
    world.change("a", "trash")
    world.walk()  # the page that would show it
    if taken_over:
        world.apply(len(world.log))
        world.take_over()
    world.change("a", "trash")
    world.fetch_change("a")
    world.walk()
    world.walk()
    world.apply(len(world.log))
    world.check()


def test_an_abandoned_listing_is_remembered_by_what_came_after_it() -> None:
    """The old entity's last state, mapped late, does not come back over the new entity."""
    world = World(RevisionKind.COARSE, _MAPPINGS[RevisionKind.COARSE], stable=True, feed=False)
    world.change("a", "change_later")
    world.fetch_change("a")
    world.apply(1, quarantine=True)
    world.change("a", "delete")
    world.change("a", "again")
    world.walk()
    world.walk()  # shows the new entity
    world.change("a", "trash")
    world.change("a", "trash")
    world.fetch_change("a")  # and this comes after it, under the same low revision
    world.apply(3)
    world.listing = None
    world.walk()  # another begins; it has not come to the key
    world.apply(1)
    world.retry(0)
    assert world.table.rows["a"][1] == world.source["a"].value

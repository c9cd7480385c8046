"""Reading parent by parent, while parents come and go, rows are late, and workers die."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.parents import DONE_MAX
from ingest.plans.protocol import Ask, Page, Refusal
from ingest.plans.ranges import to_us
from schemas import codec
from schemas.records import SourceCheckpoint
from tests.property.plan_intervals import LOOKBACK, SETTLE, START
from tests.property.plan_parents import Family, interval_driver, snapshot_driver
from tests.property.plan_source import EPOCH, Fact, S, Source


class Families(RuleBasedStateMachine):
    """No fact below a parent that stays is passed over by changes or by a listing."""

    @initialize(
        by_id=st.booleans(),
        by_time=st.booleans(),
        cap=st.sampled_from([None, 4]),
        first=st.integers(0, 7),
    )
    def start(self, by_id: bool, by_time: bool, cap: int | None, first: int) -> None:
        self.source = Source(pages=None, cap=cap)
        parents = [100 + 10 * n for n in range(first)]
        self.family = Family(self.source, by_id=by_id, by_time=by_time, parents=parents)
        self.changes = interval_driver(self.family)
        self.listing = snapshot_driver(self.family)
        self.gone: set[int] = set()
        self.began: dict[str, set[int]] = {}

    @rule(number=st.integers(1, 300))
    def new_parent(self, number: int) -> None:
        if number not in self.family.parents and number not in self.gone:
            self.family.parents.append(number)

    @precondition(lambda self: self.family.by_id and self.family.parents)
    @rule(data=st.data())
    def parent_goes(self, data: st.DataObject) -> None:
        """Only where the listing cannot shift: else nothing could be proven by it."""
        parent = data.draw(st.sampled_from(self.family.parents))
        self.family.parents.remove(parent)
        self.gone.add(parent)

    @precondition(lambda self: self.family.parents)
    @rule(data=st.data(), count=st.integers(1, 5), delay=st.sampled_from([0, 1, 3, 20]))
    def facts(self, data: st.DataObject, count: int, delay: int) -> None:
        for _ in range(count):
            parent = data.draw(st.sampled_from(self.family.parents))
            self.family.add(parent, self.source.now, delay * S)

    @rule(seconds=st.sampled_from([1, 3, 25, 70, 700]))
    def wait(self, seconds: int) -> None:
        self.source.now += seconds * S

    @rule(count=st.integers(1, 15), which=st.booleans())
    def go_on(self, count: int, which: bool) -> None:
        driver = self.changes if which else self.listing
        for _ in range(count):
            going = driver.step()
            self._remember()
            if not going:
                break

    def _remember(self) -> None:
        """What a listing that begins now has to show."""
        for mark in self.listing.marks("snapshot_begin"):
            shown = {f.number for f in self.source.facts if f.visible_at <= self.source.now}
            self.began.setdefault(mark.scope, shown)

    @rule(which=st.booleans())
    def keep(self, which: bool) -> None:
        (self.changes if which else self.listing).keep()

    @rule(which=st.booleans())
    def crash(self, which: bool) -> None:
        (self.changes if which else self.listing).crash()

    def _left(self, fact: Fact) -> bool:
        return self.family.of[fact.number] not in self.gone

    @precondition(lambda self: hasattr(self, "changes"))
    @invariant()
    def never_ahead(self) -> None:
        state = self.changes.state
        # Where parents keep coming, no walk by position proves anything: that is said, not hidden.
        for stall in self.changes.stalls + self.listing.stalls:
            assert not self.family.by_id and stall.reason.startswith("incomplete")
        self.changes.check_named()
        if state.complete_before is None:
            return
        before, seen = to_us(state.complete_before), self.changes.seen()
        failed = self.changes.stretches("interval_failed")
        for fact in self.source.facts:
            prompt = fact.visible_at - fact.stamp <= SETTLE - 2 * S
            if prompt and START <= fact.stamp < before and self._left(fact):
                holds = any(a <= fact.stamp < b for a, b in failed)
                assert fact.number in seen or holds, (fact, state)

    @precondition(lambda self: hasattr(self, "listing"))
    @invariant()
    def a_complete_listing_is_complete(self) -> None:
        self.listing.check_named()
        for mark in self.listing.marks("snapshot_complete"):
            named = {r.pass_: r for r in mark.passes}
            shown = {
                fact.number
                for emitted in self.listing.all
                if emitted.page is not None and emitted.page[1] in named
                for fact in emitted.facts
            }
            wanted = {
                f.number
                for f in self.source.facts
                if f.number in self.began[mark.scope] and self._left(f)
            }
            assert wanted <= shown

    def teardown(self) -> None:
        if not hasattr(self, "changes"):
            return
        for seconds in ((SETTLE + LOOKBACK) // S + 2, 2):
            self.source.now += seconds * S
            self.changes.poll()
        self.listing.poll()
        self.listing.poll()
        assert self.listing.marks("snapshot_complete")
        seen = self.changes.seen()
        failed = self.changes.stretches("interval_failed")
        for fact in self.source.facts:
            if START <= fact.stamp and self._left(fact) and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in failed), fact


TestFamilies = Families.TestCase
TestFamilies.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def family_of(parents: int, facts: int) -> Family:
    family = Family(Source(pages=None), parents=list(range(parents)))
    for parent in range(parents):
        for n in range(facts):
            family.add(parent, EPOCH - 60 * S - n)
    return family


def test_a_new_owner_goes_on_with_the_parents_that_are_left() -> None:
    family = family_of(parents=2, facts=3)
    driver = snapshot_driver(family)
    while not any(f for e in driver.all for f in e.facts if family.of[f.number] == 1):
        driver.step()
    driver.keep()
    asked = len(driver.asked)
    driver.crash()
    driver.poll()
    of = [ask.values["parent.id"] for ask in driver.asked[asked:] if not ask.listing]
    assert set(of) == {1}, "the first parent was done, and stays so"
    assert [ask.values.get("token") for ask in driver.asked[asked:] if not ask.listing] == ["1:2"]


def test_parents_without_anything_below_them_are_worth_a_checkpoint_now_and_then() -> None:
    family = family_of(parents=200, facts=0)
    driver = interval_driver(family)
    driver.poll()
    saved = [e for e in driver.all if e.step.save]
    assert len(saved) >= 90
    assert len([ask for ask in driver.asked if not ask.listing]) == 200 * len(
        {ask.scope for ask in driver.asked}
    )


def test_a_listing_by_position_is_made_twice_and_its_parents_are_asked_once() -> None:
    family = family_of(parents=5, facts=1)
    family.by_id = False
    driver = snapshot_driver(family)
    driver.poll()
    assert [ask.listing for ask in driver.asked].count(True) == 2 * 4
    assert [ask.listing for ask in driver.asked].count(False) == 5
    [mark] = driver.marks("snapshot_complete")
    assert not mark.stable, "absence needs two such listings"


def test_a_token_that_expires_begins_only_its_own_parent_again() -> None:
    family = family_of(parents=2, facts=5)
    driver = snapshot_driver(family)
    refused: list[Ask] = []

    def answer(ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        if ask.values.get("token") == "1:2" and not refused:
            refused.append(ask)
            return Refusal.TOKEN_EXPIRED
        return family.answer(ask)

    driver._answer = answer
    driver.poll()
    assert refused and driver.marks("snapshot_complete")
    first = [a for a in driver.asked if a.values.get("parent.id") == 0]
    assert len(first) == 3
    driver.check_named()


def test_a_cap_below_one_parent_fails_the_interval_whatever_the_others_have() -> None:
    family = family_of(parents=3, facts=0)
    for _ in range(6):
        family.add(1, EPOCH - 60 * S)
    family.source.cap = 4
    driver = interval_driver(family)
    driver.poll()
    [failed] = driver.stretches("interval_failed")
    assert failed[0] <= EPOCH - 60 * S < failed[1]


def test_a_checkpoint_stays_small_whatever_a_page_of_parents_holds() -> None:
    from tests.property import plan_parents

    family = family_of(parents=0, facts=0)
    family.parents = list(range(3 * DONE_MAX))
    per_page = plan_parents.PER_PAGE
    plan_parents.PER_PAGE = 3 * DONE_MAX
    try:
        driver = snapshot_driver(family)
        for _ in range(DONE_MAX + 100):
            driver.step()
    finally:
        plan_parents.PER_PAGE = per_page
    state = driver.state
    checkpoint = SourceCheckpoint(
        partition_id="s/t", worker="w", sequence=1, written_at=0, plans={"snapshot": state}
    )
    assert 9_000 < len(codec.encode(checkpoint)) < 20_000


def test_a_token_of_the_listing_that_expires_begins_the_listing_again() -> None:
    family = family_of(parents=5, facts=3)
    driver = snapshot_driver(family)
    refused: list[Ask] = []

    def answer(ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        if ask.listing and ask.values.get("last.id") == "1" and not refused:
            refused.append(ask)
            return Refusal.TOKEN_EXPIRED
        return family.answer(ask)

    driver._answer = answer
    driver.poll()
    assert refused and driver.marks("snapshot_complete")
    assert driver.seen() == {f.number for f in family.source.facts}
    below = [ask for ask in driver.asked if ask.values.get("parent.id") == 0]
    assert len(below) == 2, "who was asked is not asked again"

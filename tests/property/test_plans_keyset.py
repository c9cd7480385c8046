"""The keyset plan against a provider with late rows, ties, bulk imports, a horizon and crashes."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.keyset import KeysetPlan
from ingest.plans.ranges import run_end, to_us
from schemas.definitions.source import Bounds
from tests.property.plan_intervals import LOOKBACK, SETTLE, START
from tests.property.plan_keyset import Impatient, Keyed, driver_of
from tests.property.plan_source import EPOCH, S, Source


class Keysets(RuleBasedStateMachine):
    """Every eligible fact is in a page or lies in a visible hole; nothing is claimed before."""

    @initialize(
        inclusive=st.booleans(),
        until=st.booleans(),
        retention=st.sampled_from([None, None, 500 * S]),
        lookback=st.sampled_from([None, LOOKBACK]),
        patient=st.booleans(),
        bounds=st.sampled_from([Bounds.UNKNOWN, Bounds.CLOSED_OPEN]),
    )
    def start(
        self,
        inclusive: bool,
        until: bool,
        retention: int | None,
        lookback: int | None,
        patient: bool,
        bounds: Bounds,
    ) -> None:
        self.source = Source(pages=None, retention=retention)
        self.lookback = lookback
        self.driver = driver_of(
            Keyed(self.source, inclusive=inclusive, until=until),
            retention=retention,
            lookback=lookback,
            bounds=bounds,
            of=KeysetPlan if patient else Impatient,
        )

    @rule(
        ago=st.integers(0, 399),
        part=st.sampled_from([0, 1, 500_000, 999_999]),
        count=st.integers(1, 9),
    )
    def old_facts(self, ago: int, part: int, count: int) -> None:
        """Facts that were there before the first poll, many at one moment; only at the beginning."""
        if self.driver.asked:
            return
        for _ in range(count):
            self.source.add(EPOCH - ago * S - part)

    @rule(ago=st.integers(0, 380))
    def import_of_one_second(self, ago: int) -> None:
        """More of one second than fits into the pages after which a walk is cut."""
        if self.driver.asked:
            return
        for n in range(9):
            self.source.add(EPOCH - ago * S + n * 100_000)

    @rule(part=st.sampled_from([0, 1, 500_000, 999_999]), count=st.integers(1, 6))
    def facts(self, part: int, count: int) -> None:
        """Facts of this very moment, some with the same stamp."""
        for _ in range(count):
            self.source.add(self.source.now - self.source.now % S + part)

    @rule(delay=st.one_of(st.integers(1, 3), st.integers(4, (SETTLE + LOOKBACK) // S - 2)))
    def late(self, delay: int) -> None:
        """A fact that becomes visible later than its stamp: rows show in commit order."""
        self.source.add(self.source.now, delay * S if self.lookback or delay < 3 else 2 * S)

    @rule(ahead=st.sampled_from([1, 60, 4000]))
    def from_the_future(self, ahead: int) -> None:
        """A stamp that lies ahead is visible at once, and must not drag the watermark."""
        fact = self.source.add(self.source.now + ahead * S, -ahead * S)
        assert fact.visible_at == self.source.now

    @rule(seconds=st.sampled_from([1, 3, 25, 70, 700]))
    def wait(self, seconds: int) -> None:
        self.source.now += seconds * S

    @rule(count=st.integers(1, 12))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if not self.driver.step():
                break

    @rule()
    def whole_poll(self) -> None:
        self.driver.poll()

    @rule()
    def keep(self) -> None:
        self.driver.keep()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @rule()
    def slow(self) -> None:
        self.source.slow = not self.source.slow

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def never_ahead(self) -> None:
        """What was visible in time and lies below the watermark is in a page or in a hole."""
        assert not self.driver.stalls
        state = self.driver.state
        if state.complete_before is None:
            return
        before = to_us(state.complete_before)
        assert before <= self.source.now - SETTLE
        holes = self.driver.stretches("gap")
        seen = self.driver.seen()
        for fact in self.source.facts:
            prompt = fact.visible_at - fact.stamp <= SETTLE - 2 * S
            if prompt and START <= fact.stamp < before and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in holes), (fact, state)

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def covered(self) -> None:
        """What is complete stands in the marks that compaction leaves."""
        before = self.driver.state.complete_before
        told = [
            (to_us(mark.start), to_us(mark.end))
            for mark in self.driver.compacted()
            if mark.start and mark.end and mark.kind != "interval_failed"
        ]
        if before is not None:
            assert run_end(START, told) >= to_us(before)
        assert {m.plan for m in self.driver.compacted()} <= {"keyset"}
        self.driver.check_named()

    def teardown(self) -> None:
        """Time passes, the provider is well again: everything eligible is there."""
        if not hasattr(self, "driver"):
            return
        source, driver = self.source, self.driver
        source.slow = False
        for seconds in ((SETTLE + LOOKBACK) // S + 2, 2):
            source.now += seconds * S
            driver.poll()
        holes = driver.stretches("gap") + driver.stretches("interval_failed")
        seen = driver.seen()
        due = source.now - SETTLE - 4 * S
        for fact in source.facts:
            if START <= fact.stamp < due and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in holes), fact
        if not driver.state.failed:
            assert to_us(driver.state.complete_before or "") > source.now - SETTLE - 5 * S
        for start, _ in driver.stretches("gap"):
            assert source.retention is not None
            assert start < source.now - source.retention + 2 * S


TestKeysets = Keysets.TestCase
TestKeysets.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

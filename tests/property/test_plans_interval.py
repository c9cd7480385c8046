"""The interval plan against a provider with late rows, caps, expiring tokens and crashes."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import OPEN_MAX
from ingest.plans.ranges import run_end, to_us
from schemas.definitions.source import Bounds
from tests.property.plan_intervals import LOOKBACK, SETTLE, START, spec_of
from tests.property.plan_source import EPOCH, Driver, S, Source, token_pages


class Intervals(RuleBasedStateMachine):
    """Every eligible fact is emitted or lies in a visible hole; nothing is claimed before."""

    @initialize(
        bounds=st.sampled_from(list(Bounds)),
        truncates=st.booleans(),
        cap=st.sampled_from([None, 4, 8]),
        tells_cap=st.booleans(),
        token_lifetime=st.sampled_from([None, 20 * S]),
        retention=st.sampled_from([None, None, 500 * S]),
        tells_gap=st.booleans(),
        order=st.sampled_from([0, 1, -1]),
        width=st.sampled_from([None, 30 * S, 200 * S]),
        stable=st.booleans(),
        declared=st.booleans(),
    )
    def start(
        self,
        bounds: Bounds,
        truncates: bool,
        cap: int | None,
        tells_cap: bool,
        token_lifetime: int | None,
        retention: int | None,
        tells_gap: bool,
        order: int,
        width: int | None,
        stable: bool,
        declared: bool,
    ) -> None:
        lifetime_s = token_lifetime / S if token_lifetime and declared else None
        self.source = Source(
            pages=token_pages(3, stable=stable, token_lifetime_s=lifetime_s),
            bounds=bounds,
            truncates=truncates,
            cap=cap,
            tells_cap=tells_cap,
            token_lifetime=token_lifetime,
            retention=retention,
            tells_gap=tells_gap and retention is not None,
            order=order,
        )
        spec = spec_of(self.source, width=width, cap=cap)
        retention_us = retention if retention is not None and (declared or not tells_gap) else None
        self.driver = Driver(
            lambda nonce: IntervalPlan(spec, "s/t", nonce, retention_us=retention_us), self.source
        )
        self.purged: set[int] = set()

    @rule(
        ago=st.one_of(st.integers(0, 390), st.integers(380, 399)),
        part=st.sampled_from([0, 1, 500_000, 999_999]),
        count=st.integers(1, 9),
    )
    def old_facts(self, ago: int, part: int, count: int) -> None:
        """Facts that were there before the first poll; only while nothing was asked."""
        if self.driver.asked:
            return
        for _ in range(count):
            self.source.add(EPOCH - ago * S - part)

    @rule(part=st.sampled_from([0, 1, 500_000, 999_999]), count=st.integers(1, 6))
    def facts(self, part: int, count: int) -> None:
        """Facts of this very moment, some with the same stamp."""
        for _ in range(count):
            self.source.add(self.source.now - self.source.now % S + part)

    @rule(delay=st.one_of(st.integers(1, 3), st.integers(4, (SETTLE + LOOKBACK) // S - 2)))
    def late(self, delay: int) -> None:
        """A fact that becomes visible later than its stamp, within settle and lookback."""
        self.source.add(self.source.now, delay * S)

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

    @rule(count=st.integers(1, 3))
    def empty_pages(self, count: int) -> None:
        self.source.empty_pages = count

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def never_ahead(self) -> None:
        """What was visible in time and lies below `complete_before` is in a page or in a hole."""
        state = self.driver.state
        assert len(state.open) <= OPEN_MAX
        assert not self.driver.stalls
        if state.complete_before is None:
            return
        before = to_us(state.complete_before)
        holes = self.driver.stretches("gap")
        seen = self.driver.seen()
        for fact in self.source.facts:
            prompt = fact.visible_at - fact.stamp <= SETTLE - 2 * S
            if prompt and START <= fact.stamp < before and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in holes), (fact, state)

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def covered(self) -> None:
        """What is complete stands in the marks that compaction leaves, and in no others."""
        before = self.driver.state.complete_before
        told = [
            (to_us(mark.start), to_us(mark.end))
            for mark in self.driver.compacted()
            if mark.start and mark.end and mark.kind != "interval_failed"
        ]
        if before is not None:
            assert run_end(START, told) >= to_us(before)
        assert all(end <= self.source.now - SETTLE for _, end in told)

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def named_pages(self) -> None:
        self.driver.check_named()

    def teardown(self) -> None:
        """Time passes, the provider is well again: everything eligible is there."""
        if not hasattr(self, "driver"):
            return
        source, driver = self.source, self.driver
        source.slow = False
        source.now += SETTLE + LOOKBACK + 2 * S
        driver.poll()
        source.now += 2 * S
        driver.poll()
        holes = driver.stretches("gap") + driver.stretches("interval_failed")
        seen = driver.seen()
        for fact in source.facts:
            if START <= fact.stamp and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in holes), fact
        if not driver.state.failed:
            assert driver.state.complete_before is not None
            assert to_us(driver.state.complete_before) > source.now - SETTLE - 5 * S
        # A gap is only what the provider had purged.
        for start, _ in driver.stretches("gap"):
            assert source.retention is not None
            assert start < source.now - source.retention + 2 * S
        self.driver.check_named()


TestIntervals = Intervals.TestCase
TestIntervals.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)

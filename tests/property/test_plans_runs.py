"""Plans under a schedule with runs: closed intervals, names that all workers agree on, oldest first."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.interval import IntervalPlan
from ingest.plans.keyset import KeysetPlan
from ingest.plans.protocol import Nonce, Plan
from ingest.plans.ranges import run_end, to_us
from ingest.plans.runs import Runs
from schemas.definitions.cron import Occurrences, parse_cron
from tests.property import plan_keyset
from tests.property.plan_intervals import LOOKBACK, SETTLE, START, spec_of
from tests.property.plan_keyset import Keyed
from tests.property.plan_source import EPOCH, Driver, S, Source, token_pages

EVERY = 120 * S


def named(occurrence: int) -> str:
    return f"r{occurrence // S}"


def driver_of(
    source: Source, *, keyset: bool = False, lookback: int | None = LOOKBACK, **spec: object
) -> Driver:
    """A plan whose runs end at every second minute."""
    runs = Runs(Occurrences(parse_cron("*/2 * * * *"), "UTC"), named)
    keyed = Keyed(source)

    def make(nonce: Nonce) -> Plan:
        if keyset:
            of_keyset = plan_keyset.spec_of(keyed, lookback=lookback)
            return KeysetPlan(of_keyset, "s/t", nonce, runs=runs)
        declared = replace(spec_of(source), lookback_us=lookback, **spec)  # type: ignore[arg-type]
        return IntervalPlan(declared, "s/t", nonce, retention_us=source.retention, runs=runs)

    return Driver(make, source, keyed.answer if keyset else None)


def over(now: int) -> int:
    """The end of the last run that has settled at `now`."""
    end = now - 700_000 - SETTLE
    return end - end % EVERY


class RunsOfPlans(RuleBasedStateMachine):
    """Every stretch belongs to one run, no run is begun before it is over, and none is left out."""

    @initialize(
        keyset=st.booleans(),
        lookback=st.sampled_from([None, LOOKBACK, 300 * S]),
        cap=st.sampled_from([None, 4]),
    )
    def start(self, keyset: bool, lookback: int | None, cap: int | None) -> None:
        cap = None if keyset else cap
        self.source = Source(pages=token_pages(3, stable=True), cap=cap)
        self.driver = driver_of(self.source, keyset=keyset, lookback=lookback, result_cap=cap)

    @rule(ago=st.integers(0, 390), count=st.integers(1, 9))
    def old_facts(self, ago: int, count: int) -> None:
        if self.driver.asked:
            return
        for _ in range(count):
            self.source.add(EPOCH - ago * S)

    @rule(count=st.integers(1, 6))
    def facts(self, count: int) -> None:
        for _ in range(count):
            self.source.add(self.source.now)

    @rule(seconds=st.sampled_from([1, 25, 90, 120, 700]))
    def wait(self, seconds: int) -> None:
        self.source.now += seconds * S

    @rule(count=st.integers(1, 12))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if not self.driver.step():
                break

    @rule()
    def keep(self) -> None:
        self.driver.keep()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def one_run_each(self) -> None:
        """The name follows from the stretch alone."""
        for mark in self.driver.compacted():
            start, end = to_us(mark.start or ""), to_us(mark.end or "")
            closed = end + -end % EVERY
            assert end <= over(self.source.now)
            assert start >= closed - EVERY, "it reaches into another run"
            assert mark.run == named(closed)
        for ask in self.driver.asked:
            end = to_us(ask.scope.split("~")[1])
            assert ask.run == named(end + -end % EVERY)
        self.driver.check_named()

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def never_ahead(self) -> None:
        state = self.driver.state
        if state.complete_before is None:
            return
        before, seen = to_us(state.complete_before), self.driver.seen()
        failed = self.driver.stretches("interval_failed")
        for fact in self.source.facts:
            if START <= fact.stamp < before and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in failed)

    def teardown(self) -> None:
        """After any downtime every run that is over was searched as a whole."""
        if not hasattr(self, "driver"):
            return
        self.source.now += 700 * S
        self.driver.poll()
        self.driver.poll()
        end = over(self.source.now)
        state, seen = self.driver.state, self.driver.seen()
        if not state.failed:
            assert to_us(state.complete_before or "") == end
        told = [(to_us(m.start or ""), to_us(m.end or "")) for m in self.driver.compacted()]
        assert run_end(START, told) == end
        failed = self.driver.stretches("interval_failed")
        for fact in self.source.facts:
            if START <= fact.stamp < end and fact.number not in seen:
                assert any(a <= fact.stamp < b for a, b in failed)


TestRunsOfPlans = RunsOfPlans.TestCase
TestRunsOfPlans.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_missed_runs_are_done_oldest_first() -> None:
    source = Source(pages=token_pages(3, stable=True))
    driver = driver_of(source, lookback=None)
    driver.poll()
    source.now += 5 * EVERY
    asked = len(driver.asked)
    driver.poll()
    ends = [int((ask.run or "")[1:]) * S for ask in driver.asked[asked:]]
    assert ends == [over(EPOCH) + n * EVERY for n in range(1, 6)]


def test_nothing_is_asked_before_the_next_run_is_over() -> None:
    source = Source(pages=token_pages(3, stable=True))
    driver = driver_of(source)
    driver.poll()
    asked = len(driver.asked)
    source.now = over(EPOCH) + EVERY + SETTLE
    driver.poll()
    assert len(driver.asked) == asked, "it has not settled by the provider's clock"
    source.now += S
    driver.poll()
    assert [ask.run for ask in driver.asked[asked:]] == [
        named(over(EPOCH)),
        named(over(EPOCH) + EVERY),
    ], "what is read again keeps the name of its own run"


def test_what_is_purged_before_it_was_asked_for_is_a_gap_of_each_run() -> None:
    source = Source(pages=token_pages(3, stable=True), retention=500 * S)
    driver = driver_of(source, lookback=None)
    driver.poll()
    source.now += 20 * EVERY
    driver.poll()
    gaps = driver.marks("gap")
    assert gaps and all(mark.run is not None for mark in gaps)
    assert to_us(driver.state.complete_before or "") == over(source.now)

"""A provider without a filter by time: its listing is walked newest first until it is behind the start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import Ask, Page
from ingest.plans.ranges import to_us
from schemas.definitions.source import End, Order, PagesSpec, Turn
from tests.property.plan_intervals import LOOKBACK, SETTLE, START, spec_of
from tests.property.plan_source import EPOCH, Driver, Fact, S, Source, page_of

SIZE = 3


@dataclass
class Listing:
    """Pages by number over what there is now: they shift while facts are added. `cap`: it shows no
    more than so many of the newest.
    """

    source: Source
    cap: int | None = None

    def answer(self, ask: Ask) -> tuple[list[Fact], Page]:
        shown = [f for f in self.source.facts if f.visible_at <= self.source.now]
        shown.sort(key=lambda f: (f.stamp, f.number), reverse=True)
        number = ask.values["page"]
        assert isinstance(number, int)
        rows = shown[: self.cap][(number - 1) * SIZE : number * SIZE]
        return rows, page_of(rows, self.source.clock(), times=[f.stamp for f in rows])


def driver_of(listing: Listing, cap: int | None = None) -> Driver:
    pages = PagesSpec(turn=Turn.PAGE, end=End.EMPTY, size=SIZE, first=1)
    spec = spec_of(listing.source, cap=cap)
    spec = replace(spec, order=Order.DESC, request=replace(spec.request, pages=pages))
    return Driver(
        lambda nonce: IntervalPlan(spec, "s/t", nonce, by_start=False, by_end=False),
        listing.source,
        listing.answer,
    )


class NewestFirst(RuleBasedStateMachine):
    """Nothing that was visible in time is passed over, and what is older is not read again."""

    @initialize()
    def start(self) -> None:
        self.source = Source(pages=None)
        self.driver = driver_of(Listing(self.source))

    @rule(ago=st.integers(0, 399), count=st.integers(1, 9))
    def old_facts(self, ago: int, count: int) -> None:
        if self.driver.asked:
            return
        for _ in range(count):
            self.source.add(EPOCH - ago * S)

    @rule(count=st.integers(1, 6))
    def facts(self, count: int) -> None:
        for _ in range(count):
            self.source.add(self.source.now)

    @rule(delay=st.integers(1, (SETTLE + LOOKBACK) // S - 2))
    def late(self, delay: int) -> None:
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
    def keep(self) -> None:
        self.driver.keep()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def never_ahead(self) -> None:
        state, seen = self.driver.state, self.driver.seen()
        if state.complete_before is None:
            return
        before = to_us(state.complete_before)
        for fact in self.source.facts:
            prompt = fact.visible_at - fact.stamp <= SETTLE - 2 * S
            if prompt and START <= fact.stamp < before:
                assert fact.number in seen
        self.driver.check_named()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        for seconds in ((SETTLE + LOOKBACK) // S + 2, 2):
            self.source.now += seconds * S
            for _ in range(3):  # a walk over pages that shifted is made again
                self.driver.poll()
        due = self.source.now - SETTLE - 4 * S
        missing = {f.number for f in self.source.facts if START <= f.stamp < due}
        assert missing <= self.driver.seen()


TestNewestFirst = NewestFirst.TestCase
TestNewestFirst.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def _listing(count: int, apart: int = 1) -> Listing:
    source = Source(pages=None)
    for n in range(count):
        source.add(EPOCH - 380 * S + n * apart * S)
    return Listing(source)


def test_the_whole_past_is_one_walk_and_the_next_poll_stops_behind_its_start() -> None:
    listing = _listing(30, apart=10)
    driver = driver_of(listing)
    driver.poll()
    assert len({ask.scope for ask in driver.asked}) == 1
    asked = len(driver.asked)
    listing.source.add(listing.source.now)
    listing.source.now += 30 * S
    driver.poll()
    assert 30 in driver.seen()
    assert 0 < len(driver.asked) - asked <= 8, "two walks of the pages within lookback"


def test_a_cap_is_no_trouble_while_the_walk_comes_behind_the_start() -> None:
    listing = _listing(30, apart=10)
    listing.cap = 9
    driver = driver_of(listing, cap=9)
    driver.poll()
    assert driver.marks("interval_failed"), "older facts are out of reach, which is visible"
    near = Listing(Source(pages=None), cap=9)
    near.source.add(START - 50 * S)
    for n in range(8):
        near.source.add(EPOCH - 60 * S + n * S)
    driver = driver_of(near, cap=9)
    driver.poll()
    assert not driver.marks("interval_failed")
    assert driver.marks("interval_complete")

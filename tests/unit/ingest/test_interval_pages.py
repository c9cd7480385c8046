"""How the interval plan turns pages: loops, empty pages, order, tokens, and the size of its state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import IDLE_PAGES_MAX, PASS_RANGES_MAX, Ask, Page
from ingest.plans.ranges import to_text
from schemas import codec
from schemas.records import Failed, SourceCheckpoint
from tests.property.plan_intervals import START, driver_of, spec_of, stable
from tests.property.plan_source import EPOCH, Driver, Fact, S, Source, page_of


def test_an_expired_token_begins_again_and_then_asks_for_less() -> None:
    source = Source(pages=stable(), token_lifetime=2 * S)
    for n in range(20):
        source.add(EPOCH - 50 * S - n * S)
    driver = driver_of(source)
    for _ in range(500):
        before = driver.state.complete_before
        if not driver.step():
            break
        source.now += 3 * S
        assert driver.state.complete_before == before or before is None or not driver.stalls
    assert not driver.stalls
    assert {f.number for f in source.facts} <= driver.seen()
    assert source.refusals > 1


def test_a_declared_lifetime_is_not_tried_out() -> None:
    source = Source(pages=stable(token_lifetime_s=60.0), token_lifetime=60 * S)
    for n in range(7):
        source.add(EPOCH - 50 * S - n)
    driver = driver_of(source)
    driver.step()
    driver.keep()
    source.now += 36 * 3600 * S
    driver.crash()
    driver.poll()
    assert source.refusals == 0
    assert {f.number for f in source.facts} <= driver.seen()


def test_a_token_used_before_is_a_loop_and_stalls() -> None:
    source = Source(pages=stable())

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        token = str(ask.values.get("token", "a"))
        fact = Fact(len(driver.asked), EPOCH - 50 * S, 0)
        return [fact], page_of([fact], source.clock(), next="b" if token == "a" else "a")

    driver = driver_of(source)
    driver._answer = answer
    driver.poll()
    assert "a circle" in driver.stalls[0].reason
    assert not driver.marks("interval_complete")
    asked = len(driver.asked)
    driver.poll()
    assert len(driver.asked) == asked + 1, "only the page in question is asked again"


@pytest.mark.parametrize("same", [True, False], ids=["empty", "repeated"])
def test_pages_that_lead_nowhere_end_at_a_declared_count(same: bool) -> None:
    source = Source(pages=stable())
    rows = [] if same else [Fact(1, EPOCH - 50 * S, 0)]
    driver = driver_of(source)

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        return rows, page_of(rows, source.clock(), next=f"t{len(driver.asked)}")

    driver._answer = answer
    driver.poll()
    assert "the declared end never came" in driver.stalls[0].reason
    assert IDLE_PAGES_MAX <= len(driver.asked) <= IDLE_PAGES_MAX + 1


def test_short_and_empty_pages_go_on_while_there_is_a_token() -> None:
    source = Source(pages=stable())
    answers = [([], "a"), ([1], "b"), ([], "c"), ([2, 3], None)]
    driver = driver_of(source)

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        numbers, token = answers[len(driver.asked) - 1]
        rows = [Fact(n, EPOCH - 50 * S, 0) for n in numbers]
        return rows, page_of(rows, source.clock(), next=token)

    driver._answer = answer
    driver.poll()
    assert driver.seen() == {1, 2, 3}
    [mark] = driver.marks("interval_complete")
    assert [(r.first, r.last, r.records) for r in mark.passes] == [(1, 4, 3)]


def test_the_declared_order_is_checked() -> None:
    source = Source(pages=stable(), order=1)
    driver = driver_of(source)
    rows = [Fact(1, EPOCH - 50 * S, 0), Fact(2, EPOCH - 60 * S, 0)]

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        return rows, page_of(rows, source.clock(), times=[f.stamp for f in rows])

    driver._answer = answer
    driver.poll()
    assert "declared order" in driver.stalls[0].reason and not driver.seen()


def test_an_ascending_walk_stops_behind_an_end_that_cannot_be_asked() -> None:
    source = Source(pages=stable(), order=1)
    early, late = Fact(1, EPOCH - 50 * S, 0), Fact(2, EPOCH + 50 * S, 0)
    declared = spec_of(source)
    driver = Driver(lambda nonce: IntervalPlan(declared, "s/t", nonce, by_end=False), source)

    def answer(ask: Ask) -> tuple[list[Fact], Page]:
        rows = [early, late]
        return rows, page_of(rows, source.clock(), next="more", times=[f.stamp for f in rows])

    driver._answer = answer
    driver.poll()
    assert len(driver.asked) == 1
    assert driver.seen() == {1, 2}, "a record outside the window is kept"
    assert driver.marks("interval_complete")


def test_a_checkpoint_stays_below_64_kb() -> None:
    """The worst of everything at once: open intervals, failed ones, restarts, long tokens."""
    source = Source(pages=stable())
    for n in range(4_000):
        source.add(EPOCH - 390 * S + n * 90_000)
    driver = driver_of(source)
    largest = 0
    for n in range(400):
        driver.step()
        if driver.state.open and driver.state.open[0].walk:
            largest = max(largest, len(driver.state.open[0].walk.passes))
        driver.keep()
        if n % 2:
            driver.crash()
    assert largest <= PASS_RANGES_MAX
    far = [
        Failed(to_text(START + n * 5 * S), to_text(START + (n * 5 + 1) * S), "x" * 60)
        for n in range(64)
    ]
    state = changed(driver.state, failed=far)
    walk = state.open[0].walk
    assert walk is not None
    state = changed(state, open=[changed(state.open[0], walk=changed(walk, token="t" * 4096))] * 8)
    checkpoint = SourceCheckpoint(
        partition_id="s/t", worker="w", sequence=1, written_at=1, plans={"interval": state}
    )
    assert len(codec.encode(checkpoint)) < 64_000


def test_an_interval_that_is_too_large_for_a_checkpoint_begins_again() -> None:
    source = Source(pages=stable())
    for n in range(1_000):
        source.add(EPOCH - 390 * S + n * 300_000)
    driver = driver_of(source)
    ranges = []
    for _ in range(150):
        driver.step()
        driver.keep()
        driver.crash()
        walk = driver.state.open[0].walk if driver.state.open else None
        ranges.append(len(walk.passes) if walk else 0)
    assert max(ranges) == PASS_RANGES_MAX
    driver.poll()
    assert {f.number for f in source.facts} <= driver.seen()
    driver.check_named()

"""Single rules of the interval plan, each on the smallest provider that needs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.control import obey
from ingest.emission import StreamState
from ingest.plans.interval import IntervalPlan
from ingest.plans.protocol import Refusal
from ingest.plans.ranges import to_text, to_us
from schemas.definitions.source import Bounds
from schemas.records import Control
from tests.property.plan_intervals import SETTLE, START, driver_of, spec_of, stable
from tests.property.plan_source import EPOCH, S, Source


def test_both_ends_are_fixed_before_the_first_request() -> None:
    source = Source(pages=stable())
    for n in range(7):
        source.add(EPOCH - (50 + n) * S)
    driver = driver_of(source)
    driver.step()
    source.now += 100 * S
    driver.step()
    first, second = driver.asked
    assert first.window == second.window
    assert first.values["end"] == source.clock().server // S * S - 100 * S - SETTLE


@pytest.mark.parametrize(
    ("bounds", "start", "end"),
    [
        (Bounds.CLOSED_OPEN, 0, 0),
        (Bounds.CLOSED, 0, 0),
        (Bounds.OPEN, -S, 0),
        (Bounds.OPEN_CLOSED, -S, 0),
        (Bounds.UNKNOWN, -S, S),
    ],
)
def test_bounds_widen_what_is_asked_and_never_the_interval(
    bounds: Bounds, start: int, end: int
) -> None:
    driver = driver_of(Source(pages=stable(), bounds=bounds))
    driver.poll()
    [ask] = driver.asked
    [mark] = driver.marks("caught_up")
    assert mark.start is not None and mark.end is not None
    assert ask.window == (to_us(mark.start) + start, to_us(mark.end) + end)
    assert driver.state.complete_before == mark.end


def test_what_is_purged_while_it_is_read_is_a_gap() -> None:
    source = Source(pages=stable(), retention=500 * S)
    facts = [source.add(EPOCH - 390 * S + n) for n in range(6)]
    driver = driver_of(source, retention=500 * S)
    driver.step()
    source.now += 200 * S
    driver.poll()
    assert driver.seen() == {f.number for f in facts[:3]}
    [gap] = driver.stretches("gap")
    assert gap[0] == START and gap[1] > facts[-1].stamp
    assert driver.stretches("interval_complete")[0][0] == gap[1]
    assert any(e.step.lost for e in driver.all)


@pytest.mark.parametrize("width", [None, 60 * S])
def test_36_hours_of_downtime_behind_a_horizon_of_24(width: int | None) -> None:
    hour = 3600 * S
    source = Source(pages=stable(), retention=24 * hour)
    driver = driver_of(source, retention=24 * hour, width_us=width)
    driver.poll()
    before = to_us(driver.state.complete_before or "")
    lost = source.add(source.now + 2 * hour)
    kept = source.add(source.now + 20 * hour)
    source.now += 36 * hour
    driver.crash()
    driver.poll()
    [gap] = driver.stretches("gap")
    assert gap[0] <= before and gap[1] > source.now - 24 * hour
    assert gap[1] <= source.now - 24 * hour + 3 * S
    assert gap[0] <= lost.stamp < gap[1]
    assert kept.number in driver.seen()
    assert to_us(driver.state.complete_before or "") > source.now - SETTLE - 3 * S


def test_the_default_start_makes_no_gap_of_what_nobody_had() -> None:
    source = Source(pages=stable(), retention=500 * S)
    driver = driver_of(source, retention=500 * S, start_us=None)
    driver.step()
    source.now += 5 * S
    driver.poll()
    assert not driver.marks("gap")
    source.now += 600 * S
    driver.poll()
    assert driver.marks("gap")


def test_where_the_providers_memory_begins_is_found_by_halves() -> None:
    """The horizon is not declared: the provider refuses what begins before it."""
    source = Source(pages=stable(), retention=100 * S, tells_gap=True)
    kept = [source.add(EPOCH - n * S) for n in range(95)]
    driver = driver_of(source)
    driver.poll()
    assert {f.number for f in kept} <= driver.seen() | {
        f.number for f in kept if f.stamp >= EPOCH - SETTLE - S
    }
    end = max(end for _, end in driver.stretches("gap"))
    assert EPOCH - 103 * S < end <= EPOCH - 99 * S
    assert source.refusals < 15


def test_a_dropped_interval_is_opened_again() -> None:
    """More halves than may stay open at once: the newest are opened anew, none is forgotten."""
    source = Source(pages=stable(), cap=3)
    start = EPOCH - 100_000 * S
    for n in range(12):
        source.add(start + n * S // 4)
        source.add(EPOCH - 90_000 * S + n * 7_000 * S)
    driver = driver_of(source, start_us=start, width_us=10**12, result_cap=None)
    most = 0
    for _ in range(5_000):
        if not driver.step():
            break
        most = max(most, len(driver.state.open))
    assert most == 8
    eligible = {
        f.number for f in source.facts if f.stamp < to_us(driver.state.complete_before or "")
    }
    failed = [(to_us(f.start), to_us(f.end)) for f in driver.state.failed]
    assert failed, "one second holds more than the cap"
    source.cap = None
    source.now += 10 * S
    for _ in range(10):
        driver.poll()
    assert not driver.state.failed
    assert eligible <= driver.seen()
    assert {f.number for f in source.facts if f.stamp < EPOCH - SETTLE - S} <= driver.seen()


def test_what_cannot_be_split_fails_visibly_and_the_others_go_on() -> None:
    source = Source(pages=stable(), cap=5)
    crowd = EPOCH - 200 * S
    for n in range(9):
        source.add(crowd + n)
    later = source.add(EPOCH - 100 * S)
    driver = driver_of(source, result_cap=5)
    driver.poll()
    [failed] = driver.state.failed
    assert (to_us(failed.start), to_us(failed.end)) == (crowd, crowd + S)
    [mark] = driver.marks("interval_failed")
    assert "unsplittable" in (mark.reason or "")
    assert driver.state.complete_before == failed.start
    assert later.number in driver.seen()
    assert len(driver.state.done) == 1, "ranges beyond it are one"
    claimed = driver.stretches("caught_up") + driver.stretches("interval_complete")
    assert not [c for c in claimed if c[0] < crowd + S and c[1] > crowd]

    accepted = obey(
        StreamState(plans={"interval": driver.state}),
        Control(
            action="accept_failed",
            about="s/t",
            start=failed.start,
            end=failed.end,
            by="me",
            note="a burst of test events",
            at=1,
        ),
    ).plans["interval"]
    assert not accepted.failed and not accepted.done
    assert accepted.complete_before is not None
    assert to_us(accepted.complete_before) > EPOCH - SETTLE - 3 * S


def test_a_failed_interval_heals_when_its_cause_is_gone() -> None:
    source = Source(pages=stable(), cap=5)
    crowd = [source.add(EPOCH - 200 * S + n) for n in range(9)]
    driver = driver_of(source, result_cap=None)
    driver.poll()
    assert driver.state.failed
    assert len(driver.marks("interval_failed")) == 1, "not tried again in the same poll"
    refusals = source.refusals
    driver.poll()
    assert driver.state.failed and source.refusals == refusals + 1, "one try in every poll"
    source.cap = None
    driver.poll()
    assert not driver.state.failed
    assert {f.number for f in crowd} <= driver.seen()
    assert to_us(driver.state.complete_before or "") > EPOCH - SETTLE - 3 * S


def test_a_capped_interval_at_its_smallest_keeps_what_it_can_get() -> None:
    source = Source(pages=stable(), cap=5, tells_cap=False)
    for n in range(9):
        source.add(EPOCH - 200 * S + n)
    driver = driver_of(source, result_cap=5)
    driver.poll()
    assert len(driver.seen()) == 5
    [mark] = driver.marks("interval_failed")
    assert sum(run.records for run in mark.passes) == 5


def test_a_slow_window_is_halved_and_widths_grow_again() -> None:
    source = Source(pages=stable(), slow=True)
    driver = driver_of(source, width_us=400 * S)
    driver.poll()
    assert driver.state.complete_before and not driver.state.failed
    narrow = driver.state.width_us
    assert narrow is not None and narrow <= 4 * S
    source.slow = False
    for _ in range(12):
        source.now += 400 * S
        driver.poll()
    assert (driver.state.width_us or 0) > 100 * S


def test_empty_windows_write_one_cumulative_mark() -> None:
    source = Source(pages=stable())
    driver = driver_of(source, width_us=100 * S)
    driver.poll()
    source.now += 30 * S
    driver.poll()
    marks = driver.marks("caught_up")
    assert len(marks) > 3 and {mark.start for mark in marks} == {to_text(START)}
    assert [mark.kind for mark in driver.compacted()] == ["caught_up"]
    source.add(source.now)
    source.now += 30 * S
    driver.poll()
    kinds = [mark.kind for mark in driver.compacted()]
    assert kinds == ["caught_up", "interval_complete", "interval_complete"]
    assert driver.all[-1].step.state.empty is None


def test_changing_what_is_asked_begins_again_from_the_start() -> None:
    source = Source(pages=stable())
    driver = driver_of(source)
    driver.poll()
    other = IntervalPlan(replace(spec_of(source), definition_hash="h2"), "s/t", lambda: "n")
    state = other.adopt(driver.state)
    assert (state.definition_hash, state.complete_before, state.open) == ("h2", None, [])
    begun = other.begin(state, source.clock())
    assert begun.complete_before == to_text(START)


def test_a_refusal_of_a_smallest_window_names_its_reason() -> None:
    source = Source(pages=stable())
    driver = driver_of(source, width_us=S)
    driver._answer = lambda ask: Refusal.SLOW
    driver.step()
    assert driver.state.failed[0].reason == "unsplittable: too slow"

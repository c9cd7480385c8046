"""Progress of long polls: never negative, never backwards, never guessed, and gone when the poll is over."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace as changed

from ingest.emission import Emission, StreamState
from ingest.headway import SAMPLES_KEPT, SILENT_US, US, Progress, moved, progress
from ingest.plans.ranges import scope_of, to_text
from schemas.records import Done, Failed, Headway, Observation, PlanState

DAY = 86_400 * US
BEGAN = 20_000 * DAY
START = BEGAN - 1_000 * DAY


def page(plan: str, scope: str, records: int, at: int) -> Observation:
    return Observation(
        partition_id="s/t", plan=plan, scope=scope, pass_="p", page=1, reason="changes",
        method="GET", url="/", definition_hash="h", status=200, requested_at=at,
        received_at=at + 1, records=[b"{}"] * records,
    )  # fmt: skip


def emission(name: str, plan: PlanState, *pages: Observation) -> Emission:
    return Emission("s/t", pages, (), StreamState(plans={name: plan}), 1)


@dataclass
class Poll:
    """One poll of a plan as the committer sees it, a page a transaction."""

    name: str = "interval"
    plan: PlanState = field(
        default_factory=lambda: PlanState(
            definition_hash="h", complete_before=to_text(START), polled_at=7
        )
    )
    now: int = BEGAN
    known: dict[str, Headway] = field(default_factory=dict)

    def commit(self, after_us: int, records: int, **changes: object) -> None:
        """One page becomes durable `after_us` later, with these changes of the plan's state."""
        asked_at, before = self.now, self.plan.polled_at
        self.now += after_us
        self.plan = changed(self.plan, **changes)
        scope = scope_of(to_text(START), to_text(START + DAY))
        one = emission(self.name, self.plan, page(self.name, scope, records, asked_at))
        self.known = moved(self.known, {self.name: before}, [one], self.now)

    def told(self, later_us: int = 0, *, held: bool = False) -> Progress:
        headway = self.known[self.name]
        return progress(self.name, headway, self.plan, self.now, self.now + later_us, held=held)


steps = st.lists(
    st.tuples(
        st.integers(0, 300 * US), st.integers(0, 500), st.integers(0, 200 * DAY), st.booleans()
    ),
    min_size=1,
    max_size=25,
)


@given(steps, st.integers(0, 400 * US))
def test_nothing_is_negative_and_the_share_only_rises(
    found: list[tuple[int, int, int, bool]], later_us: int
) -> None:
    poll, share, reach, pages, records = Poll(), 0.0, START, 0, 0
    for after_us, count, width, fails in found:
        far = [Failed(to_text(reach), to_text(reach + width), "x")] if fails and width else []
        reach += 0 if fails else width
        failed = [] if not fails else [*poll.plan.failed, *far]
        poll.commit(after_us, count, complete_before=to_text(reach), failed=failed[:1])
        pages, records = pages + 1, records + count
        told = poll.told(later_us)
        assert (told.pages, told.records) == (pages, records)
        assert told.share is not None and 0.0 <= told.share <= 1.0
        if not failed:
            assert told.share >= share, "what is proven is not taken back"
            share = told.share
        for one in (told.pages_per_s, told.records_per_s, told.left_s, told.elapsed_s):
            assert one is None or one >= 0
        assert len(poll.known["interval"].samples) <= SAMPLES_KEPT
        if told.left_s is not None:
            assert told.pages_per_s is not None, "time left without a rate"


@given(steps)
def test_without_a_rate_no_time_is_left(found: list[tuple[int, int, int, bool]]) -> None:
    poll, reach = Poll(), START
    for after_us, count, width, _ in found:
        reach += width
        poll.commit(after_us, count, complete_before=to_text(reach))
    assert poll.told(held=True).left_s is None
    silent = poll.told(SILENT_US)
    assert (silent.left_s, silent.pages_per_s, silent.records_per_s) == (None, None, None)
    assert silent.share == poll.told().share, "what is proven stays proven"


@given(st.integers(1, 40), st.integers(1, 20))
def test_a_steady_poll_is_foretold(intervals: int, seconds: int) -> None:
    """Ten days of the source's time for so many seconds: the rest takes as long for as much."""
    poll = Poll()
    for number in range(1, intervals + 1):
        reach = START + number * 10 * DAY
        poll.commit(seconds * US, 500, complete_before=to_text(reach))
    told = poll.told()
    assert told.share is not None and abs(told.share - intervals / 100) < 1e-9
    assert told.left_s is not None and abs(told.left_s - (100 - intervals) * seconds) < 1e-3
    assert told.records_per_s is not None and abs(told.records_per_s - 500 / seconds) < 1e-6


@given(st.sampled_from(["snapshot", "cursor", "singer", "python"]), steps)
def test_what_has_no_range_has_no_share(name: str, found: list[tuple[int, int, int, bool]]) -> None:
    poll = Poll(name=name)
    for after_us, count, _, _ in found:
        poll.commit(after_us, count)
    told = poll.told()
    assert (told.share, told.left_s) == (None, None)
    assert told.pages == len(found)


def test_stretches_complete_out_of_order_count_once() -> None:
    poll = Poll()
    poll.commit(10 * US, 1, done=[Done(to_text(START + 500 * DAY), to_text(START + 600 * DAY))])
    assert poll.told().share == 0.1
    poll.commit(10 * US, 1, complete_before=to_text(START + 550 * DAY))
    assert poll.told().share == 0.6


def test_a_poll_that_is_over_leaves_nothing_and_the_next_begins_anew() -> None:
    poll = Poll()
    poll.commit(10 * US, 5)
    poll.commit(10 * US, 5, polled_at=8, complete_before=to_text(BEGAN))
    assert poll.known == {}
    poll.commit(10 * US, 3, polled_at=9)
    assert poll.known == {}, "a poll of one page is over with it"
    poll.commit(10 * US, 3)
    assert (poll.known["interval"].records, poll.known["interval"].polled_at) == (3, 9)


def test_a_rate_is_that_of_the_last_minutes() -> None:
    poll = Poll()
    for _ in range(120):
        poll.commit(60 * US, 6_000)
    for _ in range(10):
        poll.commit(60 * US, 60)
    told = poll.told()
    assert told.records_per_s == 1.0 and told.records == 720_600


def test_pages_of_a_scope_that_is_no_interval_have_no_share() -> None:
    one = emission("interval", Poll().plan, page("interval", "s", 1, BEGAN))
    found = moved({}, {"interval": 7}, [one], BEGAN + US)["interval"]
    assert found.start is None and found.pages == 1

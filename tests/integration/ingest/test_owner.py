"""An owner on a real log partition: take-over, decisions, ticks, heals, faults of its pollers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ingest import committer
from ingest.budget import Steady, Tail
from ingest.buffer import ByteBudget
from ingest.decisions import Decisions
from ingest.emission import Emit, Poller, StreamState
from ingest.log_thread import LogThread
from ingest.metrics import Horizon
from ingest.owner import Owner
from ingest.partition_log import KafkaPartitionLog
from ingest.process import now_us
from ingest.surroundings import Surroundings
from ingest.watchdog import Watchdog
from schemas import codec
from schemas.failpoints import Hit, none
from schemas.records import Control, Mark
from schemas.settings import Settings
from tests.integration.ingest import log
from tests.integration.ingest.scripted import NumberedPages, Source, next_page, obey
from tests.integration.ingest.test_restore_log import recreate, writer
from tests.waiting import until

A, B = "src/a", "src/b"
# what abandoning a fenced producer looks like
pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")


class Scene:
    """Owners of log partition 0 in one event loop, each with its own decisions and thread."""

    def __init__(self, settings: Settings, watchdog: Watchdog) -> None:
        self.settings, self._watchdog = settings, watchdog
        self._tasks: list[asyncio.Task[None]] = []
        self._decisions: list[Decisions] = []
        self.owners: list[Owner] = []

    async def own(self, pollers: Mapping[str, Poller], hit: Hit = none) -> Owner:
        """Starts an owner; the earlier ones are not told."""
        decisions = Decisions(self.settings)
        await asyncio.to_thread(decisions.read)
        decisions.follow(asyncio.get_running_loop())
        self._decisions.append(decisions)
        around = Surroundings(
            settings=self.settings,
            bytes=ByteBudget(self.settings.buffer_bytes),
            decisions=decisions,
            obey=obey,
            horizon_of=lambda _: Horizon(),
            pace=Steady(),
            persist=Tail(),
            now=now_us,
        )
        thread = LogThread(f"test-{secrets.token_hex(2)}")
        owner = Owner(
            0,
            around,
            pollers,
            lambda: KafkaPartitionLog(self.settings, 0, thread, self._watchdog, now_us, hit),
            thread.end,
        )
        self.owners.append(owner)
        self._tasks.append(asyncio.create_task(owner.run()))
        return owner

    async def fetched(self, owner: str, count: int) -> None:
        """Waits until the newest checkpoint covers `count` pages."""

        def covered() -> int:
            found = log.checkpoints(self.settings).get(owner)
            return 0 if found is None else next_page(committer.state_of(found)) - 1

        async with asyncio.timeout(60):
            while await asyncio.to_thread(covered) < count:
                self._raise_faults()

    def _raise_faults(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        for owner in self.owners:
            owner.stop()
        await asyncio.gather(*self._tasks)
        for decisions in self._decisions:
            await asyncio.to_thread(decisions.stop)


@asynccontextmanager
async def scene(settings: Settings, watchdog: Watchdog) -> AsyncIterator[Scene]:
    found = Scene(settings, watchdog)
    async with asyncio.timeout(90):
        try:
            yield found
        finally:
            await found.end()


def drive(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def source(owner: str = A, pages: int = 20, **more: Any) -> Source:
    return Source(owner, pages, **more)


def pollers(*sources: Source) -> dict[str, Poller]:
    return {one.partition_id: NumberedPages(one) for one in sources}


def decide(settings: Settings, about: str, action: str = "reset") -> int:
    control = Control(action=action, about=about, by="test", note="", at=now_us())  # type: ignore[arg-type]
    return log.put(settings, settings.control, f"{about} {action}", codec.encode(control))


def counter(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_a_new_owner_takes_over_and_the_old_one_waits_its_turn(
    settings: Settings, watchdog: Watchdog
) -> None:
    async def work() -> None:
        holding = True
        first_source = source(pages=12, hold=lambda page: holding and page == 8)
        fenced = counter("gapless_ingest_fenced_total")
        async with scene(settings, watchdog) as s:
            await s.own(pollers(first_source))
            await s.fetched(A, 7)
            second_source = source(pages=12)
            await s.own(pollers(second_source))
            await s.fetched(A, 12)
            assert second_source.fetched == 5, "it continued and did not begin again"
            holding = False
            await until(
                lambda: counter("gapless_ingest_fenced_total") > fenced,
                20,
                "the first to be fenced",
            )
        assert log.pages(settings, A) == list(range(1, 13))

    drive(work())


def test_an_unclear_commit_leads_to_a_new_producer(settings: Settings, watchdog: Watchdog) -> None:
    async def work() -> None:
        hits: list[str] = []

        def lose_answers(name: str) -> None:
            hits.append(name)
            if name == "ingest.answer_lost" and hits.count(name) in (1, 3):
                raise ConnectionError("the answer was lost")

        async with scene(settings, watchdog) as s:
            await s.own(pollers(source(pages=30)), lose_answers)
            await s.fetched(A, 30)
        assert hits.count("ingest.before_fence") == 3
        assert log.pages(settings, A) == list(range(1, 31)), "committed: read, not guessed"

    drive(work())


def test_a_decision_is_obeyed_while_it_runs_and_remembered(
    settings: Settings, watchdog: Watchdog
) -> None:
    async def work() -> None:
        one, other = source(A, 5), source(B, 5)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(one, other))
            await s.fetched(A, 5)
            await s.fetched(B, 5)
            offset = decide(settings, A)
            await until(lambda: one.fetched == 10, 20, "the reset to be obeyed")
            await s.fetched(A, 5)
        newest = log.checkpoints(settings)
        assert newest[A].control_offset == offset
        assert (newest[B].control_offset, other.fetched) == (-1, 5), "it was about the other one"
        again = source(A, 5)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(again))
            await s.fetched(A, 5)
        assert again.fetched == 0, "a decision is obeyed once"

    drive(work())


def test_a_decision_made_while_nobody_ran_is_obeyed_at_start(
    settings: Settings, watchdog: Watchdog
) -> None:
    async def work() -> None:
        async with scene(settings, watchdog) as s:
            await s.own(pollers(source(A, 5)))
            await s.fetched(A, 5)
        decide(settings, "src")
        again = source(A, 5)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(again))
            await until(lambda: again.fetched == 5, 20, "it to begin again")
            await s.fetched(A, 5)

    drive(work())


def test_a_decision_interrupts_a_fetch_that_hangs(settings: Settings, watchdog: Watchdog) -> None:
    async def work() -> None:
        hanging = True
        stuck = source(A, 4, hold=lambda page: hanging and page == 3)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(stuck))
            await s.fetched(A, 2)
            decide(settings, A)
            await until(lambda: stuck.fetched == 4, 20, "the first two pages again")
            hanging = False
            await s.fetched(A, 4)
        assert log.pages(settings, A) == [1, 2, 1, 2, 3, 4]

    drive(work())


def test_ticks_keep_an_idle_partition_alive(settings: Settings, watchdog: Watchdog) -> None:
    async def work() -> None:
        ticking = settings.model_copy(update={"tick_s": 0.3})
        async with scene(ticking, watchdog) as s:
            await s.own({})
            await until(lambda: len(log.observations(settings)) >= 2, 20, "two ticks")
        for seen in log.observations(settings):
            assert isinstance(seen.content, Mark) and seen.content.kind == "tick"
        assert log.checkpoints(settings) == {}

    drive(work())


def test_a_fall_back_is_written_before_anything_else(
    settings: Settings, watchdog: Watchdog
) -> None:
    """Else the next page of another partition id would make the invalid checkpoint look valid."""
    with writer(settings) as w:
        w.pages(A, 1, 2)
        w.pages(B, 1, 2)
    recreate(settings, settings.observations)

    async def work() -> None:
        one, other = source(A, 2, hold=lambda page: True), source(B, 30)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(one, other))
            await s.fetched(B, 30)
            stopped_at = log.checkpoints(settings)[A]
            assert (next_page_of(stopped_at), stopped_at.named) == (1, None)
            s.owners[0].stop()

    drive(work())
    kinds = [s.content.kind for s in log.observations(settings) if isinstance(s.content, Mark)]
    assert kinds == ["tick", "interval_complete"]
    assert log.pages(settings, B) == list(range(1, 31)), "fetched again from the beginning"


def next_page_of(checkpoint: object) -> int:
    return next_page(checkpoint)  # type: ignore[arg-type]


def test_a_poller_that_raises_is_shown_and_cured(settings: Settings, watchdog: Watchdog) -> None:
    class Faulty(NumberedPages):
        faults = 0

        async def poll(self, emit: Emit) -> None:
            if next_page(self._state) == 1 and self.faults < 1:
                self.faults += 1
                raise ZeroDivisionError("a fault of ours")
            await super().poll(emit)

    async def work() -> None:
        bad, good = Faulty(source(A, 3)), NumberedPages(source(B, 3))
        async with scene(settings, watchdog) as s:
            await s.own({A: bad, B: good})
            await until(lambda: A in log.checkpoints(settings), 20, "the fault to be shown")
            shown = log.checkpoints(settings)[A].blocked
            assert shown is None or shown.reason == "internal_error"
            await s.fetched(A, 3)
            await s.fetched(B, 3)
            assert log.checkpoints(settings)[A].blocked is None

    drive(work())


def test_a_state_that_cannot_be_continued_holds_up_nobody_else(
    settings: Settings, watchdog: Watchdog
) -> None:
    class Unreadable(NumberedPages):
        def restore(self, state: StreamState | None) -> None:
            raise KeyError("written by another version")

    async def work() -> None:
        async with scene(settings, watchdog) as s:
            await s.own({A: Unreadable(source(A, 3)), B: NumberedPages(source(B, 3))})
            await s.fetched(B, 3)
            await until(lambda: A in log.checkpoints(settings), 20, "the fault to be shown")
        blocked = log.checkpoints(settings)[A].blocked
        assert blocked is not None and blocked.reason == "internal_error"
        async with scene(settings, watchdog) as s:
            await s.own(pollers(source(A, 3)))
            await s.fetched(A, 3)
        assert log.checkpoints(settings)[A].blocked is None, "a better version cures it"

    drive(work())


def test_a_decision_that_makes_no_sense_is_passed_over(
    settings: Settings, watchdog: Watchdog
) -> None:
    async def work() -> None:
        one = source(A, 3)
        async with scene(settings, watchdog) as s:
            await s.own(pollers(one))
            await s.fetched(A, 3)
            decide(settings, A, "accept_failed")
            offset = decide(settings, A, "reset")
            await until(lambda: one.fetched == 6, 20, "the decision behind it to be obeyed")
            await s.fetched(A, 3)
        assert log.checkpoints(settings)[A].control_offset == offset

    drive(work())


def test_pages_in_flight_are_bounded_while_the_log_is_slow(
    settings: Settings, watchdog: Watchdog
) -> None:
    async def work() -> None:
        many = source(pages=50)
        ahead: list[int] = []
        durable = 0

        def slow(name: str) -> None:
            nonlocal durable
            if name == "ingest.before_commit":
                ahead.append(many.fetched - durable)
            if name == "ingest.after_commit":
                durable = len(log.pages(settings, A))

        async with scene(settings, watchdog) as s:
            await s.own(pollers(many), slow)
            await s.fetched(A, 50)
        # one more is fetched and waits for its place
        assert max(ahead) <= settings.pages_in_flight + 1

    drive(work())

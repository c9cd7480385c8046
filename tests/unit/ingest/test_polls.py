"""Polls run when they are due, one at a time per partition id; a failing poller holds up nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ingest.emission import Emission, Emit, Poller, StreamState
from ingest.polls import Polls
from tests.waiting import until

_US = 1_000_000
NEVER = 2**60


def now() -> int:
    return time.time_ns() // 1_000


class Keeper:
    """Keeps what was emitted; `open` False closes the gate."""

    def __init__(self, endless: bool = True) -> None:
        self.endless, self.open = endless, True
        self.emitted: list[str] = []
        self.failures: list[tuple[str, str]] = []
        self.cured: list[str] = []

    def may_ask(self) -> bool:
        return self.open

    def left(self, partition_id: str, due_at: int) -> bool:
        return due_at <= now()

    def awaits(self, left: bool, due_at: int) -> bool:
        return self.endless or left

    async def emit(self, emission: Emission) -> None:
        self.emitted.append(emission.partition_id)

    async def failed(self, partition_id: str, error: Exception) -> None:
        self.failures.append((partition_id, str(error)))

    async def recovered(self, partition_id: str) -> None:
        self.cured.append(partition_id)


class Scripted:
    """A poller that does what it is told, again and again; `due_at` is set by the script."""

    def __init__(
        self,
        partition_id: str,
        script: Callable[[Scripted, Emit], Awaitable[None]],
        due_at: int = 0,
    ) -> None:
        self.partition_id, self.due_at, self._script = partition_id, due_at, script
        self.polls = 0

    def restore(self, state: StreamState | None) -> None:
        return None

    async def poll(self, emit: Emit) -> None:
        self.polls += 1
        await self._script(self, emit)


def step(owner: str) -> Emission:
    return Emission(owner, (), (), StreamState(), 1)


async def once(poller: Scripted, emit: Emit) -> None:
    await emit(step(poller.partition_id))
    poller.due_at = NEVER


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await work

    asyncio.run(bounded())


def polls_of(keeper: Keeper, *pollers: Poller) -> Polls:
    polls = Polls(keeper, now)
    polls.begin({poller.partition_id: poller for poller in pollers})
    return polls


def test_what_is_due_is_polled_in_the_order_of_its_time() -> None:
    async def work() -> None:
        keeper = Keeper(endless=False)
        pollers = [Scripted(f"s/{n}", once, due_at=100 - n) for n in range(5)]
        await polls_of(keeper, *pollers).run()
        assert keeper.emitted == ["s/4", "s/3", "s/2", "s/1", "s/0"]

    run(work())


def test_a_poll_waits_for_its_time() -> None:
    async def work() -> None:
        keeper = Keeper()
        asked: list[int] = []

        async def note(poller: Scripted, emit: Emit) -> None:
            asked.append(now())
            await once(poller, emit)

        due_at = now() + 300_000
        polls = polls_of(keeper, Scripted("s/a", note, due_at))
        running = asyncio.create_task(polls.run())
        await until(lambda: bool(asked), 5, "the poll")
        assert due_at <= asked[0] < due_at + 2 * _US
        await polls.stop()
        await running

    run(work())


def test_a_failing_poller_holds_up_nobody_and_is_tried_again() -> None:
    async def work() -> None:
        keeper = Keeper()

        async def fail_once(poller: Scripted, emit: Emit) -> None:
            if poller.polls == 1:
                raise ZeroDivisionError("a fault of ours")
            await once(poller, emit)

        bad, good = Scripted("s/bad", fail_once), Scripted("s/good", once)
        polls = polls_of(keeper, bad, good)
        running = asyncio.create_task(polls.run())
        await until(lambda: "s/bad" in keeper.emitted, 5, "the poll")
        assert keeper.emitted == ["s/good", "s/bad"]
        assert keeper.failures == [("s/bad", "a fault of ours")]
        assert keeper.cured == ["s/bad"]
        await polls.stop()
        await running

    run(work())


def test_a_hanging_poll_holds_up_nobody() -> None:
    async def work() -> None:
        keeper = Keeper()

        async def hang(poller: Scripted, emit: Emit) -> None:
            await asyncio.Event().wait()

        polls = polls_of(keeper, Scripted("s/hangs", hang), Scripted("s/good", once))
        running = asyncio.create_task(polls.run())
        await until(lambda: "s/good" in keeper.emitted, 5, "the poll")
        await polls.stop()
        await running

    run(work())


def test_an_idle_poller_that_stays_due_does_not_spin() -> None:
    async def work() -> None:
        keeper = Keeper()

        async def nothing(poller: Scripted, emit: Emit) -> None:
            return None

        lazy = Scripted("s/lazy", nothing)
        polls = polls_of(keeper, lazy)
        running = asyncio.create_task(polls.run())
        await asyncio.sleep(0.2)
        assert lazy.polls == 1
        await polls.stop()
        await running

    run(work())


def test_a_closed_gate_ends_a_poll_before_its_next_request() -> None:
    async def work() -> None:
        keeper = Keeper(endless=False)
        requests: list[int] = []

        async def walk(poller: Scripted, emit: Emit) -> None:
            for number in range(100):
                await asyncio.sleep(0)  # the request
                requests.append(number)
                keeper.open = number < 2
                await emit(step(poller.partition_id))

        late = Scripted("s/late", once, due_at=1)
        polls = polls_of(keeper, Scripted("s/long", walk))
        await polls.run()
        assert requests == [0, 1, 2]
        assert keeper.emitted == ["s/long"] * 3
        assert polls.unfinished == ["s/long"]
        assert late.polls == 0

    run(work())


def test_an_interrupted_poll_begins_again_only_when_told() -> None:
    async def work() -> None:
        keeper = Keeper()

        async def hang(poller: Scripted, emit: Emit) -> None:
            await emit(step(poller.partition_id))
            await asyncio.Event().wait()

        poller = Scripted("s/a", hang)
        polls = polls_of(keeper, poller)
        running = asyncio.create_task(polls.run())
        await until(lambda: poller.polls == 1, 5, "the poll")
        await polls.interrupt("s/a")
        await asyncio.sleep(0.1)
        assert poller.polls == 1
        polls.reschedule("s/a")
        await until(lambda: poller.polls == 2, 5, "the poll")
        await polls.stop()
        await running

    run(work())


def test_a_partition_id_that_comes_is_polled_and_one_that_goes_is_not_any_more() -> None:
    async def work() -> None:
        keeper = Keeper()

        async def hang(poller: Scripted, emit: Emit) -> None:
            await emit(step(poller.partition_id))
            await asyncio.Event().wait()

        gone, stays = Scripted("s/gone", hang), Scripted("s/stays", hang)
        polls = polls_of(keeper, gone, stays)
        running = asyncio.create_task(polls.run())
        await until(lambda: gone.polls == stays.polls == 1, 5, "both polls")
        await polls.remove("s/gone")
        await polls.remove("s/never-was")
        comes = Scripted("s/comes", once)
        polls.add("s/comes", comes)
        await until(lambda: "s/comes" in keeper.emitted, 5, "the new one")
        assert sorted(polls.pollers) == ["s/comes", "s/stays"]
        assert (gone.polls, stays.polls) == (1, 1), "the others were not disturbed"
        again = Scripted("s/gone", once)
        polls.add("s/gone", again)
        await until(lambda: again.polls == 1, 5, "the one that came back")
        await polls.stop()
        await running

    run(work())

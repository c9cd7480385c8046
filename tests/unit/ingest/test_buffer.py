"""The buffer: order per partition id, bounded places and bytes, room given back only when durable."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ingest.buffer import Buffer, ByteBudget
from ingest.emission import Emission, StreamState


def emission(owner: str, size: int = 10, mark: int = 0) -> Emission:
    return Emission(owner, (), (), StreamState(control_offset=mark), size)


def drive(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(5):
            await work

    asyncio.run(bounded())


async def settle() -> None:
    """Lets every task go on until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_partition_id_waits_at_its_limit_and_others_do_not() -> None:
    async def work() -> None:
        buffer = Buffer(2, ByteBudget(1000))
        for number in range(2):
            await buffer.put(emission("a", mark=number))
        third = asyncio.create_task(buffer.put(emission("a", mark=2)))
        await buffer.put(emission("b"))
        await settle()
        assert not third.done()
        assert buffer.starved
        buffer.take(1)
        await settle()
        assert not third.done(), "in an open transaction is not durable"
        buffer.settled()
        await settle()
        assert third.done()
        assert [e.state.control_offset for e in buffer.waiting() if e.partition_id == "a"] == [1, 2]

    drive(work())


def test_bytes_are_shared_first_come_first_served() -> None:
    async def work() -> None:
        budget = ByteBudget(100)
        one, two = Buffer(9, budget), Buffer(9, budget)
        await one.put(emission("a", 60))
        large = asyncio.create_task(two.put(emission("b", 70)))
        await settle()
        small = asyncio.create_task(one.put(emission("c", 10)))
        await settle()
        assert not large.done()
        assert not small.done(), "a small one does not overtake a large one for ever"
        one.discard()
        await settle()
        assert large.done() and small.done()
        assert budget.used_bytes == 80

    drive(work())


def test_what_exceeds_the_whole_budget_is_let_in_alone() -> None:
    async def work() -> None:
        budget = ByteBudget(100)
        buffer = Buffer(9, budget)
        await buffer.put(emission("a", 500))
        second = asyncio.create_task(buffer.put(emission("a", 1)))
        await settle()
        assert not second.done()
        buffer.take(1)
        buffer.settled()
        await second
        assert budget.used_bytes == 1

    drive(work())


@pytest.mark.parametrize("cancel_at", range(6))
def test_a_cancelled_emitter_leaves_no_trace(cancel_at: int) -> None:
    """Whenever it is cancelled, the places and bytes add up and the rest goes on."""

    async def work() -> None:
        budget = ByteBudget(100)
        buffer = Buffer(1, budget)
        await buffer.put(emission("a", 90))
        waiting = asyncio.create_task(buffer.put(emission("b", 80)))
        behind = asyncio.create_task(buffer.put(emission("c", 5)))
        await settle()
        buffer.take(1)
        buffer.settled()
        for _ in range(cancel_at):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await behind
        kept = {e.partition_id: e.size for e in buffer.waiting()}
        assert budget.used_bytes == sum(kept.values())
        assert ("b" in kept) == (not waiting.cancelled())
        buffer.discard()
        assert budget.used_bytes == 0
        await buffer.put(emission("b", 100))
        assert not buffer.starved

    drive(work())


def test_concurrent_emits_of_one_partition_id_keep_their_order() -> None:
    async def work() -> None:
        buffer = Buffer(1, ByteBudget(100))
        emits = [
            asyncio.create_task(buffer.put(emission("a", size=30 - n, mark=n))) for n in range(6)
        ]
        seen: list[int] = []
        while len(seen) < 6:
            await buffer.filled(0, 1)
            seen += [held.emission.state.control_offset for held in buffer.take(1)]
            buffer.settled()
        assert seen == list(range(6))
        await asyncio.gather(*emits)

    drive(work())


def test_lingering_ends_early_when_nobody_can_add_more() -> None:
    async def work() -> None:
        buffer = Buffer(1, ByteBudget(1000))
        filled = asyncio.create_task(buffer.filled(60, 50))
        await buffer.put(emission("a"))
        await settle()
        assert not filled.done(), "lingers for more"
        late = asyncio.create_task(buffer.put(emission("a")))
        await filled
        late.cancel()

    drive(work())


def test_an_ended_buffer_wakes_the_committer() -> None:
    async def work() -> None:
        buffer = Buffer(1, ByteBudget(1000))
        filled = asyncio.create_task(buffer.filled(60, 50))
        await settle()
        buffer.end()
        await filled
        assert not len(buffer)

    drive(work())

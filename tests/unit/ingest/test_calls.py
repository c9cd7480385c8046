"""Calls of foreign code: a result, an error, or a thread that hangs and holds nobody up."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from ingest.calls import Calls, Overrun, Strange


def stop_iteration() -> None:
    raise StopIteration  # no future may hold one


def leave() -> None:
    sys.exit(3)


def test_results_and_errors_come_back() -> None:
    async def main() -> None:
        calls = Calls()
        assert await calls.call("a", lambda: 5, 20) == 5
        with pytest.raises(ZeroDivisionError):
            await calls.call("a", lambda: 1 // 0, 20)
        with pytest.raises(Strange, match="StopIteration"):
            await calls.call("a", stop_iteration, 20)
        with pytest.raises(Strange, match="SystemExit"):
            await calls.call("a", leave, 20)
        with pytest.raises(TimeoutError, match="its own"):
            await calls.call("a", timeout_of_its_own, 20)

    asyncio.run(main())


def timeout_of_its_own() -> None:
    raise TimeoutError("its own")


def test_a_call_that_hangs_holds_nobody_up_and_few_may_hang() -> None:
    let_go = threading.Event()

    async def main() -> None:
        calls = Calls(at_once=1, hung_max=2)
        for _ in range(2):
            with pytest.raises(Overrun, match=r"no return within 0\.05 s"):
                await calls.call("a", lambda: let_go.wait(60), 0.05)
        with pytest.raises(Overrun, match="2 earlier calls have not returned yet"):
            await calls.call("a", lambda: True, 20)
        assert await calls.call("b", lambda: "others go on", 20) == "others go on"
        let_go.set()
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await calls.call("a", lambda: "again", 20) == "again"
                    break
                except Overrun:
                    await asyncio.sleep(0.01)

    try:
        asyncio.run(main())
    finally:
        let_go.set()


def test_the_loop_runs_while_a_call_does() -> None:
    async def main() -> None:
        loop_ran = threading.Event()
        call = asyncio.create_task(Calls().call("a", lambda: loop_ran.wait(20), 30))
        await asyncio.sleep(0)
        loop_ran.set()
        assert await call is True

    asyncio.run(main())


def test_a_cancelled_call_is_left_to_its_thread() -> None:
    let_go = threading.Event()

    async def main() -> None:
        calls, begun = Calls(hung_max=1), threading.Event()

        def work() -> None:
            begun.set()
            let_go.wait(60)

        call = asyncio.create_task(calls.call("a", work, 30))
        await asyncio.to_thread(begun.wait, 20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(Overrun):
            await calls.call("a", lambda: None, 1)

    try:
        asyncio.run(main())
    finally:
        let_go.set()

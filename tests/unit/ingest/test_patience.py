"""How long a poll waits for its provider: by its credential's pressure, its patience and its deadline."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from tests.unit.ingest.polling import EVENTS, after, good, page, polling, run


def test_throttling_near_the_deadline_is_durable_and_not_sat_out(tmp_path: Path) -> None:
    """The wait would fit into the budget, but what is asked after it could not be stored."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "3"})

    text = EVENTS.replace("wait_max: 2s", "wait_max: 5m")

    async def main() -> None:
        async with polling(tmp_path, text, handler, budget_s=4) as polled:
            await polled.poll()
            assert (polled.state.not_before or 0) / 1e6 - time.time() > 2
            assert len(polled.provider.requests) == 1
            polled.poller.restore(None)
            await polled.poll()  # as another partition id of this credential would
            assert len(polled.provider.requests) == 1
            assert (polled.state.not_before or 0) / 1e6 - time.time() > 2

    asyncio.run(main())


def test_an_answer_that_could_not_be_stored_in_time_is_left_for_the_next_run(
    tmp_path: Path,
) -> None:
    """The hurry is ours: the interval is not asked in halves for it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(5)
        return page([])

    async def main() -> None:
        async with polling(tmp_path, EVENTS, handler, budget_s=2.4) as polled:
            begun = time.monotonic()
            await polled.poll()
            assert time.monotonic() - begun < 2
            assert polled.blocked == ""
            assert 0 < (polled.state.not_before or 0) / 1e6 <= time.time()
            plan = polled.state.plans["interval"]
            assert (len(plan.open), plan.failed, plan.done) == (1, [], [])

    asyncio.run(main())


def test_how_long_answers_took_is_handed_on_to_the_checkpoint(tmp_path: Path) -> None:
    """Also of an answer without records: asking takes as long."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return page([])

    polled = run(tmp_path, EVENTS, handler)
    assert 0.2 <= max(emission.answer_s for emission in polled.emissions) < 5


def test_who_is_told_at_once_again_and_again_waits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []

    def backoff(attempt: int, share: float) -> float:
        waits.append(attempt)
        return 0.01

    monkeypatch.setattr("ingest.exchange.backoff_s", backoff)

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "Mon, 21 Sep 2020 14:14:20 GMT"})

    polled = run(tmp_path, EVENTS, handler)
    assert len(polled.provider.requests) == 3
    assert waits[:2] == [2, 3]
    assert polled.blocked == "" and polled.state.not_before is not None


@pytest.mark.parametrize("status", [429, 503])
def test_the_present_concurrency_is_shown(tmp_path: Path, status: int) -> None:
    def limit() -> float | None:
        labels = {"source": "shop", "tenant": ""}
        return REGISTRY.get_sample_value("gapless_ingest_concurrency_limit", labels)

    def busy(request: web.Request) -> web.StreamResponse:
        assert limit() == 4
        return web.Response(status=status, headers={"Retry-After": "0"})

    polled = run(tmp_path, EVENTS, after(1, busy, good))
    assert (polled.blocked, limit()) == ("", 2)

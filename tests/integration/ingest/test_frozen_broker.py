"""A broker that stands still while a commit is under way: the outcome is read, never guessed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from ingest.watchdog import Watchdog
from ops.stack import Stack
from schemas.settings import Settings
from tests.integration.ingest import log
from tests.integration.ingest.conftest import with_topics
from tests.integration.ingest.test_owner import A, pollers, scene, source

pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")


def test_a_commit_that_timed_out_is_decided_by_the_log(
    own_stack: Stack, watchdog: Watchdog
) -> None:
    settings = with_topics(
        Settings(
            kafka=own_stack.kafka.address,
            prefix="frozen.",
            partitions=1,
            session_timeout_ms=1_000,
            transaction_timeout_ms=10_000,
            message_timeout_ms=3_000,
            linger_s=0.01,
            worker="w1",
        )
    )
    broker = own_stack.kafka.pid
    hits: list[str] = []

    def freeze_second_commit(name: str) -> None:
        hits.append(name)
        if name == "ingest.before_commit" and hits.count(name) == 2:
            os.kill(broker, signal.SIGSTOP)
            # longer than the commit's time-out, so that its answer is lost
            threading.Timer(7, os.kill, (broker, signal.SIGCONT)).start()

    async def work() -> None:
        async with scene(settings, watchdog) as s:
            await s.own(pollers(source(pages=30)), freeze_second_commit)
            await s.fetched(A, 30)

    asyncio.run(work())
    assert hits.count("ingest.before_fence") >= 2, "the producer was not used again"
    pages = log.pages(settings, A)
    assert set(pages) == set(range(1, 31))
    named = log.checkpoints(settings)[A].named
    assert named is not None
    assert log.observations(settings)[-1].key == named.key

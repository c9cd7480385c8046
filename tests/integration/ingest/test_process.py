"""Whole processes on a real broker: killed, stopped and continued, once, busy, unreachable."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest import committer
from ingest.budget import SHUTDOWN_S
from ingest.process import BUSY, MORE_TO_DO, OK, REFUSED, UNREACHABLE
from schemas.log.reader import bounds
from schemas.routing import route
from schemas.settings import Settings
from tests import forked
from tests.conftest import Lane
from tests.integration.ingest import log
from tests.integration.ingest.conftest import small_settings, with_topics
from tests.integration.ingest.scripted import next_page
from tests.waiting import wait_until

A, B = "src/a", "src/b"
MANY = 3 * committer.Limits().pages
"""Pages that no single transaction holds, so that a second commit still has some, however slow the first."""
REPOSITORY = Path(__file__).parents[3]


class Child:
    """One ingest process with numbered pages; its output is kept for messages."""

    def __init__(
        self,
        settings: Settings,
        sources: list[dict[str, object]],
        *more: str,
        worker: str = "w1",
        failpoints: str = "",
    ) -> None:
        names = ["kafka", "prefix", "partitions", "linger_s"]
        names += ["session_timeout_ms", "transaction_timeout_ms", "message_timeout_ms"]
        names += ["kafka_config"] if settings.kafka_config else []
        names += ["accept_unverified_transactions"]
        given = {f"GAPLESS_{name.upper()}": str(getattr(settings, name)) for name in names}
        environment = {
            **os.environ,
            **given,
            "GAPLESS_WORKER": worker,
            "GAPLESS_FAILPOINTS": failpoints,
        }
        self._folder = tempfile.TemporaryDirectory(prefix="gapless-child-")
        self._output = Path(self._folder.name, "output")
        self.process = forked.Forked(
            "tests.integration.ingest.child:main",
            [json.dumps(sources), *more],
            environment=environment,
            cwd=REPOSITORY,
            stdout=self._output,
        )

    def ends(self, timeout_s: float = 60) -> tuple[int, str]:
        """Exit code and output."""
        return self.process.wait(timeout_s), self.output()

    def output(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def stopped(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "T"


@contextmanager
def child(
    settings: Settings, sources: list[dict[str, object]], *more: str, **how: str
) -> Iterator[Child]:
    found = Child(settings, sources, *more, **how)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait(10)
            print(found.output())  # for the report of a failed test


def fetched(settings: Settings, owner: str, partition: int = 0) -> int:
    """The last page that the newest checkpoint covers."""
    found = log.checkpoints(settings, partition).get(owner)
    return 0 if found is None else next_page(committer.state_of(found)) - 1


def whole(settings: Settings, owner: str, count: int) -> None:
    """Every page is in the log, at least once, and the checkpoint says so."""
    assert set(log.pages(settings, owner)) == set(range(1, count + 1))
    assert fetched(settings, owner) == count


def test_a_service_fetches_all_and_stops_in_order(settings: Settings) -> None:
    sources = [{"partition_id": A, "pages": 30}, {"partition_id": B, "pages": 5}]
    with child(settings, sources) as service:
        wait_until(
            lambda: fetched(settings, A) == 30 and fetched(settings, B) == 5, 30, "all pages"
        )
        service.signal(signal.SIGTERM)
        code, output = service.ends()
    assert code == OK, output
    whole(settings, A, 30)
    assert log.pages(settings, A) == list(range(1, 31)), "nothing was fetched twice"
    assert "released" in output


@pytest.mark.parametrize(
    "at",
    ["ingest.between_pages", "ingest.after_flush", "ingest.before_commit", "ingest.after_commit"],
)
def test_kill_nine_inside_a_transaction_loses_nothing(settings: Settings, at: str) -> None:
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": MANY}]
    with child(settings, sources, failpoints=f"{at}=1*off->1*kill") as first:
        code, output = first.ends()
        assert code == -signal.SIGKILL, output
    before = fetched(settings, A)
    assert set(range(1, before + 1)) <= set(log.pages(settings, A)), "never ahead"
    with child(settings, sources, worker="w2") as second:
        wait_until(lambda: fetched(settings, A) == MANY, 30, "the second worker to finish")
        second.signal(signal.SIGTERM)
        code, output = second.ends()
    assert code == OK, output
    whole(settings, A, MANY)


def test_a_worker_stopped_past_its_lease_is_fenced_when_it_wakes(settings: Settings) -> None:
    """Stopped with everything flushed and only the commit missing; another one takes over."""
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": MANY}]
    with child(settings, sources, failpoints="ingest.before_commit=1*off->1*stop") as sleeper:
        wait_until(lambda: sleeper.stopped, 30, "the first worker to stop itself")
        before = fetched(settings, A)
        with child(settings, sources, worker="w2") as second:
            begun = time.monotonic()
            wait_until(lambda: fetched(settings, A) == MANY, 30, "the second worker to take over")
            assert time.monotonic() - begun < 20
            assert before < MANY
            sleeper.signal(signal.SIGCONT)
            # it wakes, is fenced, and rejoins the group as an ordinary member
            second.signal(signal.SIGTERM)
            assert second.ends()[0] == OK
            end = bounds(settings, settings.observations, 0).end
            sleeper.signal(signal.SIGTERM)
            code, output = sleeper.ends()
    assert code == OK, output
    # the broker says so, or the commit's own time-out has passed meanwhile: it restores either way
    assert "fenced" in output or "log partition closed; restoring" in output
    whole(settings, A, MANY)
    assert bounds(settings, settings.observations, 0).end >= end
    assert log.pages(settings, A) == sorted(log.pages(settings, A)), (
        "nothing of the stale one shows"
    )


@pytest.mark.parametrize("at", ["ingest.answer_lost", "ingest.after_flush", "ingest.after_restore"])
def test_an_exception_closes_the_producer_and_restores(settings: Settings, at: str) -> None:
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": 12}]
    with child(settings, sources, failpoints=f"{at}=1*raise") as service:
        wait_until(lambda: fetched(settings, A) == 12, 40, "all pages")
        service.signal(signal.SIGTERM)
        code, output = service.ends()
    assert code == OK, output
    assert "log partition closed; restoring" in output
    whole(settings, A, 12)


def test_once_ends_when_nothing_is_left(settings: Settings) -> None:
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": 12}]
    with child(settings, sources, "once") as run:
        code, output = run.ends()
    assert code == OK, output
    whole(settings, A, 12)
    with child(settings, sources, "once") as run:
        assert run.ends()[0] == OK
    assert len(log.pages(settings, A)) == 12, "nothing was due"


def test_a_budget_ends_in_time_and_the_next_run_goes_on(settings: Settings) -> None:
    """Storing takes long in the first run: it ends in time, and the second one still knows it."""
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": 200, "every_s": 0.1}]
    slow = "ingest.before_commit=sleep(1.2)"
    with child(settings, sources, "once", "8", failpoints=slow) as run:
        code, output = run.ends()
    assert code == MORE_TO_DO, output
    ran = re.search(r"ran (\S+) s", output)
    assert ran is not None and float(ran[1]) <= 8
    assert max(log.checkpoints(settings, 0)[A].persist_s) >= 1.2
    first = fetched(settings, A)
    assert 0 < first < 200
    assert set(log.pages(settings, A)) == set(range(1, first + 1))
    with child(settings, sources, "once", "8") as run:
        code, output = run.ends()
    assert code == MORE_TO_DO, output
    reserve = re.search(r"reserve_s\D*(\d+\.\d+)", output)
    assert reserve is not None and float(reserve[1]) >= 1.2 + SHUTDOWN_S, output
    assert fetched(settings, A) > first
    pages = log.pages(settings, A)
    assert pages == sorted(pages) and len(pages) - len(set(pages)) <= settings.pages_in_flight


def test_once_gives_way_to_a_running_worker(settings: Settings) -> None:
    sources: list[dict[str, object]] = [{"partition_id": A, "pages": 3}]
    with child(settings, sources) as service:
        wait_until(lambda: fetched(settings, A) == 3, 30, "the service to work")
        with child(settings, sources, "once", worker="cron") as run:
            code, output = run.ends()
        assert code == BUSY, output
        assert "another member of the group is active" in output
        assert service.process.poll() is None


def test_without_topics_it_says_which_command_to_run(lane: Lane) -> None:
    with child(small_settings(lane), []) as run:
        code, output = run.ends()
    assert code == REFUSED
    assert "run `gapless topics`" in output


def test_another_partition_count_is_refused(lane: Lane) -> None:
    with_topics(small_settings(lane))
    with child(small_settings(lane, partitions=3), []) as run:
        code, output = run.ends()
    assert code == REFUSED
    assert "has 1 partitions, the settings say 3" in output


def test_an_unreachable_broker_is_a_clear_end(lane: Lane) -> None:
    nowhere = small_settings(lane, kafka="127.0.0.1:9")
    with child(nowhere, [], "once") as run:
        code, output = run.ends()
    assert code == UNREACHABLE
    assert "127.0.0.1:9" in output


def test_two_workers_share_and_one_killed_is_replaced(lane: Lane) -> None:
    settings = with_topics(small_settings(lane, partitions=4))
    owners = [f"src/s{n}" for n in range(8)]
    sources: list[dict[str, object]] = [
        {"partition_id": owner, "pages": 40, "every_s": 0.05} for owner in owners
    ]
    with child(settings, sources, worker="w1") as one, child(settings, sources, worker="w2") as two:

        def covered() -> int:
            """Pages that every partition id has at least, by its checkpoint."""
            return min(fetched(settings, owner, route(owner, 4)) for owner in owners)

        wait_until(lambda: covered() >= 2, 30, "both to work")
        one.signal(signal.SIGKILL)
        wait_until(lambda: covered() == 40, 60, "the other to finish everything")
        two.signal(signal.SIGTERM)
        assert two.ends()[0] == OK
    for owner in owners:
        assert set(log.pages(settings, owner, route(owner, 4))) == set(range(1, 41))

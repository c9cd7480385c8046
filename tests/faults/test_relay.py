"""Every failpoint of the relay × {kill -9, exception, frozen past its hold}: order and ids survive.

One lane for all: each death begins with what the ones before left behind.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

import pytest

from ops.relay.service import Relay
from schemas.failpoints import RELAY
from tests.conftest import Lane
from tests.integration.ops.test_relay import published, put, states
from tests.integration.ops.written import Deployment
from tests.workers import Worker, Workers, wait_for, workers

pytestmark = pytest.mark.timeout(120)
QUICK = {"GAPLESS_MESSAGE_TIMEOUT_MS": "2000"}


def publish(at: Deployment) -> None:
    """All that is left, by a relay that nothing happens to; waits for keys that others hold."""
    settings = at.settings.model_copy(update={"message_timeout_ms": 2_000})
    Relay(settings).run(threading.Event(), once=True)


def meet(at: Deployment, group: Workers, failpoint: str, action: str) -> Worker:
    """A relay that meets the failpoint with the first event of a key of its own in hand."""
    key = f"{failpoint}/{action}"
    victim = group.start("relay", key.replace("/", "-"), f"{failpoint}=1*{action}", **QUICK)
    for sequence in (1, 2, 3):
        put(at, key, sequence)
    wait_for(f"{failpoint} was hit", victim.hits, 60)
    return victim


def judge(at: Deployment) -> dict[str, list[int]]:
    """Sequences as they came, by key; the same id always has the same sequence."""
    came: dict[str, list[int]] = defaultdict(list)
    for headers in published(at):
        key, number = headers["ce_subject"], headers["ce_sequence"]
        assert headers["ce_id"] == f"{key}/{number}"
        came[key].append(int(number))
    for key, numbers in came.items():
        assert list(dict.fromkeys(numbers)) == [1, 2, 3], (key, "first copies are in order")
    return came


def test_a_relay_dies_at_every_failpoint(lane: Lane, tmp_path: Path) -> None:
    at = Deployment(lane, tmp_path)
    with workers(at.environment, tmp_path) as group:
        for failpoint in RELAY:
            for action in ("kill", "raise"):
                victim = meet(at, group, failpoint, action)
                victim.process.wait(30)
                assert victim.process.poll() == (-9 if action == "kill" else 70), victim.log()
                publish(at)
        assert set(states(at).values()) == {"sent"}
        came = judge(at)
        for failpoint in RELAY:
            twice = failpoint in ("relay.after_publish", "relay.after_mark")
            for action in ("kill", "raise"):
                expected = [1, 1, 2, 3] if twice else [1, 2, 3]
                assert came[f"{failpoint}/{action}"] == expected, (failpoint, action)


def test_a_frozen_relay_loses_its_keys_and_sends_late_copies_at_most(
    lane: Lane, tmp_path: Path
) -> None:
    at = Deployment(lane, tmp_path)
    with workers(at.environment, tmp_path) as group:
        victims = [meet(at, group, failpoint, "stop") for failpoint in RELAY]
        publish(at)
        assert set(states(at).values()) == {"sent"}
        before = judge(at)
        for victim in victims:
            victim.thaw()
        # each is whole again when it publishes what comes now
        for number in range(len(victims)):
            put(at, f"awake-{number}", 1)
        wait_for("all is sent", lambda: set(states(at).values()) == {"sent"}, 60)
        for victim in victims:
            assert victim.terminate() == 0, victim.log()
        for number in range(len(victims)):
            put(at, f"awake-{number}", 2)
            put(at, f"awake-{number}", 3)
        publish(at)
        came = judge(at)
        late = f"{RELAY[0]}/stop"
        assert before[late] == [1, 2, 3]
        # what it sends after it was thawed has the old id and sequence; it may be too late to send
        assert came[late] in ([1, 2, 3, 1], [1, 2, 3])
        assert all(number <= max(before[key]) for key in before for number in came[key])

"""The watchdog: a stuck call ends the process, a beating or short one does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from ingest.watchdog import EXIT_CODE, Watchdog
from tests.waiting import wait_until


def test_a_stuck_call_is_reported_and_a_short_one_is_not() -> None:
    said: list[str] = []
    watchdog = Watchdog(said.append, check_s=0.01)
    with watchdog.guard("a short call", 30):
        pass
    with watchdog.guard("a stuck call", 0.05):
        wait_until(lambda: bool(said), 5, "the watchdog to act")
    watchdog.stop()
    assert "a stuck call has not returned" in said[0]


def test_a_beating_call_may_take_longer() -> None:
    said: list[str] = []
    watchdog = Watchdog(said.append, check_s=0.01)
    moved = threading.Event()
    with watchdog.guard("reading", 0.3) as watch:
        for _ in range(20):
            moved.wait(0.05)
            watch.beat()
    watchdog.stop()
    assert said == []


STUCK = """
import sys, time
from ingest.watchdog import Watchdog
with Watchdog(check_s=0.05).guard("a stuck call", float(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


def test_the_process_ends_with_its_code_and_says_why() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK, "0.2"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == EXIT_CODE
    assert "a stuck call has not returned" in done.stderr


def test_a_stopped_process_is_not_a_stuck_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        threading.Event().wait(3.5)  # longer than the bound
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert process.wait(20) == EXIT_CODE

"""Failpoints: the syntax, the counters and what each action does to a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ops.failpoints import BadFailpoints, FailpointError, Term, build, parse
from schemas import failpoints


def test_parses_terms_in_order() -> None:
    plan = parse("ingest.after_flush=2*off->1*kill; apply.before_commit=sleep(0.5)")
    assert plan == {
        "ingest.after_flush": (Term("off", 2, 0.0), Term("kill", 1, 0.0)),
        "apply.before_commit": (Term("sleep", None, 0.5),),
    }


def test_without_a_text_it_is_the_function_of_production() -> None:
    assert build("") is failpoints.none
    assert build(" ; ") is failpoints.none


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ingest.after_flsh=kill", "did you mean ingest.after_flush"),
        ("ingest.after_flush", "expected name=action"),
        ("ingest.after_flush=boom", "is no action"),
        ("ingest.after_flush=kill(3)", "takes no argument"),
        ("ingest.after_flush=sleep", "needs an argument"),
        ("ingest.after_flush=sleep(soon)", "is no number"),
        ("ingest.after_flush=-1*kill", "is no action"),
        ("ingest.after_flush=kill;ingest.after_flush=stop", "stands twice"),
    ],
)
def test_refuses_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(BadFailpoints, match=says):
        parse(text)


def test_counts_calls_and_then_does_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hit = build("apply.after_poll=2*off->1*raise", mark)
    hit("apply.after_poll")
    hit("apply.after_ledger")
    hit("apply.after_poll")
    assert not mark.exists()
    with pytest.raises(FailpointError, match=r"apply\.after_poll"):
        hit("apply.after_poll")
    hit("apply.after_poll")
    assert mark.read_text() == "apply.after_poll\n"


def test_an_uncounted_action_is_taken_for_ever() -> None:
    hit = build("apply.after_poll=raise")
    for _ in range(3):
        with pytest.raises(FailpointError):
            hit("apply.after_poll")


def test_threads_share_one_counter() -> None:
    hit = build("apply.after_poll=50*raise")
    raised: list[int] = []

    def call() -> None:
        for _ in range(20):
            try:
                hit("apply.after_poll")
            except FailpointError:
                raised.append(1)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(raised) == 50


def _child(actions: str, mark: Path) -> subprocess.Popen[bytes]:
    code = (
        "import os; from ops.failpoints import build; "
        "build(os.environ['GAPLESS_FAILPOINTS'])('ingest.after_fetch'); print('went on')"
    )
    environment = {
        **os.environ,
        "GAPLESS_FAILPOINTS": f"ingest.after_fetch={actions}",
        "GAPLESS_FAILPOINT_MARK": str(mark),
    }
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("actions", "code", "output"),
    [
        ("1*kill", -signal.SIGKILL, b""),
        ("exit(70)", 70, b""),
        ("1*off->1*kill", 0, b"went on\n"),
        ("sleep(0.01)", 0, b"went on\n"),
    ],
)
def test_what_a_process_does(tmp_path: Path, actions: str, code: int, output: bytes) -> None:
    child = _child(actions, tmp_path / "mark")
    found, _ = child.communicate(timeout=30)
    assert (child.returncode, found) == (code, output)
    assert (tmp_path / "mark").exists() is ("off" not in actions)


def test_stop_waits_until_it_is_woken(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = _child("1*stop", mark)
    deadline = time.monotonic() + 30
    while not os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED | os.WNOHANG)[1]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert mark.read_text() == "ingest.after_fetch\n"
    os.kill(child.pid, signal.SIGCONT)
    found, _ = child.communicate(timeout=30)
    assert (child.returncode, found) == (0, b"went on\n")


def test_a_thread_that_stops_its_process_does_nothing_more_until_it_is_woken(
    tmp_path: Path,
) -> None:
    """Whichever thread the process would have taken the signal in: work ends at the failpoint."""
    past, stops = tmp_path / "past", 60
    code = (
        "import sys, threading; from ops.failpoints import build\n"
        f"hit = build('ingest.after_fetch={stops}*stop')\n"
        "def work():\n"
        f"    with open({str(past)!r}, 'ab', buffering=0) as file:\n"
        f"        for _ in range({stops}):\n"
        "            hit('ingest.after_fetch'); file.write(b'.')\n"
        "worker = threading.Thread(target=work); worker.start(); worker.join()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    for number in range(stops):
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert past.stat().st_size == number, "it went on behind the failpoint"
        os.kill(child.pid, signal.SIGCONT)
    assert child.wait(30) == 0

"""Runs one tap and ends it, with all that it started, as soon as standard input ends.

Started as a file of its own, with the standard library only: the worker holds the other end of the
pipe, so the tap ends when the worker wants it to, and also when the worker dies by kill -9. Then it
removes the private folder, which holds secrets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

GRACE_S = 1.0
NOT_FOUND, NOT_STARTED = 127, 126
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_REST_S = 2.0


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _before_exec() -> None:
    """Runs in the tap's process: should this leash be killed itself, the tap goes with it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _spawn(command: list[str]) -> int:
    # There are no threads here, so running Python before exec is safe.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=_before_exec,  # noqa: PLW1509
        process_group=0,
    ).pid


def _ended(pid: int) -> bool:
    """Whether the tap has ended; it is not reaped, so that its group's number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _wait(pid: int, woken: int) -> None:
    """Until the tap has ended, or the worker wants it ended or is gone."""
    while not _ended(pid):
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable and not os.read(0, 4096):
            _end(pid, woken)


def _end(pid: int, woken: int) -> None:
    """SIGTERM for the whole group, then SIGKILL."""
    give_up_at = time.monotonic() + GRACE_S
    _signal_group(pid, signal.SIGTERM)
    while not _ended(pid):
        left_s = give_up_at - time.monotonic()
        if left_s <= 0:
            _signal_group(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return
        if select.select([woken], [], [], left_s)[0]:
            os.read(woken, 4096)


def _children() -> list[int]:
    """What is left below this process once the tap is gone, also what left its group."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _end_rest(pid: int) -> int:
    """Kills what the tap left behind; the tap's own exit code."""
    _signal_group(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    give_up_at = time.monotonic() + _REST_S
    while (left := _children()) and time.monotonic() < give_up_at:
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(status)


def main(arguments: list[str]) -> int:
    """`FOLDER COMMAND …`: the exit code of the command, 128 and the signal that ended it."""
    folder, *command = arguments
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        pid = _spawn(command)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND if missing else NOT_STARTED
    # The output ends when the tap's ends, not when this process does.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    _wait(pid, woken)
    code = _end_rest(pid)
    shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs the process of one mapping function and ends it with all that it started, also what left its
session, as soon as it ends itself, the worker wants it ended, or the worker is gone by kill -9.

Started as a file of its own, with the standard library only. The worker holds the other end of a
pipe. On Linux every orphan below comes back to this process, which kills until none is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time

NOT_STARTED = 126
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
REST_S = 2.0
"""How long this kills what is left: something that starts others faster than they die outlives it."""


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _before_exec() -> None:
    """Runs in the function's process: should this one be killed, the other goes with it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _ended(pid: int) -> bool:
    """Whether the function's process has ended; it stays unreaped, so that its number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(pid: int, worker: int, woken: int) -> None:
    """Until the process has ended, or nobody wants it any more."""
    while not _ended(pid):
        readable, _, _ = select.select([worker, woken], [], [])
        if worker in readable:
            return
        os.read(woken, 4096)
        _reap_orphans(pid)


def _reap_orphans(pid: int) -> None:
    """Those that ended by themselves; the function's own process is left to `_ended`."""
    for child in _children():
        if child != pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _end_all(pid: int) -> int:
    """Kills the process and what is below it; the process's own exit code, or minus its signal."""
    for kill, which in ((os.killpg, pid), (os.kill, pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(which, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    give_up_at = time.monotonic() + REST_S
    while (left := _children()) and time.monotonic() < give_up_at:
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(status)


def _end_likewise(code: int) -> int:
    """What the worker is to see is how the function's process ended, not this one."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.kill(os.getpid(), -code)
        time.sleep(1)  # a signal that ends nobody: it did not end the other one either
        return 128 - code
    return code


def main(arguments: list[str]) -> int:
    """`FD COMMAND …`: FD is the pipe that the worker holds open as long as it wants the command."""
    worker, command = int(arguments[0]), arguments[1:]
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        # there are no threads here, so running Python before exec is safe
        pid = subprocess.Popen(command, preexec_fn=_before_exec, start_new_session=True).pid  # noqa: PLW1509
    except OSError:
        return NOT_STARTED
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the pipes end when the function's process does, not this one
        os.dup2(nowhere, number)
    _wait(pid, worker, woken)
    return _end_likewise(_end_all(pid))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

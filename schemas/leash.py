"""Runs somebody else's program and ends it with all that it started, also what left its session, as
soon as it ends itself, the worker wants it ended, or the worker is gone by kill -9.

Started as a file of its own, with the standard library only. The worker holds the other end of a
pipe. On Linux every orphan below comes back to this process, which kills until none is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

NOT_FOUND, NOT_STARTED = 127, 126
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
REST_S = 2.0
"""How long this kills what is left: something that starts others faster than they die outlives it."""


def command(
    pipe: int, program: Sequence[str], *, grace_s: float = 0.0, folder: str = ""
) -> list[str]:
    """How `program` is started on a leash. It ends as the program ended: exit code or signal.

    `pipe`: the descriptor of its end of the pipe; if that is standard input, the program has none.
    `grace_s`: seconds between SIGTERM and SIGKILL where the pipe closes; 0 sends SIGKILL at once.
    `folder`: is removed when the program has ended; it may hold secrets.
    """
    return [sys.executable, "-I", "-S", __file__, str(pipe), str(grace_s), folder, *program]


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _before_exec() -> None:
    """Runs in the program's process: should this one be killed, the other goes with it."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _spawn(program: list[str], worker: int) -> subprocess.Popen[bytes]:
    """To be held on to: an object that is dropped reaps a program that has ended already."""
    return subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL if worker == 0 else None,
        # there are no threads here, so running Python before exec is safe
        preexec_fn=_before_exec,  # noqa: PLW1509
        start_new_session=True,
    )


def _ended(pid: int) -> bool:
    """Whether the program has ended; it stays unreaped, so that its number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(pid: int, worker: int, woken: int) -> None:
    """Until the program has ended, or nobody wants it any more."""
    while not _ended(pid):
        readable, _, _ = select.select([worker, woken], [], [])
        if worker in readable:
            return
        os.read(woken, 4096)
        _reap_orphans(pid)


def _reap_orphans(pid: int) -> None:
    """Those that ended by themselves; the program's own process is left to `_ended`."""
    for child in _children():
        if child != pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _children() -> list[int]:
    """What hangs below this process, also what left the program's group once its parent is gone."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _ask_to_end(pid: int, grace_s: float, woken: int) -> None:
    """SIGTERM for the whole group, and time to obey."""
    give_up_at = time.monotonic() + grace_s
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGTERM)
    while not _ended(pid) and (left_s := give_up_at - time.monotonic()) > 0:
        if select.select([woken], [], [], left_s)[0]:
            os.read(woken, 4096)


def _end_all(pid: int) -> int:
    """Kills the program and what is below it; the program's own exit code, or minus its signal."""
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
    """What the worker is to see is how the program ended, not this one."""
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
    """`PIPE GRACE_S FOLDER PROGRAM …`, see `command`; exit code 126 or 127: it cannot be started."""
    pipe, grace, folder, *program = arguments
    worker, grace_s = int(pipe), float(grace)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        started = _spawn(program, worker)
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2} - {worker}:  # the pipes end when the program does, not this process
        os.dup2(nowhere, number)
    pid = started.pid
    _wait(pid, worker, woken)
    if grace_s:
        _ask_to_end(pid, grace_s, woken)
    code = _end_all(pid)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return _end_likewise(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

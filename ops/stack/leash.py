"""Runs one server and ends it as soon as the process that owns the stack has ended, even by kill -9.

Started as a file of its own, with the standard library only, so that it costs some milliseconds and
does not depend on the owner's threads (the kernel's parent-death signal alone would: it fires when
the *thread* that started the server ends). It holds the folder's lock until its server is gone.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time

# What the owner sends to this process, and never to the server: the process id of a child of ours
# cannot be reused before we have reaped it, so no signal can hit a stranger.
STOP = signal.SIGTERM
KILL = signal.SIGUSR1
_LISTENED = {signal.SIGCHLD, signal.SIGINT, STOP, KILL}
_OWNER_CHECK_S = 0.2
_REST_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _before_exec() -> None:
    """Runs in the server's process: takes all signal masks off it and ties its life to ours."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _spawn(options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """To be held on to: an object that is dropped reaps a server that has ended already, and nobody
    would learn that it has."""
    # The kernel forgets the parent-death signal when the user changes; Python changes the user
    # before it calls preexec_fn, so the order is right. There are no threads here.
    return subprocess.Popen(
        options.command,
        cwd="/",
        preexec_fn=_before_exec,  # noqa: PLW1509
        user=options.uid,
        group=options.gid,
        extra_groups=None if options.uid is None else [],
    )


def _reap() -> dict[int, int]:
    """Exit codes, by process id, of the children that have ended since the last call."""
    ended = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    except ChildProcessError:
        pass
    return ended


def _children() -> list[int]:
    """Our children that have not been reaped; after the server's end, those it left behind."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        # A kernel without this list: then the next start waits for what was left behind.
        return []


def _watch(server: int, options: argparse.Namespace) -> int:
    """Waits for the server's end; passes the owner's wishes on. Returns the server's exit code."""
    give_up_at: float | None = None
    while True:
        received = signal.sigtimedwait(_LISTENED, _OWNER_CHECK_S)
        code = _reap().get(server)
        if code is not None:
            return code
        number = received.si_signo if received is not None else None
        if number == KILL or (give_up_at is not None and time.monotonic() > give_up_at):
            os.kill(server, signal.SIGKILL)
        elif number in (STOP, signal.SIGINT):
            os.kill(server, options.stop_signal)
        elif give_up_at is None and os.getppid() != options.owner:
            os.kill(server, options.stop_signal)
            give_up_at = time.monotonic() + options.grace_s


def _wait_for_rest() -> None:
    """Waits until what the server started has ended too; kills what takes too long.

    The sessions of a killed PostgreSQL live on for a moment, and it cannot start before they ended.
    """
    kill_at = time.monotonic() + _REST_S
    while children := _children():
        if time.monotonic() > kill_at:
            for child in children:
                os.kill(child, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        _reap()


def main(arguments: list[str]) -> int:
    """Starts the server, reports its process id on the given descriptor, and watches it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--owner", type=int, required=True)
    parser.add_argument("--report", type=int, required=True)
    parser.add_argument("--stop-signal", type=int, required=True)
    parser.add_argument("--grace-s", type=float, required=True)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, _LISTENED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    server = _spawn(options)
    os.write(options.report, str(server.pid).encode())
    os.close(options.report)
    code = _watch(server.pid, options)
    _wait_for_rest()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

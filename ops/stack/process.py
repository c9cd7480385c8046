"""One server process of the local stack: started on a leash, stopped, killed, waited for.

Invariant: a server never outlives the process that started it (see `leash.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ops.stack import leash
from ops.stack.account import Account
from ops.stack.errors import StackError
from ops.stack.folder import FolderLock

_OUTPUT_LIMIT_BYTES = 10_000_000
_TAIL_LINES = 15
_POLL_S = 0.02


@dataclass(frozen=True)
class Command:
    """How a server is run: its arguments, environment and user, and the signal that stops it."""

    arguments: Sequence[str]
    stop_signal: signal.Signals
    environment: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    grace_s: float = 20.0
    """How long a server whose owner died may take to end before it is killed, in seconds."""


class Process:
    """A server that runs or does not. Not safe for use from several threads at once."""

    def __init__(self, name: str, output: Path, lock: FolderLock) -> None:
        self._name = name
        self._output = output
        self._lock = lock
        self._leash: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The process id of the server itself. Raises StackError if it does not run."""
        if self._pid is None or not self.running:
            raise StackError(f"{self._name} is not running")
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the server's process exists (it may not answer yet)."""
        return self._leash is not None and self._leash.poll() is None

    def start(self, command: Command) -> None:
        """Starts the process and returns at once. Raises StackError if it already runs."""
        if self.running:
            raise StackError(f"{self._name} already runs (process {self._pid})")
        self._output.parent.mkdir(parents=True, exist_ok=True)
        if self._output.exists() and self._output.stat().st_size > _OUTPUT_LIMIT_BYTES:
            self._output.unlink()
        read_end, write_end = os.pipe()
        try:
            with self._output.open("ab") as output:
                self._leash = subprocess.Popen(
                    self._leash_arguments(command, write_end),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(command.environment),
                    pass_fds=(write_end, self._lock.descriptor),
                    start_new_session=True,
                )
        finally:
            os.close(write_end)
        with os.fdopen(read_end, "rb") as report:
            pid = report.read()
        if not pid:
            self._leash.wait()
            raise StackError(f"{self._name} could not be started:\n{self.tail()}")
        self._pid = int(pid)

    def _leash_arguments(self, command: Command, report: int) -> list[str]:
        arguments = [sys.executable, "-I", "-S", leash.__file__]
        arguments += [f"--owner={os.getpid()}", f"--report={report}"]
        arguments += [f"--stop-signal={int(command.stop_signal)}", f"--grace-s={command.grace_s}"]
        if command.account is not None:
            arguments += [f"--uid={command.account.uid}", f"--gid={command.account.gid}"]
        return [*arguments, "--", *command.arguments]

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Waits until `ready` says yes. Raises StackError with the end of the server's output."""
        give_up_at = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise StackError(f"{self._name} ended while it started:\n{self.tail()}")
            if time.monotonic() > give_up_at:
                raise StackError(f"{self._name} is not ready after {timeout_s} s:\n{self.tail()}")
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stops the server in an orderly way; kills it if it takes longer. Fine if it is not up."""
        self._end(leash.STOP, timeout_s)

    def kill(self) -> None:
        """Sends SIGKILL to the server and waits for its end. Fine if it is not up."""
        self._end(leash.KILL, timeout_s=30.0)

    def _end(self, wish: signal.Signals, timeout_s: float) -> None:
        if self._leash is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._leash.send_signal(wish)
        try:
            self._leash.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._leash.send_signal(leash.KILL)
            self._leash.wait()
        self._leash = None
        self._pid = None

    def tail(self) -> str:
        """The last lines that the server wrote, and where all of them stand."""
        try:
            lines = self._output.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        except FileNotFoundError:
            lines = []
        return "\n".join([*lines, f"(all output: {self._output})"])

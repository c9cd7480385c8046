"""One running process of a function, and what it says: edge to the operating system.

Whatever happens on the other side becomes an answer, or an `Ended` that says how it ended. Absent
on purpose: which record is to blame.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from apply.functions import child
from apply.functions.frames import Answer, BadFrame, Begin, Call, Message, Ready, Unpacker, packed
from schemas import leash
from schemas.definitions.mapping import FunctionSpec

_START_S = 30.0
_CHUNK = 1 << 20
_END_S = leash.REST_S + 3.0
# What programs need; nothing else of the worker's, which holds secrets.
_INHERITED = frozenset(("PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH"))


class FunctionUnavailable(Exception):
    """A function cannot be started: no record is to blame. Says which, and why."""


class How(Enum):
    """How a process ended in the middle of its work."""

    HUNG = auto()
    KILLED = auto()
    MEMORY = auto()


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone; `detail` for people."""

    how: How
    detail: str


class Process:
    """Started when made. Use from one thread at a time."""

    def __init__(self, spec: FunctionSpec, folder: Path, *, shown: bool) -> None:
        """`shown`: what it prints goes to our standard error. Raises FunctionUnavailable."""
        self._spec, self._unpacker, self._calls = spec, Unpacker(), 0
        kept = {n: v for n, v in os.environ.items() if n in _INHERITED or n.startswith("LC_")}
        held, own = os.pipe()
        self._leash: int | None = own
        try:
            self._process = subprocess.Popen(
                leash.command(held, [sys.executable, "-u", "-P", child.__file__]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if shown else subprocess.DEVNULL,
                env=kept,
                start_new_session=True,
                pass_fds=(held,),
                bufsize=0,
            )
        except OSError as error:
            self._let_go()
            raise FunctionUnavailable(f"{spec.path}: {error.strerror}") from error
        finally:
            os.close(held)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._begin(folder)

    def _begin(self, folder: Path) -> None:
        spec, places = self._spec, [*filter(None, sys.path), str(folder.resolve())]
        begin = Begin(spec.module, spec.name, places, spec.memory_bytes, self._process.pid)
        found = self._talk(packed(begin), 1, _START_S)[0]
        ready = found[0] if found else None
        if isinstance(ready, Ready) and ready.fault is None:
            return
        why = ready.fault if isinstance(ready, Ready) else "its process ended while it was imported"
        self.end()
        raise FunctionUnavailable(f"{spec.path}: {why}")

    def call(
        self, records: Sequence[bytes], observed: dict[str, object]
    ) -> tuple[list[Answer], Ended | None]:
        """Answers in order; fewer than records if the process ended, and then how."""
        self._calls += 1
        request = packed(Call(self._calls, list(records), observed))
        found, ended = self._talk(request, len(records), self._spec.hang_s)
        answers = [one for one in found if isinstance(one, Answer)]
        for at, one in enumerate(answers):
            if one.kind == "memory":
                self.end()  # what else it holds may be the reason
                mib = self._spec.memory_bytes >> 20
                return answers[:at], Ended(How.MEMORY, f"needs more than {mib} MiB")
        return answers, ended

    def _talk(
        self, request: bytes, wanted: int, patience_s: float
    ) -> tuple[list[Message], Ended | None]:
        """Send, and take so many messages; each has `patience_s` seconds from the one before."""
        left, found = memoryview(request), list[Message]()
        deadline = time.monotonic() + patience_s
        while len(found) < wanted:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                if not self.alive:  # what it started still holds its pipe
                    return found, self._killed()
                self.end()
                return found, Ended(How.HUNG, f"did not return within {patience_s:g} s")
            writable = [self._in] if left else []
            readable, writable, _ = select.select([self._out], writable, [], wait_s)
            try:
                if writable:
                    left = left[os.write(self._in, left[:_CHUNK]) :]
                    deadline = time.monotonic() + patience_s
                if readable and self._receive(found):
                    deadline = time.monotonic() + patience_s
            except BadFrame:
                self.end()
                return found, Ended(How.KILLED, "wrote where its answers go")
            except (OSError, EOFError):
                return found, self._killed()
        return found, None

    def _receive(self, found: list[Message]) -> bool:
        """Whether a whole message came. Raises EOFError, BadFrame or OSError."""
        data = os.read(self._out, _CHUNK)
        if not data:
            raise EOFError
        self._unpacker.feed(data)
        before = len(found)
        while (message := self._unpacker.next()) is not None:
            if self._calls:
                self._check(message, len(found))
            found.append(message)
        return len(found) > before

    def _check(self, message: Message, at: int) -> None:
        """That it answers the record that is in hand. Raises BadFrame."""
        if not isinstance(message, Answer) or (message.call, message.at) != (self._calls, at):
            raise BadFrame("an answer that nobody waits for")

    def _killed(self) -> Ended:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)  # what it started is ended first
        code = self._process.returncode
        self.end()
        if code is None:
            return Ended(How.KILLED, "closed its pipe")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Ended(How.KILLED, f"ended its process: {how}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it with all that it started. Safe to call twice."""
        self._let_go()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the function's own process goes with its leash
            self._process.wait()

    def _let_go(self) -> None:
        """Without this pipe the leash ends everything, then itself."""
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None

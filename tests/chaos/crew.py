"""Workers that are always there again: who dies is replaced, whoever killed it.

A worker that ends by itself with an exit code that nobody asked for is a fault.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import Fault
from tests.workers import Worker, Workers

SLOTS = ("ingest-a", "ingest-b", "apply-a", "apply-b")
# Killed; a server could not be reached at the start; the watchdog may end a process that was stopped
# for long, or whose broker was away.
_ALLOWED_EXITS = {-9, 3, 70}
_AGAIN_S = 0.5
_BYTES_MAX = 300_000_000


@dataclass(slots=True)
class Crew:
    """One worker per slot.

    `slots`: each named by its verb, a dash and something of its own; `due`: when the next one of an empty slot starts, and with which failpoints; `frozen`: until
    when; `armed`: slots whose worker has failpoints; `peak_bytes`: by worker.
    """

    workers: Workers
    slots: Sequence[str] = SLOTS
    running: dict[str, Worker] = field(default_factory=dict)
    due: dict[str, tuple[float, str]] = field(default_factory=dict)
    frozen: dict[str, float] = field(default_factory=dict)
    armed: set[str] = field(default_factory=set)
    deaths: int = 0
    peak_bytes: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Start one worker in each slot."""
        for slot in self.slots:
            self._start(slot, "")

    def kill(self, slot: str, pause_s: float = 0.0, failpoints: str = "") -> None:
        """kill -9; the next one starts after the pause, with failpoints if given."""
        worker = self.running.pop(slot, None)
        self.frozen.pop(slot, None)
        if worker is not None:
            self._note_memory(worker)
            worker.kill()
            self.deaths += 1
        self.due[slot] = (time.monotonic() + pause_s, failpoints)

    def freeze(self, slot: str, for_s: float) -> None:
        """SIGSTOP; `tend` continues it when the time is over."""
        worker = self.running.get(slot)
        if worker is not None and worker.alive:
            worker.freeze()
            self.frozen[slot] = time.monotonic() + for_s

    def restart(self, slot: str) -> None:
        """SIGTERM: it has to end by itself with 0. Raises Fault."""
        worker = self.running.get(slot)
        if worker is None or slot in self.frozen or not worker.alive or _stopped(worker):
            return
        del self.running[slot]
        self._note_memory(worker)
        code = worker.terminate(60)
        # before it has said anything a signal simply ends the interpreter
        begun = worker.output.exists() and worker.output.stat().st_size > 0
        if code not in (0, *_ALLOWED_EXITS) and (begun or code != -signal.SIGTERM):
            raise Fault(f"{worker.name} ended with {code} when asked to stop\n{worker.log()}")
        self.due[slot] = (0.0, "")

    def tend(self) -> None:
        """Replace the dead, continue whose time is over. Raises Fault for a strange end."""
        now = time.monotonic()
        for slot, worker in list(self.running.items()):
            if worker.alive:
                self._note_memory(worker)
                if slot not in self.frozen and _stopped(worker):  # by a failpoint
                    self.frozen[slot] = now + 2.0
                continue
            del self.running[slot]
            self.frozen.pop(slot, None)
            self.deaths += 1
            code = worker.process.poll()
            if code not in _ALLOWED_EXITS:
                raise Fault(f"{worker.name} ended by itself with {code}\n{worker.log()}")
            self.due[slot] = (now + _AGAIN_S, "")
        for slot in [slot for slot, until in self.frozen.items() if until <= now]:
            del self.frozen[slot]
            self.running[slot].thaw()
        for slot, (at, failpoints) in list(self.due.items()):
            if at <= now:
                self._start(slot, failpoints)

    def calm(self) -> None:
        """Everybody runs, nobody is stopped, no failpoint waits."""
        for slot in list(self.running):
            if slot in self.frozen:
                self.frozen[slot] = 0.0
            if slot in self.armed:
                self.kill(slot)
        self.due = dict.fromkeys(self.due, (0.0, ""))
        self.tend()

    def too_large(self) -> list[str]:
        """Workers that once held more memory than a worker may."""
        return [
            f"{name} held {peak // 1_000_000} MB"
            for name, peak in self.peak_bytes.items()
            if peak > _BYTES_MAX
        ]

    def _start(self, slot: str, failpoints: str) -> None:
        self.due.pop(slot, None)
        self.armed.discard(slot)
        if failpoints:
            self.armed.add(slot)
        name = f"{slot}-{len(self.workers.all)}"
        self.running[slot] = self.workers.start(slot.split("-")[0], name, failpoints)

    def _note_memory(self, worker: Worker) -> None:
        peak = _status(worker).get("VmHWM", "0").split()[0]
        self.peak_bytes[worker.name] = max(self.peak_bytes.get(worker.name, 0), int(peak) * 1024)


def _stopped(worker: Worker) -> bool:
    return _status(worker).get("State", "").startswith("T")


def _status(worker: Worker) -> dict[str, str]:
    """What the kernel says of the process; nothing once it has ended."""
    try:
        text = Path(f"/proc/{worker.process.pid}/status").read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in lines}

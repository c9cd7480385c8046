"""Real worker processes for tests: started with failpoints, watched, killed, stopped and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import forked

REPOSITORY = Path(__file__).parents[1]


class Worker:
    """One `gapless VERB` process; its output goes to a file that a failure can show."""

    def __init__(
        self,
        verb: list[str],
        environment: Mapping[str, str],
        folder: Path,
        name: str,
        failpoints: str = "",
        *,
        installed: bool = False,
    ) -> None:
        """`installed`: the command as users start it, imports and all."""
        self.name, self.output, self.mark = (
            name,
            folder / f"{name}.log",
            folder / f"{name}.hit",
        )
        full = {
            **os.environ,
            **environment,
            "GAPLESS_WORKER": name,
            "GAPLESS_FAILPOINTS": failpoints,
            "GAPLESS_FAILPOINT_MARK": str(self.mark),
            "PYTHONUNBUFFERED": "1",
        }
        self.process: forked.Forked | subprocess.Popen[bytes]
        if not installed:
            self.process = forked.Forked(
                forked.GAPLESS, verb, environment=full, cwd=REPOSITORY, stdout=self.output
            )
            return
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ops.cli.main", *verb],
                cwd=REPOSITORY,
                env=full,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def hits(self) -> list[str]:
        """Failpoints that acted so far, in order."""
        return self.mark.read_text().split() if self.mark.exists() else []

    def kill(self) -> None:
        """kill -9, and reap."""
        if self.alive:
            self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 30) -> int:
        """SIGTERM and the exit code of a graceful stop."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def log(self, lines: int = 40) -> str:
        said = self.output.read_text("utf-8", "replace") if self.output.exists() else ""
        text = said.splitlines()
        return "\n".join([f"--- {self.name} (exit {self.process.poll()})", *text[-lines:]])


class Workers:
    """All processes of one test; whatever is left is killed at the end."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, *, installed: bool = False
    ) -> None:
        self.environment, self.folder, self._installed = dict(environment), folder, installed
        self.all: list[Worker] = []

    def start(self, verb: str, name: str, failpoints: str = "", **extra: str) -> Worker:
        environment = {**self.environment, **extra}
        worker = Worker(
            verb.split(), environment, self.folder, name, failpoints, installed=self._installed
        )
        self.all.append(worker)
        return worker

    def run(
        self, verb: str, *, timeout_s: float = 90, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """One verb to its end; the caller looks at its exit code."""
        environment = {**os.environ, **self.environment, **extra}
        if not self._installed:
            return forked.run(
                verb.split(), environment=environment, cwd=REPOSITORY, timeout_s=timeout_s
            )
        return subprocess.run(
            [sys.executable, "-m", "ops.cli.main", *verb.split()],
            check=False,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )

    def json(self, verb: str) -> Any:
        """What `gapless VERB --json` prints."""
        done = self.run(f"{verb} --json")
        assert done.stdout.strip(), f"{verb}: exit {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def logs(self) -> str:
        return "\n".join(worker.log() for worker in self.all)

    def close(self) -> None:
        for worker in self.all:
            worker.kill()


@contextmanager
def workers(
    environment: Mapping[str, str], folder: Path, *, installed: bool = False
) -> Iterator[Workers]:
    """Workers of one test; on a failure their last lines are part of the report."""
    group = Workers(environment, folder, installed=installed)
    try:
        yield group
    except BaseException:
        print(group.logs())
        raise
    finally:
        group.close()


def wait_for(
    what: str, happened: Callable[[], Any], timeout_s: float = 60, every_s: float = 0.1
) -> Any:
    """The first true answer of `happened`, asked until then; an AssertionError that says `what`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = happened()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(every_s)

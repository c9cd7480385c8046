"""The worker processes of the demo: started, killed with `kill -9`, and replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(slots=True)
class Crew:
    """Workers by name (`ingest-1`); output of each goes to `folder/NAME.log`."""

    environment: Mapping[str, str]
    folder: Path
    kills: int = 0
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def start(self, name: str) -> None:
        """Start a worker; its verb is the name without its number."""
        verb = name.rsplit("-", 1)[0]
        environment = {**os.environ, **self.environment, "GAPLESS_WORKER": name}
        with (self.folder / f"{name}.log").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "ops.cli.main", verb],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        """`kill -9`: no handler runs, nothing is said goodbye to."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self.kills += 1

    def dead(self) -> list[str]:
        """Workers that ended without being told to."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def stop(self, timeout_s: float = 30) -> dict[str, int]:
        """SIGTERM to all and their exit codes; a graceful stop is 0."""
        for process in self._running.values():
            process.terminate()
        return {name: process.wait(timeout_s) for name, process in self._running.items()}

"""Foreign servers: installed once into a folder of the user's cache, run as processes of their own.

Nothing of them becomes a dependency of the product. Without their tools a test is skipped with its
reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from ops.stack.java import cache_folder

_INSTALL_S = 600.0
_READY_S = 30.0
# The server ends with the pipe on our standard input: also when the test is killed with -9.
_LEASH = '"$@" </dev/null & server=$!; cat >/dev/null; kill -9 "$server"'


def need_program(name: str) -> str:
    """The path of a program, or no test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def installed(name: str, files: Sequence[Path], install: Callable[[Path], object]) -> Path:
    """The folder with what `install` made of copies of `files`; made again when these change."""
    digest = hashlib.sha256(f"{sys.executable} {sys.version}".encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    base = cache_folder() / "acceptance"
    base.mkdir(exist_ok=True)
    folder = base / f"{name}-{digest.hexdigest()[:16]}"
    complete = folder / "complete"
    with _one_at_a_time(base / f"{name}.lock"):
        if not complete.exists():
            # A stamp is written last, so an interrupted installation is done again.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in files:
                shutil.copy(file, folder)
            install(folder)
            complete.touch()
    return folder


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_installer(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Runs one step of an installation in its folder; what it says is the reason of a skip."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not end within {_INSTALL_S:.0f} s")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        pytest.skip(f"{' '.join(map(str, command))}: exit {done.returncode}: {' | '.join(said)}")


def environment_of(folder: Path) -> Path:
    """The programs of a new Python environment in `folder` that has what `requirements.lock` locks."""
    run_installer([sys.executable, "-m", "venv", "environment"], folder)
    programs = folder / "environment/bin"
    pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "--quiet"]
    options = ["--disable-pip-version-check", "--require-hashes", "-r", "requirements.lock"]
    run_installer([*pip, *options], folder)
    return programs


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ForeignServer:
    """One running server; use it as a context manager."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        url: str,
        ready: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Returns once `url` + `ready` answers below 500. The output goes to a file in `folder`."""
        self.url = url
        self._output = folder / f"server-{time.monotonic_ns()}.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LEASH, "sh", *map(str, command)],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_ready(url + ready)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, url: str) -> None:
        give_up_at = time.monotonic() + _READY_S
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except urllib.error.HTTPError as answer:
                with answer:
                    if answer.code < 500:
                        return
            except OSError:
                pass
            if time.monotonic() > give_up_at:
                raise AssertionError(f"no answer from {url} in {_READY_S:.0f} s:\n{self.output()}")
            time.sleep(0.05)

    def output(self, lines: int = 20) -> str:
        """The last lines of what the server printed."""
        text = self._output.read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Ends the server at once; safe to call twice."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

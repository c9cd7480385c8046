"""Processes of the product, forked from one that has imported it all: a start costs no imports.

They are processes like any other: they can be killed, stopped and continued, and share nothing
with each other. What the installed command itself does is tested where it is started for real.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

GAPLESS = "ops.cli.main:main"
_PR_SET_PDEATHSIG = 1
_PRELOAD = ["tests.forked_modules"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_PRELOAD)


class Forked:
    """One process that runs `module:function` with words as its arguments; in the style of Popen.

    `environment` is all it sees of variables. Output is appended to the files.
    """

    def __init__(
        self,
        function: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        stdout: Path,
        stderr: Path | None = None,
    ) -> None:
        self._process = _context.Process(
            target=_child,
            args=(function, list(words), dict(environment), str(cwd), stdout, stderr),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Does nothing when it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def run(
    words: Sequence[str], *, environment: Mapping[str, str], cwd: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """`gapless WORDS` to its end. Raises subprocess.TimeoutExpired, and kills it then."""
    with tempfile.TemporaryDirectory(prefix="gapless-out-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = Forked(GAPLESS, words, environment=environment, cwd=cwd, stdout=out, stderr=err)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            list(words), code, out.read_text("utf-8"), err.read_text("utf-8")
        )


def _child(
    function: str,
    words: list[str],
    environment: dict[str, str],
    cwd: str,
    stdout: Path,
    stderr: Path | None,
) -> None:
    # When the test run is killed, what they are forked from ends, and they with it.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, name, flags in (
        (0, Path(os.devnull), os.O_RDONLY),
        (1, stdout, append),
        (2, stderr or stdout, append),
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = ["gapless", *words]
    module, called = function.split(":")
    sys.exit(getattr(importlib.import_module(module), called)())

"""What a command of a definition prints: in so much time, and no more of it than is kept in memory.

Its standard error is never looked at: it may hold what nobody should read.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

_CHUNK = 1 << 16


class TookTooLong(Exception):
    """It did not end in time, and was ended."""


class PrintedTooMuch(Exception):
    """It printed more than anybody reads, and was ended."""


def output_of(
    command: Sequence[str], *, timeout_s: float, most_bytes: int, folder: Path | None = None
) -> tuple[int, bytes]:
    """Its exit code and standard output. Blocks. Raises OSError, TookTooLong or PrintedTooMuch."""
    ended, end = os.pipe()  # readable once its time is over, whoever still holds its output
    with open(ended, "rb"), open(end, "wb", buffering=0) as over, subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None

        def end_it() -> None:
            _kill(process)
            over.write(b"x")

        timer = threading.Timer(timeout_s, end_it)
        timer.start()
        try:
            found = _read(process.stdout.fileno(), ended, most_bytes)
            code = process.wait()
        except PrintedTooMuch:
            _kill(process)
            raise
        finally:
            timer.cancel()
            timer.join()
        if _readable(ended):
            raise TookTooLong
    return code, found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The command and what it has started, as far as that stayed in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(pipe: int, ended: int, most_bytes: int) -> bytes:
    """What comes out of the pipe until it is closed, or the time is over."""
    found = bytearray()
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        waiting.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in waiting.select()}
            data = b"" if ended in ready else os.read(pipe, _CHUNK)
            if not data:
                return bytes(found)
            found += data
            if len(found) > most_bytes:
                raise PrintedTooMuch


def _readable(pipe: int) -> bool:
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        return bool(waiting.select(0))

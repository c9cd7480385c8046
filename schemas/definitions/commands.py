"""What a command of a definition prints: in so much time, and no more of it than is kept in memory.

Its standard error is never looked at: it may hold what nobody should read.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
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
    deadline = time.monotonic() + timeout_s
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            found = _read(process.stdout.fileno(), deadline, most_bytes)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TookTooLong from None
        finally:
            if process.poll() is None:
                process.kill()
    return code, found


def _read(pipe: int, deadline: float, most_bytes: int) -> bytes:
    found = bytearray()
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not waiting.select(left_s):
                raise TookTooLong
            data = os.read(pipe, _CHUNK)
            if not data:
                return bytes(found)
            found += data
            if len(found) > most_bytes:
                raise PrintedTooMuch

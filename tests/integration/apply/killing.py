"""`gapless apply` that ends by kill -9 on sight of certain records: while it reads a value, maps a
record, or lands a row; or that stops there inside COPY. For tests; started by `tests.forked`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from apply import careful, decode
from apply.mapping.types import CompiledMapping, Mapped, Place, Row
from apply.rows import Landing
from ops.cli.main import main as gapless
from schemas.records import Observation

VALUE, MAP, LAND = "kill-the-value", "kill-the-mapper", "kill-the-lander"
STOP = "stop-inside-copy"
AGAIN = "kill-when-tried-again"


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _reading(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def found(data: bytes) -> Any:
        if VALUE.encode() in data:
            _end()
        return read(data)

    return found


def main() -> None:
    """The verb, with poison that works."""
    map_page, stage = CompiledMapping.map_page, Landing._stage

    def mapped(self: CompiledMapping, observation: Observation, place: Place) -> Mapped:
        again = observation.reason == "retry"
        for raw in observation.records:
            if MAP.encode() in raw or (again and AGAIN.encode() in raw):
                _end()
        return map_page(self, observation, place)

    def staged(self: Landing, rows: Sequence[Row]) -> None:
        if any(STOP in str(row[0]) for row in rows):
            with self._connection.cursor().copy(self._target.copy.encode()) as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))  # a header, and no row yet
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # here, not some thread
        if any(LAND in str(row[0]) for row in rows):
            _end()
        stage(self, rows)

    CompiledMapping.map_page = mapped  # type: ignore[method-assign]
    Landing._stage = staged  # type: ignore[method-assign]
    for module in (decode, careful):
        module.decode = _reading(module.decode)  # type: ignore[attr-defined]
    gapless()

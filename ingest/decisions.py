"""Operators' decisions from the control topic: read to its end at start, then followed.

Owns one thread; what a decision means for a partition id is `control`'s to say.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from schemas import codec
from schemas.log.reader import LogUnavailable, OffsetGone, PartitionReader
from schemas.records import Control
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision and where it stands in the control topic."""

    offset: int
    control: Control

    def concerns(self, partition_id: str) -> bool:
        """Whether it is about this partition id, its stream or its source."""
        about = self.control.about
        return partition_id == about or partition_id.startswith(f"{about}/")


class Decisions:
    """All decisions known. `on_new` is called on the loop after new ones were read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: list[Decision] = []
        self._next = -1
        self._listeners: list[Callable[[], None]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self) -> None:
        """Everything up to the end as it stands now. Blocking; raises LogUnavailable."""
        with self._reader() as reader:
            self._known += self._read_on(reader)

    def after(self, offset: int, partition_id: str) -> list[Decision]:
        """What was decided about a partition id behind `offset`, in order."""
        return [d for d in self._known if d.offset > offset and d.concerns(partition_id)]

    def listen(self, on_new: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_new` whenever there are new decisions; the returned function ends that."""
        self._listeners.append(on_new)
        return lambda: self._listeners.remove(on_new)

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to tail the topic; listeners are called on `loop`."""
        self._thread = threading.Thread(
            target=self._tail, args=(loop,), name="decisions", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def _reader(self) -> PartitionReader:
        return PartitionReader(self._settings, self._settings.control, 0, "control")

    def _tail(self, loop: asyncio.AbstractEventLoop) -> None:
        away = False
        with self._reader() as reader:
            while not self._stop.wait(_LOOK_AGAIN_S):
                try:
                    found = self._read_on(reader)
                except (LogUnavailable, OffsetGone) as error:
                    if not away:
                        _log.warning("control topic not readable", error=str(error))
                    away = True
                    continue
                away = False
                if found and not self._stop.is_set():
                    loop.call_soon_threadsafe(self._add, found)

    def _add(self, found: list[Decision]) -> None:
        self._known += found
        for listener in list(self._listeners):
            listener()

    def _read_on(self, reader: PartitionReader) -> list[Decision]:
        end = reader.stable_end()
        if self._next < 0:
            self._next = reader.low()
        read = [_decision(r.offset, r.value) for r in reader.read(self._next, end, batch=50)]
        self._next = max(self._next, end)
        return [decision for decision in read if decision is not None]


def _decision(offset: int, value: bytes | None) -> Decision | None:
    if value is None:
        return None
    try:
        control = codec.decode(value)
    except codec.UnreadableValue as error:
        _log.error("a decision cannot be read and is not obeyed", offset=offset, error=str(error))
        return None
    if not isinstance(control, Control):
        _log.error("not a decision", offset=offset, found=type(control).__name__)
        return None
    return Decision(offset, control)

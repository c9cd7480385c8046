"""Calls one function for records, and finds the record that costs it its process.

Answers come one by one, so the record in hand when the process ends is known; it is tried once
more, alone in a fresh process, before it is blamed. The others never pay for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from apply.functions.frames import Answer
from apply.functions.process import Ended, How, Process
from apply.mapping.outside import Failed, Made, Skipped
from apply.outcomes import Reason
from schemas.definitions.mapping import FunctionSpec

_log = structlog.get_logger(__name__)
_REASONS = {
    How.HUNG: Reason.MAPPER_HUNG,
    How.KILLED: Reason.MAPPER_ENDED,
    How.MEMORY: Reason.MAPPER_ENDED,
}


class Runner:
    """One function of one worker. Safe between threads: one call at a time."""

    def __init__(self, spec: FunctionSpec, folder: Path, *, shown: bool = False) -> None:
        self._spec, self._folder, self._shown = spec, folder, shown
        self._process: Process | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start its process, so that a function that is not there is noticed now.

        Raises FunctionUnavailable.
        """
        with self._lock:
            self._running()

    def make(self, records: Sequence[bytes], observed: Mapping[str, object]) -> list[Made]:
        """What the function makes of each record. Raises FunctionUnavailable."""
        found: list[Made] = []
        with self._lock:
            while len(found) < len(records):
                answers, ended = self._call(records[len(found) :], observed)
                found += map(self._as_made, answers)
                if ended is not None:
                    found.append(self._alone(records[len(found)], observed))
        return found

    def close(self) -> None:
        """End its process."""
        with self._lock:
            if self._process is not None:
                self._process.end()
                self._process = None

    def _alone(self, record: bytes, observed: Mapping[str, object]) -> Made:
        answers, ended = self._call([record], observed)
        if ended is None:
            return self._as_made(answers[0])  # what came before it was to blame, or chance
        _log.warning(
            "a record ends its mapping function", function=self._spec.path, how=ended.detail
        )
        return Failed(_REASONS[ended.how], f"{self._spec.path} {ended.detail}")

    def _call(
        self, records: Sequence[bytes], observed: Mapping[str, object]
    ) -> tuple[list[Answer], Ended | None]:
        answers, ended = self._running().call(records, dict(observed))
        if ended is not None:
            self._process = None
        return answers, ended

    def _running(self) -> Process:
        if self._process is not None and not self._process.alive:
            self._process.end()  # it ended by itself between two calls
            self._process = None
        if self._process is None:
            self._process = Process(self._spec, self._folder, shown=self._shown)
        return self._process

    def _as_made(self, answer: Answer) -> Made:
        if answer.kind == "row":
            return answer.row
        if answer.kind == "ignored":
            return Skipped()
        return Failed(Reason.MAPPER_FAILED, f"{self._spec.path} {answer.detail}")

"""What was asked and what was given, as the server saw it: the newest requests, numbered from 1.

The `Authorization` header is never kept, only whether there was one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import asdict, dataclass

KEPT = 200_000


@dataclass(slots=True)
class Request:
    """`status` 0 means no whole answer was sent: cut, closed, or the caller went away; `fault` says why."""

    number: int
    at: str
    real_time_s: float
    method: str
    target: str
    body: str | None
    authorized: bool
    status: int
    count: int
    first_id: str | None
    last_id: str | None
    fault: str | None


class RequestLog:
    def __init__(self) -> None:
        self._requests: deque[Request] = deque(maxlen=KEPT)
        self._last = 0

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def add(self, request: Request) -> None:
        """Requests come in when they end, so their numbers may be out of order here."""
        self._requests.append(request)

    def after(self, number: int, pattern: re.Pattern[str] | None) -> list[dict[str, object]]:
        """Ended requests with a higher number, by number."""
        chosen = [
            asdict(request)
            for request in self._requests
            if request.number > number and (pattern is None or pattern.search(request.target))
        ]
        return sorted(chosen, key=lambda request: int(str(request["number"])))

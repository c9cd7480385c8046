"""What a plan of your own, written in Python, says and hears: `plan: {python: {class: …}}`.

Public: import these names into your module. The class decides; Gapless asks, stores and
checkpoints. It does no I/O and reads no clock, so it can be tested without a server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

FaultAction = Literal["fail", "retry", "rate_limited", "park", "source_gap"]
"""What a fault makes of an answer; see `Fault`."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question. Credentials, retries and limits are the definition's business.

    `path` begins with `/` and is appended to `base_url` as it stands; `link` instead is asked as it
    is and must lead to the same origin. A list in `params` repeats its key, None leaves it out.
    `body` is sent as JSON. `memo` is yours: it comes back with the answer and is never sent.
    """

    path: str = ""
    method: Literal["GET", "POST"] = "GET"
    params: Mapping[str, str | int | float | bool | Sequence[str] | None] = field(
        default_factory=dict
    )
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    link: str | None = None
    memo: Any = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing is to be asked before `at` (with a time zone); `why`, for people."""

    at: datetime
    why: str = "the plan waits"


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything up to the beginning of this poll was given back: the next one is the schedule's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that no rule of `errors` took away. Header names are in lower case.

    `body` is decompressed. `server_time` is the answer's `Date` less its `Age`, if it has one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    received_at: datetime
    server_time: datetime | None = None

    def json(self) -> Any:
        """The body as JSON. Raises ValueError if it is none."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Page:
    """What an answer holds: each record as JSON bytes, best exactly as they were sent.

    A page may be empty: a job was submitted, a half of a record came. `envelope` is kept with the
    page as evidence, such as the rest of the body; it is no record.
    """

    records: Sequence[bytes] = ()
    envelope: bytes = b""


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is no page.

    `fail`: an operator must look; `retry`: ask again, some times; `rate_limited` and `park`: not
    before `wait_s` seconds; `source_gap`: what `reason` says is gone for good, the plan goes on.
    `reason` is shown to people and stored: no record's content, no personal data.
    """

    action: FaultAction
    reason: str
    wait_s: float | None = None

    def __post_init__(self) -> None:
        if self.action not in get_args(FaultAction):
            known = ", ".join(get_args(FaultAction))
            raise ValueError(f"there is no action {self.action!r} for a fault; known: {known}")


class Plan(Protocol):
    """A plan of your own: one instance reads one partition id, one call at a time.

    Calls may come from different threads, and each may take `hang` seconds. Whatever raises is a
    failed fetch of that partition id alone: the instance is thrown away, a new one is restored from
    the last state that is durable, and asks again.
    """

    def __init__(self, settings: Mapping[str, Any], tenant: Mapping[str, Any]) -> None:
        """`settings` as the definition has them, secrets resolved; `tenant` is empty without one."""

    def restore(self, state: bytes | None, now: datetime) -> None:
        """Go on from what `state` once returned; None: from the beginning."""

    def ask(self, now: datetime) -> Request | WaitUntil | Complete:
        """The next question. `now` is certainly not ahead of the provider's clock, in UTC."""

    def take(self, request: Request, answer: Answer) -> Page | Fault:
        """What the answer to `request` holds."""

    def state(self) -> bytes:
        """What to go on from, at most 48 KiB, no secret in it.

        It must lead to everything that was not yet given back as a page's record: it is stored
        behind those, and nothing in front of it is ever asked for again.
        """

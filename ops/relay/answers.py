"""What an attempt to publish came to, and what an HTTP answer means for an event. Pure.

Which side is at fault decides what follows: a receiver that is away costs no event an attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ingest.responses import Answer, wait_s
from schemas.definitions.rules import DEFAULT_ERRORS
from schemas.definitions.source import Action

_RETRY: Final = next(rule for rule in DEFAULT_ERRORS if rule.do is Action.RETRY)
CREDENTIALS: Final = (401, 403, 407)
_NOT_NOW: Final = (429,)
_GATEWAY: Final = (502, 503, 504)
# The receiver still works on this very event, or wants it again.
_AGAIN: Final = (408, 409, 425)


class Kind(StrEnum):
    """Whose matter it is."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # of the event, and trying again cannot cure it
    FAULT = "fault"  # of the event, perhaps; tried again so many times
    AWAY = "away"  # of the receiver; the event is not to blame
    GATEWAY = "gateway"  # away if the receiver takes nothing, else a fault of the event


@dataclass(frozen=True, slots=True)
class Result:
    """How one attempt ended. `text` holds no content and no secret; `wait_s`: what was asked for."""

    kind: Kind
    text: str = ""
    wait_s: float | None = None


class ReceiverAway(Exception):
    """Nobody takes events there now; all stay unsent. The text says where and why."""


ACCEPTED: Final = Result(Kind.ACCEPTED)


def of_status(status: int, headers: Mapping[str, str], now_us: int) -> Result:
    """What an answer means. `headers` in lower case; `now_us`: wall clock, for dates to wait for."""
    if 200 <= status < 300:
        return ACCEPTED
    text = f"the receiver answered {status}"
    if status in CREDENTIALS:
        return Result(Kind.AWAY, f"{text}: correct `auth` of the mapping, or its secrets")
    if 300 <= status < 400:
        return Result(Kind.REFUSED, f"{text}, and redirects are not followed: correct `post:`")
    asked = wait_s(Answer(status, headers, lambda: None), _RETRY, now_us)
    if status in _NOT_NOW:
        return Result(Kind.AWAY, text, asked)
    if status in _GATEWAY:
        return Result(Kind.GATEWAY, text, asked)
    if status >= 500 or status in _AGAIN or status < 200:
        return Result(Kind.FAULT, text, asked)
    return Result(Kind.REFUSED, text)

"""What an answer means: the first error rule that holds, and how long it asks to wait. Pure.

A definition's own rules come first, nearest first; the defaults of the language come last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from schemas.definitions.paths import MISSING, Path, Root, Step, find
from schemas.definitions.problems import NotationError
from schemas.definitions.rules import DEFAULT_ERRORS
from schemas.definitions.source import Action, ErrorRule
from schemas.definitions.times import parse_time

SECOND_US = 1_000_000
WAIT_MAX_S = 366 * 86_400.0
"""A provider that asks for more has made a mistake; so long is as good as for ever."""
_RESETS = (
    "x-ratelimit-reset",
    "x-rate-limit-reset",
    "ratelimit-reset",
    "x-ratelimit-reset-after",
)
_REMAINING = {name: name.replace("reset", "remaining").removesuffix("-after") for name in _RESETS}
# A reset is either so many seconds away or a time; no API asks to wait for thirty years.
_EPOCH_FROM_S = 1_000_000_000


class Answer:
    """An answer as rules see it: header names in lower case; `body` is None if it is no JSON.

    `read` gives the body when a rule first looks into it: most never do. `seek` gives what stands at a
    path of a body that is too large to be decoded for one value.
    """

    __slots__ = ("_body", "_read", "_seek", "headers", "status")

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        read: Callable[[], Any],
        seek: Callable[[tuple[Step, ...]], object] | None = None,
    ) -> None:
        self.status, self.headers, self._seek = status, headers, seek
        self._read: Callable[[], Any] | None = read
        self._body: Any = None

    @property
    def body(self) -> Any:
        """The decoded body."""
        if self._read is not None:
            self._body, self._read = self._read(), None
        return self._body

    def value(self, path: Path) -> object:
        """What stands at a path of an answer; MISSING if nothing does."""
        if path.root is Root.STATUS:
            return self.status
        if path.root is Root.HEADER:
            return self.headers.get(str(path.steps[0]), MISSING)
        if self._seek is not None:
            return self._seek(path.steps)
        return find(path.steps, self.body)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with an answer. `wait_s` is None where neither the rule nor the answer says it."""

    action: Action
    wait_s: float | None = None
    because: str | None = None


def judge(answer: Answer, rules: Iterable[ErrorRule], now: int) -> Verdict:
    """The first rule that holds decides; an answer that none names is a success. `now`: server clock."""
    for rule in rules:
        if rule.when.matches(answer.value):
            return _said(answer, rule, now)
    default = _default(answer.status)
    return Verdict(Action.SUCCESS) if default is None else _said(answer, default, now)


@cache
def _default(status: int) -> ErrorRule | None:
    """The default that names a status: they look at nothing else."""
    bare = Answer(status, {}, lambda: None)
    return next((rule for rule in DEFAULT_ERRORS if rule.when.matches(bare.value)), None)


def _said(answer: Answer, rule: ErrorRule, now: int) -> Verdict:
    return Verdict(rule.do, wait_s(answer, rule, now), rule.because)


def wait_s(answer: Answer, rule: ErrorRule, now: int) -> float | None:
    """Seconds to wait, 0 or more: what the rule says, else what the usual headers say."""
    if rule.wait_s is not None:
        return rule.wait_s
    if rule.wait is not None and (told := _seconds(answer.value(rule.wait))) is not None:
        return told
    if rule.until is not None and (told := _until(answer.value(rule.until), now)) is not None:
        return told
    if rule.do not in (Action.RATE_LIMITED, Action.RETRY, Action.PARK):
        return None
    return _usual(answer.headers, now, refused=rule.do is not Action.RETRY)


def _usual(headers: Mapping[str, str], now: int, *, refused: bool) -> float | None:
    """Retry-After (the longest of several), else X-RateLimit-Reset, else the RateLimit drafts.

    A header that says nothing readable is passed over. A quota that has something left is no
    reason to wait for its reset; `refused`: for too many requests, so it may be where none says so.
    """
    if "retry-after" in headers:
        told = [_retry_after(part, now) for part in _values(headers["retry-after"])]
        known = [seconds for seconds in told if seconds is not None]
        if known:
            return max(known)
    for name in _RESETS:
        if not _used_up(headers.get(_REMAINING[name]), refused=refused):
            continue
        # of several values the longest, as everywhere: no less is safe
        told = [_until(part, now) for part in _values(headers.get(name, ""))]
        known = [seconds for seconds in told if seconds is not None]
        if known:
            return max(known)
    return _rate_limit(headers.get("ratelimit"), refused=refused)


def _used_up(remaining: str | None, *, refused: bool) -> bool:
    left = None if remaining is None else _seconds(remaining)
    return refused if left is None else left == 0


def _values(header: str) -> list[str]:
    """Several values, joined by commas; a date has a comma of its own, behind its weekday."""
    found: list[str] = []
    for part in (one.strip() for one in header.split(",")):
        if found and found[-1].isalpha():
            found[-1] += f", {part}"
        elif part:
            found.append(part)
    return found


def _retry_after(text: str, now: int) -> float | None:
    found = _seconds(text)
    return found if found is not None else _retry_after_date(text, now)


def _retry_after_date(text: str, now: int) -> float | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)  # HTTP dates are, also in their old forms
    return _bounded(at.timestamp() - now / SECOND_US)


def _rate_limit(header: str | None, *, refused: bool) -> float | None:
    """`RateLimit: "policy";r=0;t=30, …` (draft), or the older `limit=10, remaining=0, reset=30`.

    Of several policies those that are used up count: a daily one with room left resets tomorrow.
    Where none says so, the longest: the answer was a refusal all the same.
    """
    if header is None:
        return None
    policies = [_parameters(part) for part in header.split(",")]
    if not any("t" in one for one in policies):
        policies = [{name: value for one in policies for name, value in one.items()}]
    waits: list[float] = []
    spent: list[float] = []
    for one in policies:
        told = _seconds(one.get("t", one.get("reset")))
        if told is None:
            continue
        waits.append(told)
        if _seconds(one.get("r", one.get("remaining"))) == 0:
            spent.append(told)
    return max(spent or (waits if refused else []), default=None)


def _parameters(policy: str) -> dict[str, str]:
    """`name=value` parts of one policy; a quoted name has none of its own."""
    found = {}
    for part in policy.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            found[name.strip().lower()] = value.strip().strip('"')
    return found


def _seconds(value: object) -> float | None:
    """A number of seconds; None for anything else, also for a bare boolean or NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(found) else _bounded(found)


def _until(value: object, now: int) -> float | None:
    """Seconds until a time: epoch seconds (or milliseconds), seconds from now, or ISO 8601 text."""
    number = _number(value)
    if number is not None:
        if number >= _EPOCH_FROM_S * 1000:
            number /= 1000
        return _bounded(number - now / SECOND_US if number >= _EPOCH_FROM_S else number)
    if not isinstance(value, str):
        return None
    try:
        return _bounded((parse_time(value) - now) / SECOND_US)
    except (ValueError, NotationError):
        return _retry_after_date(value, now)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), WAIT_MAX_S)

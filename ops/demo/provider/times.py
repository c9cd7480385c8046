"""Time stamps as the provider reads and writes them: integers of microseconds since 1970 UTC.

Integers, because a float of seconds cannot hold a microsecond of today exactly.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import formatdate
from functools import lru_cache

SECOND_US = 1_000_000
_NUMBER = re.compile(r"^\d{1,17}(\.\d{1,6})?$")
# A plain number above this is milliseconds: as seconds it would lie behind the year 5000.
_LARGEST_SECONDS = 100_000_000_000


class BadTime(ValueError):
    """The text is no time with a zone."""


@lru_cache(maxsize=65_536)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def rfc3339(stamp_us: int, unit_us: int = 1) -> str:
    """Text of a stamp, cut to units of `unit_us` (1, 1000 or 1,000,000 microseconds)."""
    second, rest = divmod(stamp_us, SECOND_US)
    if unit_us >= SECOND_US:
        return f"{_second_text(second)}Z"
    if unit_us >= 1_000:
        return f"{_second_text(second)}.{rest // 1_000:03d}Z"
    return f"{_second_text(second)}.{rest:06d}Z"


@lru_cache(maxsize=4_096)
def parse(text: str) -> int:
    """Microseconds of an RFC 3339 time, or of a number of seconds or milliseconds.

    Raises BadTime for anything else, also for a time without a zone.
    """
    if _NUMBER.match(text):
        whole, _, part = text.partition(".")
        if int(whole) > _LARGEST_SECONDS:
            return int(whole) * 1_000
        return int(whole) * SECOND_US + int(part.ljust(6, "0") or 0)
    # A leap second is the first one of the next minute.
    leap = text[16:19] == ":60"
    try:
        moment = datetime.fromisoformat(text[:16] + ":59" + text[19:] if leap else text)
    except ValueError as error:
        raise BadTime(f"not a time: {text!r}") from error
    if moment.tzinfo is None:
        raise BadTime(f"a time without a zone: {text!r}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds + leap) * SECOND_US + since.microseconds


@lru_cache(maxsize=16)
def http_date(second: int) -> str:
    """The form of the `Date` header (RFC 9110)."""
    return formatdate(second, usegmt=True)

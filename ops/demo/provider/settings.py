"""What may be set about the provider while it runs; each value is checked before it counts.

The defaults are a well-behaved server; everything that makes it hostile is set by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

BOUNDS = ("[)", "[]", "()", "(]")


class BadSetting(ValueError):
    """A setting that does not exist, or a value that it cannot have."""


@dataclass
class Settings:
    """Names end in their unit: `_us` microseconds, `_ms` milliseconds, `_s` seconds, all of the provider's time."""

    bounds: str = "[)"
    # Both the asked ends and the stamps are cut to this unit before they are compared.
    granularity_us: int = 1
    # Stamps are stored in `stored_us` and shown in `shown_us`; a server may store more than it shows.
    stored_us: int = 1_000
    shown_us: int = 1_000
    default_limit: int = 100
    # The most records of a page; a higher wish is cut without a word.
    page_cap: int = 1_000
    # The most records that a window may hold, and what happens above: 422, or the rest is never given.
    result_cap: int | None = None
    result_cap_answer: str = "refuse"
    # Older stamps are not found by time: 200 and nothing, or 410 when the window begins earlier.
    retention_s: float | None = None
    retention_answer: str = "silent"
    token_lifetime_s: float | None = None
    # Rows can be found by time only so long after they were committed, plus a random part.
    visibility_lag_ms: int = 0
    visibility_jitter_ms: int = 0
    auth_token: str | None = None
    compress: bool = False
    # Pages of random length below the limit, though more is there.
    short_pages: bool = False
    # A token also behind the last record: the page after it is empty.
    trailing_empty: bool = False
    # The token of a page is the token that was asked with: a loop.
    token_loop: bool = False
    # Each page is given twice, the second time under a new token.
    repeated_pages: bool = False
    # Before each page comes an empty one, with a token behind it.
    empty_pages: bool = False
    # Tokens hold signs that mean something in a URL: + / = % & #
    odd_tokens: bool = False
    # What the last page says in the place of a token: nothing, an empty one, or the one asked with.
    end_token: str = "none"
    # What is asked about time is accepted and means nothing.
    ignore_filter: bool = False
    # Listings by position (`all`, `linked`) go from the last record to the first.
    descending: bool = False
    # The origin that Link headers name instead of this server's.
    link_origin: str | None = None

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Takes all of `wanted` or nothing; raises BadSetting."""
        merged = {**asdict(self), **wanted}
        known = {field.name: str(field.type) for field in fields(self)}
        for name in wanted:
            if name not in known:
                raise BadSetting(f"no setting {name!r}; there are {', '.join(sorted(known))}")
            if not _fits(merged[name], known[name]):
                raise BadSetting(f"{name} is a {known[name]}, not {merged[name]!r}")
        _check(merged)
        for name in wanted:
            setattr(self, name, merged[name])

    def values(self) -> dict[str, Any]:
        return asdict(self)

    def cut(self, stamp_us: int) -> int:
        """The stamp as it is stored."""
        return stamp_us - stamp_us % self.stored_us


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return "None" in kind
    if kind.startswith("bool"):
        return isinstance(value, bool)
    if kind.startswith("str"):
        return isinstance(value, str)
    numbers = (int, float) if kind.startswith("float") else (int,)
    return isinstance(value, numbers) and not isinstance(value, bool) and value >= 0


def _check(wanted: Mapping[str, Any]) -> None:
    if wanted["bounds"] not in BOUNDS:
        raise BadSetting(f"bounds is one of {BOUNDS}")
    if wanted["result_cap_answer"] not in ("refuse", "truncate"):
        raise BadSetting("result_cap_answer is refuse or truncate")
    if wanted["retention_answer"] not in ("silent", "refuse"):
        raise BadSetting("retention_answer is silent or refuse")
    if wanted["end_token"] not in ("none", "empty", "same"):
        raise BadSetting("end_token is none, empty or same")
    for name in ("granularity_us", "default_limit", "page_cap", "stored_us"):
        if wanted[name] < 1:
            raise BadSetting(f"{name} is at least 1")
    if wanted["shown_us"] not in (1, 1_000, 1_000_000):
        raise BadSetting("shown_us is 1, 1000 or 1000000")

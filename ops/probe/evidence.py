"""What the experiments on one plan have shown so far. Pure; filled step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ops.probe.ends import Ends
from ops.probe.model import Answer, Refused, Row, Sight
from ops.probe.walking import Walked

S = 1_000_000


@dataclass(slots=True)
class Filtered:
    """What a window wholly outside of all records showed. None: not asked, or no telling answer."""

    start_ignored: bool | None = None
    end_ignored: bool | None = None
    reversed: bool = False
    why: str | None = None


@dataclass(slots=True)
class Cap:
    """Pages of different sizes. `sizes`: of full pages that were asked with the declared size.

    `more_asked`, `more_given`: one larger wish and what came; `skips`: a page number counts the
    asked size, but fewer are given.
    """

    asked: int | None = None
    sizes: list[int] = field(default_factory=list)
    largest: int = 0
    more_asked: int | None = None
    more_given: int | None = None
    more_full: bool = False
    refused: str | None = None
    skips: bool | None = None


@dataclass(slots=True)
class Token:
    """A token of a second page, used again in several ways. Texts say what came."""

    first: Sight | None = None
    again: Answer | None = None
    apart: Answer | None = None
    other: Answer | None = None
    last: Answer | None = None
    age_us: int = 0


@dataclass(slots=True)
class Cursor:
    """What the feed answers when it is asked to go on."""

    known_again: int = 0
    all_again: bool = False
    first: Sight | None = None
    again: Answer | None = None
    apart: Answer | None = None
    refused: str | None = None


@dataclass(slots=True)
class Behind:
    """What a keyset shows behind some of its records. `told`: how many were asked; `ties`: of which
    a next one shares their time; `again`: shown although it stood there or before; `passed`: not
    shown although it stood behind, `passed_ties` at the same time.
    """

    told: int = 0
    ties: int = 0
    again: int = 0
    begins_again: bool = False
    passed: int = 0
    passed_ties: int = 0
    refused: str | None = None

    @property
    def exact(self) -> bool:
        """Whether stamps are what they show: behind a finer one the record itself would stand."""
        return self.told > 1 and self.again == 0


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the newest rows. `whole`: it saw everything that is stamped after `start`.

    `first`: how many of the rows its first page has. `sent` the first page, `received` the last;
    microseconds, local clock.
    """

    rows: tuple[Row, ...]
    first: int
    whole: bool
    start: int
    sent: int
    received: int

    @property
    def floor(self) -> int | None:
        """It saw everything that is stamped after this time; None: nothing is certain."""
        if self.whole:
            return self.start
        times = [row.time for row in self.rows[: self.first] if row.time is not None]
        return min(times) if times and times == sorted(times, reverse=True) else None


@dataclass(frozen=True, slots=True)
class Listing:
    """Records that the changes show, before and after: how many, and how many the listing lacks."""

    known: int
    lacking: int


@dataclass(slots=True)
class Evidence:
    """Everything about one plan. `why_not`: why an experiment, by its name, told nothing."""

    sample: Walked = field(default_factory=Walked)
    unfiltered: bool = False
    empty: bool = False
    filtered: Filtered | None = None
    behind: Behind | None = None
    ends: Ends | None = None
    cap: Cap | None = None
    walks: list[Walked] = field(default_factory=list)
    token: Token | None = None
    cursor: Cursor | None = None
    looks: list[Look] = field(default_factory=list)
    looked: list[Sight] = field(default_factory=list)
    listing: Listing | None = None
    why_not: dict[str, str] = field(default_factory=dict)

    def sights(self) -> Iterator[Sight]:
        """Every page that was seen of the collection as it is declared to be asked."""
        for walked in (self.sample, *self.walks):
            yield from (sight for _, sight in walked.pages)
        yield from self.looked

    def rows(self) -> list[Row]:
        """Every record that was seen, with repetitions."""
        return [row for sight in self.sights() for row in sight.rows]


@dataclass(frozen=True, slots=True)
class Clock:
    """How far the server's clock is ahead of ours, at least and at most; microseconds."""

    low: int
    high: int

    def earliest(self, local: int) -> int:
        return local + self.low

    def latest(self, local: int) -> int:
        return local + self.high


def clock_of(sights: Iterator[Sight]) -> Clock | None:
    """The narrowest offset that all answers allow; None if no answer told the time.

    `Date` shows whole seconds, cut off, and was made between request and receipt.
    """
    told = [(s.server_time, s.sent, s.received) for s in sights if s.server_time is not None]
    if not told:
        return None
    lows = [at - received for at, _, received in told]
    highs = [at + S - sent for at, sent, _ in told]
    if max(lows) <= min(highs):
        return Clock(max(lows), min(highs))
    return Clock(min(lows), max(highs))  # a clock that was moved meanwhile


def page_like(first: Sight, other: Answer | None) -> str | None:
    """How another answer to the same question compares: same, changed, other, refused, nothing."""
    if other is None:
        return None
    if isinstance(other, Refused):
        return "refused"
    before, after = [r.id for r in first.rows], [r.id for r in other.rows]
    if before == after:
        return "same"
    if not after:
        return "nothing"
    return "changed" if 2 * len(set(before) & set(after)) >= len(set(before)) else "other"

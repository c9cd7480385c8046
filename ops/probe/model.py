"""What experiments ask, what they see, and what is found. Pure.

An experiment is a generator: it yields questions and pauses, is sent answers, and keeps what they
show as evidence. It holds ids and fingerprints of records, never their content.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ingest.plans.protocol import Page, Value

T = TypeVar("T")


class Spent(Exception):
    """No further question may be asked. The text is what more would need, for `unknown`."""


class Away(Spent):
    """The provider gives no answers, or asks to wait: nothing else of this source is asked."""


class NotLetIn(Spent):
    """The provider refuses who asks; the text is why. `whole`: not for this stream alone."""

    def __init__(self, why: str, unblocked_by: str, *, whole: bool) -> None:
        super().__init__(f"{unblocked_by}: {why}")
        self.why, self.unblocked_by, self.whole = why, unblocked_by, whole


@dataclass(frozen=True, slots=True)
class Row:
    """One record. `time` in microseconds, None without one; `unit`: the step in which it is shown.

    `gone`: it says of itself that it was deleted. `content`: a fingerprint.
    """

    id: str
    time: int | None
    unit: int
    content: int
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One request of a plan. Times among `values` are microseconds; what has no value is left out.

    `fine`: times are written in this unit (microseconds), finer than the definition's format.
    `apart`: over a connection of its own, as another process would ask.
    """

    plan: str
    values: Mapping[str, Value]
    link: str | None = None
    fine: int | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next question."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Sight:
    """A whole answer. `sent` and `received`: local clock; `server_time`: `Date` less `Age`, cut to
    a second; all in microseconds.
    """

    rows: tuple[Row, ...]
    page: Page
    sent: int
    received: int
    server_time: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """No page came; `known`: the definition has a rule for such an answer."""

    why: str
    known: bool = False


Answer = Sight | Refused
Steps = Generator[Question | Pause, Answer | None, T]


def ask(question: Question) -> Steps[Answer]:
    """The answer to one question."""
    answer = yield question
    assert answer is not None
    return answer


def pause(seconds: float) -> Steps[None]:
    """Lets time go by."""
    yield Pause(seconds)


NOTHING = "nothing"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `loses`: what the difference loses, `nothing`, or `unknown`.

    `needs`: what would be needed to find out, where that was not possible. `write`: keys of the
    plan that may be written into the definition, as proven.
    """

    name: str
    declared: str
    observed: str
    loses: str = NOTHING
    needs: str | None = None
    write: Mapping[tuple[str, ...], str | int] = field(default_factory=dict)


def unknown(name: str, declared: str, needs: str) -> Finding:
    """What could not be found out."""
    return Finding(name, declared, UNKNOWN, UNKNOWN, needs)

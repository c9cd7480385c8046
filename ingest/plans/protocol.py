"""What a plan and the fetcher say to each other: questions, facts about answers, steps.

A plan never sees bytes or a clock. What is durable stands in `PlanState`; what a plan keeps in
memory beside it (ids of earlier walks, used tokens) may be lost at any time without losing a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from schemas.records import Mark, PlanState

Nonce = Callable[[], str]
"""Gives a text that no earlier pass of this partition id has carried."""

Value = str | int | float | bool | None
"""What a placeholder may stand for; times are integer microseconds since the epoch."""

Position = tuple[str | None, str | None]
"""The time and the id of a record, as texts that `opaque.give` turns back; None: it has none."""

TOKEN_MAX_BYTES = 4096
"""Of a token, cursor, id or time that a checkpoint has to hold."""
PASS_RANGES_MAX = 64
OPEN_MAX = 8
WALKS_MAX = 6
IDLE_PAGES_MAX = 100
RESTARTS_MAX = 5


def too_long(text: str) -> bool:
    """Whether a checkpoint cannot hold it."""
    return len(text.encode("utf-8", "surrogatepass")) > TOKEN_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on three clocks, microseconds since the epoch.

    `server` is certainly not ahead of the provider's clock, `server_max` certainly not behind it.
    """

    local: int
    server: int
    server_max: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. `state` is the plan's state in which it is asked.

    `window` is what is asked for, widened to what the server includes (microseconds, both ends
    included). `page` counts from 1 within a walk; a `probe` asks for the collection's identity. `run`:
    the occurrence of the schedule that the question is about. A `listing` asks for parents.
    """

    plan: str
    state: PlanState
    scope: str
    pass_: str
    page: int
    reason: str
    values: Mapping[str, Value] = field(default_factory=dict)
    link: str | None = None
    probe: bool = False
    window: tuple[int, int] | None = None
    token: str | None = None
    run: str | None = None
    listing: bool = False


Parent = tuple[str, Mapping[str, Value]]
"""What tells a parent apart (64 bits, hexadecimal), and its fields that requests send."""


def no_ids() -> Sequence[int]:
    """Ids of a page that has none."""
    return ()


@dataclass(frozen=True, slots=True)
class Page:
    """What a plan has to know of an answer that passed all checks.

    `next` is the token or the absolute link; `ended` that a declared predicate of the end holds;
    `closed` that an error rule declared the answer empty. `content` is a cheap fingerprint of the
    records. `read_ids` gives one 8-byte hash per record, `read_compared` those by which walks are
    compared (id and time, records of the window only). `times` has the time of each record or None,
    only where the order of the pages matters, `positions` its time and id as they stood there, only
    where these turn the pages. `parts` is the number of log records it needs. With a `listing` it has
    no records of its own.
    """

    records: int
    at: Now
    parts: int = 1
    next: str | None = None
    ended: bool = False
    closed: bool = False
    total: int | None = None
    cursor: str | None = None
    last_id: str | None = None
    content: int = 0
    read_ids: Callable[[], Sequence[int]] = no_ids
    read_compared: Callable[[], Sequence[int]] = no_ids
    times: Sequence[int | None] = ()
    positions: Sequence[Position] = ()
    elapsed_us: int = 0
    listing: Listing | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of the parents' listing, and those of its records that count."""

    page: Page
    parents: Sequence[Parent]


class Refusal(StrEnum):
    """An answer that is no page but says something about the plan's question."""

    TOKEN_EXPIRED = "token_expired"
    SPLIT = "split_interval"
    GAP = "source_gap"
    SLOW = "slow"


class Denied(StrEnum):
    """Whom or what the provider refuses; other questions of the same would be refused as well."""

    CREDENTIALS = "credentials"  # who asks, whatever is asked
    ACCESS = "access"  # this collection: not to who asks, or it is not there


@dataclass(frozen=True, slots=True)
class Stall:
    """A terminal fault of this attempt: what it is and what would help.

    `passing`: time alone may cure it, so it is tried again soon whatever the schedule says.
    """

    reason: str
    unblocked_by: str
    passing: bool = False
    denied: Denied | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What a plan made of an answer, or of the passing of time.

    `log`: the page becomes an observation. `recreated`: the source epoch rises. `lost`: something
    is gone for good, so a snapshot is due at once. A step with `tombstones` has neither page nor
    marks. `save`: the state is worth a checkpoint although nothing is logged.
    """

    state: PlanState
    log: bool = False
    marks: tuple[Mark, ...] = ()
    stall: Stall | None = None
    recreated: bool = False
    lost: bool = False
    tombstones: tuple[str, ...] = ()
    save: bool = False


class Plan(Protocol):
    """One way of reading one partition id. Every method is pure but for the plan's own memory."""

    @property
    def name(self) -> str: ...

    def adopt(self, state: PlanState | None) -> PlanState:
        """The state to go on with after a restore; memory is empty and passes are fresh."""
        ...

    def begin(self, state: PlanState, now: Now) -> PlanState:
        """A poll starts at `now`: whatever end it has is fixed here."""
        ...

    def next(self, state: PlanState, now: Now) -> Ask | Step | None:
        """The next question; or a step that needs no answer; or None: the poll is over."""
        ...

    def take(self, ask: Ask, page: Page) -> Step:
        """An answer that passed all checks."""
        ...

    def refuse(self, ask: Ask, refusal: Refusal, now: Now) -> Step:
        """An answer that is no page."""
        ...

    def can_split(self, ask: Ask) -> bool:
        """Whether a smaller question could stand in for this one (if it is too slow)."""
        ...

"""What a source's definition says, frozen: how to ask, and what is true of the provider.

Every plan carries its own fully merged request; nothing has to be looked up at the stream or the
source. Plans that are programs stand in `programs`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from schemas import keys
from schemas.definitions.cron import Occurrences
from schemas.definitions.paths import Path
from schemas.definitions.predicates import Predicate, Scalar
from schemas.definitions.secrets import Reference
from schemas.definitions.templates import Template, Value, names_in
from schemas.definitions.times import TimeFormat

if TYPE_CHECKING:
    from schemas.definitions.programs import ProgramSpec

Secret = Reference | Template
"""A secret by reference, or a template of `{tenant.x}` whose field is a reference."""


@dataclass(frozen=True, slots=True)
class BearerAuth:
    """`Authorization: Bearer <token>`."""

    token: Secret


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """HTTP basic authentication; a user name may stand in the file, a password may not."""

    user: Secret | str
    password: Secret


@dataclass(frozen=True, slots=True)
class ApiKeyAuth:
    """A key sent in the header or the query parameter `name`."""

    place: str  # header or param
    name: str
    value: Secret


@dataclass(frozen=True, slots=True)
class SessionAuth:
    """Sign in with a POST, read the token from its answer, send it in `header` as it is."""

    post: Template  # path, appended to base_url
    body: Mapping[str, Value]  # sent as JSON
    token: Path  # in the answer (root BODY or HEADER)
    header: str
    lifetime_s: float | None  # sign in again after this; a 401 does so too
    scheme: str = ""  # a word in front of the token, such as Bearer


@dataclass(frozen=True, slots=True)
class OAuth2Auth:
    """A bearer token of a token endpoint: client credentials, or a refresh token that may rotate."""

    token_url: Template | Reference  # a URL, or a path that is appended to base_url
    client_id: Secret | str
    client_secret: Secret | None  # None: a public client
    client_auth: str = "basic"  # or body: how the client's secret is sent
    scopes: tuple[str, ...] = ()
    params: Mapping[str, Value] = field(default_factory=dict)  # further fields of the form
    refresh_token: Secret | None = None  # where the chain of refresh tokens begins
    store: Template | None = None  # the file that keeps the newest one; with `refresh_token`


AuthSpec = BearerAuth | BasicAuth | ApiKeyAuth | SessionAuth | OAuth2Auth


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant: its id, which is part of keys and never personal, and its other fields."""

    id: str
    fields: Mapping[str, Scalar | Reference]  # holds `id` too; served as {tenant.x}


@dataclass(frozen=True, slots=True)
class TenantsSpec:
    """Whose data is read: a list, a file or a command's output, read again while running."""

    listed: tuple[Tenant, ...] = ()  # as they were when the definition was loaded
    file: FilePath | None = None  # for a list: the definition's own
    within: tuple[str, ...] = ("list",)  # where the list may stand in it
    command: tuple[str, ...] = ()
    folder: FilePath = field(default_factory=FilePath)  # where the command runs
    every_s: float = 10.0  # how often they are read again


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """How hard the provider may be asked, per credential or per tenant."""

    rate_per_s: float | None = None
    concurrency: int = 4
    per: str = "credential"  # or tenant
    timeout_s: float = 30.0
    body_max_bytes: int = 32 * 1024 * 1024  # after decompression
    attempts: int = 6
    wait_max_s: float = 300.0  # a longer wait becomes `not_before`
    reserve_s: float = 10.0  # kept to store a page under --budget


class Action(StrEnum):
    """What an error rule makes of an answer."""

    SUCCESS = "success"
    FAIL = "fail"
    RETRY = "retry"
    RATE_LIMITED = "rate_limited"
    REFRESH_CREDENTIALS = "refresh_credentials"
    TOKEN_EXPIRED = "token_expired"
    SPLIT_INTERVAL = "split_interval"
    SOURCE_GAP = "source_gap"
    PARK = "park"
    TREAT_AS_EMPTY = "treat_as_empty"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """If `when` holds of the answer, do `do`. Paths of `when` have root STATUS, HEADER or BODY."""

    when: Predicate
    do: Action
    until: Path | None = None  # where the answer says until when to wait (a time)
    wait: Path | None = None  # where the answer says how long to wait (seconds)
    wait_s: float | None = None  # or a fixed wait
    because: str | None = None


class Turn(StrEnum):
    """How the next page is asked for; it follows from the placeholder that the request uses."""

    TOKEN = "token"  # {token}, read at `next`
    LINK = "link"  # the URL read at `next` is asked as it is
    PAGE = "page"  # {page}
    OFFSET = "offset"  # {offset}
    LAST_ID = "last_id"  # {last.id}
    CURSOR = "cursor"  # {cursor}: each page moves the cursor
    KEYSET = "keyset"  # {after.time} and {after.id}: behind the last record of the page before


HOLD_STILL = (Turn.CURSOR, Turn.KEYSET)
"""Pages that are asked for behind a value of the records themselves: nothing shifts across them."""

COUNTED = (Turn.TOKEN, Turn.LINK, Turn.PAGE, Turn.OFFSET)
"""Pages of one listing. Behind a last id or a cursor a total may count what is left, and each page
may repeat the record before it: counting up to the total would end too early.
"""


class End(StrEnum):
    """What ends the pages (beside a predicate over the answer)."""

    NO_NEXT = "no_next"
    EMPTY = "empty"
    NOTHING_NEW = "nothing_new"  # {last.id} is inclusive: no id that the page before lacked
    TOTAL = "total"


@dataclass(frozen=True, slots=True)
class PagesSpec:
    """How pages are turned and what alone ends them."""

    turn: Turn
    end: End | Predicate
    next: Path | None = None  # root HEADER or BODY; with TOKEN and LINK
    size: int | None = None  # {size}
    cap: int | None = None  # the most records that the server gives; None: unknown
    first: int | None = None  # first {page} or {offset}
    total: Path | None = None  # root BODY: number of records of the whole walk
    stable: bool = False  # False: a walk of several pages is repeated until nothing new is found
    token_lifetime_s: float | None = None  # None: unknown


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request, merged from source, stream and plan."""

    method: str  # GET or POST
    path: Template  # appended to base_url as text; values are URL-encoded
    records: Path  # root BODY: where the array of records is
    id: Path  # root RECORD
    params: Mapping[str, Value]
    headers: Mapping[str, Value]
    body: Mapping[str, Value] | None = None
    read_as: str = "json"  # or ndjson
    pages: PagesSpec | None = None  # None: one answer is all
    errors: tuple[ErrorRule, ...] = ()  # nearest first; then DEFAULT_ERRORS of `rules`

    @property
    def names(self) -> frozenset[str]:
        """The placeholders that it holds anywhere."""
        held = (self.params, self.headers, self.body or {})
        return self.path.names.union(*map(names_in, held))


class Bounds(StrEnum):
    """Which ends of an asked interval the server includes."""

    CLOSED_OPEN = "[)"
    CLOSED = "[]"
    OPEN = "()"
    OPEN_CLOSED = "(]"
    UNKNOWN = "unknown"  # asked one granule wider at both ends


class Order(StrEnum):
    """The order of the records within one walk, by `time`."""

    ASC = "asc"
    DESC = "desc"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IntervalSpec:
    """Changes by the source's time. All times and lengths are integer microseconds."""

    time: Path  # root RECORD: the field that the server filters by
    start_us: int | None  # where the past begins; None: now less upstream_retention
    format: TimeFormat
    granularity_us: int  # smallest step of the server
    zone: str | None  # IANA zone of times written without one
    bounds: Bounds
    settle_us: int | None  # how far the end stays behind the server's clock; None: declared `none`
    lookback_us: int | None  # stretch read again for late arrivals; None: declared `none`
    order: Order
    width_us: int | None  # first width; None: automatic
    width_min_us: int
    result_cap: int | None  # most records of one interval; None: unknown
    request: RequestSpec
    definition_hash: str  # fingerprint of what is asked
    plan: str = "interval"


@dataclass(frozen=True, slots=True)
class KeysetSpec(IntervalSpec):
    """Changes by the source's time, in the order of (time, id): an interval whose pages are turned by
    the position of the last record. `order` is ascending, and checked.
    """

    plan: str = "keyset"


@dataclass(frozen=True, slots=True)
class IdentitySpec:
    """How to notice that the collection was re-created: another value, or a head below the cursor."""

    get: Template  # path, appended to base_url
    value: Path  # root BODY or HEADER
    head: Path | None


@dataclass(frozen=True, slots=True)
class CursorSpec:
    """Changes by a durable cursor of the provider, opaque."""

    next: Path  # root BODY or HEADER: the cursor after this answer
    start: Scalar  # first {cursor}; None: left out
    lifetime_s: float | None  # a horizon; None: unknown
    identity: IdentitySpec | None
    on_reset: str  # reread or stop
    request: RequestSpec
    definition_hash: str
    plan: str = "cursor"


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """A full listing, from time to time: how deletes and unstamped changes are found."""

    every_s: float
    request: RequestSpec
    definition_hash: str
    plan: str = "snapshot"
    shifting_parents: bool = False  # it is read parent by parent, and their listing may shift

    @property
    def listings_needed(self) -> int:
        """Complete listings that must lack a row before its absence means anything: 1 or 2."""
        pages = self.request.pages
        stable = pages is None or pages.stable
        return 1 if stable and not self.shifting_parents else 2


@dataclass(frozen=True, slots=True)
class ParentSpec:
    """A stream is asked for once per record of another one: of all that its listing shows, or with
    `changed` of those that have changed since the start of what is asked for.
    """

    stream: str
    listing: SnapshotSpec
    when: Predicate | None  # only parents for which this holds; root RECORD
    fields: tuple[str, ...]  # of the parent's record, that requests send as {parent.x}
    changed: IntervalSpec | None = None  # how the parents' own changes are asked for

    def asked(self, plan: str) -> SnapshotSpec | IntervalSpec:
        """How a plan of the children finds its parents: a snapshot always lists all of them."""
        return self.listing if self.changed is None or plan == "snapshot" else self.changed


PlanSpec = IntervalSpec | CursorSpec | SnapshotSpec


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """How often the changes are asked for, or at which occurrences. Each occurrence is a run of the
    observed pipeline, and its interval reaches from the occurrence before to it.
    """

    every_s: float = 300.0  # with occurrences: how soon what stalled or failed is tried again
    occurrences: Occurrences | None = None
    deadline_s: float | None = None  # a run that is not searched so long after its end is overdue
    stages: tuple[str, ...] = ()  # of the observed pipeline, in their order


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One collection of a source."""

    source: str
    name: str
    changes: IntervalSpec | CursorSpec | None
    snapshot: SnapshotSpec | None
    schedule: ScheduleSpec
    upstream_retention_s: float | None  # None: unknown
    deletes: str  # shown or not_shown
    keep_snapshots: int
    program: "ProgramSpec | None" = None  # a Python class or a tap, in place of `changes`
    parent: ParentSpec | None = None

    @property
    def plans(self) -> tuple[PlanSpec, ...]:
        """The plans that ask requests of their own, changes first; a program is not among them."""
        return tuple(plan for plan in (self.changes, self.snapshot) if plan is not None)

    @property
    def plan_names(self) -> tuple[str, ...]:
        """The names of all plans, of a program too, as pages carry them."""
        own = () if self.program is None else (self.program.plan,)
        return (*own, *(plan.plan for plan in self.plans))

    def partition_id(self, tenant: str | None) -> str:
        """`source/stream` or `source/stream/tenant`, its parts percent-encoded."""
        return keys.partition_id(self.source, self.name, tenant)

    def run_id(self, occurrence_us: int) -> str:
        """The name of the run that ends at this occurrence, the same for all tenants and workers."""
        return keys.run_id(keys.partition_id(self.source, self.name), occurrence_us)

    def plan(self, name: str) -> PlanSpec | None:
        """The plan `interval`, `keyset`, `cursor` or `snapshot`, if this stream has it."""
        return next((plan for plan in self.plans if plan.plan == name), None)

    def asked(self, name: str, *, listing: bool = False) -> PlanSpec:
        """What a question of this plan is asked and read by; `listing`: one for parents.

        Raises KeyError for a plan or parent that the stream does not have.
        """
        found = self.plan(name)
        if listing:
            found = None if self.parent is None else self.parent.asked(name)
        if found is None:
            raise KeyError(name)
        return found


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A configured API."""

    name: str
    base_url: Template | Reference  # the only origin that may be asked; may hold {tenant.x}
    auth: AuthSpec | None
    tenants: TenantsSpec | None  # None: one tenant without a name
    limits: LimitsSpec
    streams: Mapping[str, StreamSpec]
    mappings: tuple[str, ...]  # names of the mappings that stand in the same file
    mode: str  # live
    file: str  # where it was read from, relative to the definitions' folder

    def __iter__(self) -> Iterator[StreamSpec]:
        return iter(self.streams.values())

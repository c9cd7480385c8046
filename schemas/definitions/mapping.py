"""What a mapping's definition says, frozen: a versioned rule from records to one table.

`key` and `columns` are complete: where the source has tenants, `tenant_id` is in both. Absent on
purpose: where functions and secrets are found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Generic, TypeVar

from schemas.definitions.column_types import ColumnType
from schemas.definitions.paths import Path
from schemas.definitions.predicates import Predicate
from schemas.definitions.secrets import Reference
from schemas.definitions.source import ApiKeyAuth, BasicAuth, BearerAuth
from schemas.definitions.times import TimeFormat

T = TypeVar("T")
Bound = int | Decimal | str
Constant = str | int | Decimal | bool | None


@dataclass(frozen=True, slots=True)
class ByPlan(Generic[T]):
    """One value for every plan, or one by the plan's name (`interval`, `cursor`, `snapshot`)."""

    every: T | None = None
    named: Mapping[str, T] | None = None

    def of(self, plan: str) -> T | None:
        """The value for records that this plan fetched; None if it has none."""
        return self.every if self.named is None else self.named.get(plan)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One place where a column's value may stand.

    `path: [tags.run_id, {path: at, pattern: "^(.{10})", prefix: nightly-}]` are two of them.
    The first whose path leads to a value other than null decides, and nothing after it is looked
    at: if its pattern does not match, that is a fault of the record, not a reason to go on.
    """

    path: Path  # root ENTITY, RECORD or OBSERVATION
    pattern: str | None = None  # a regular expression that is searched for; group 1 is taken
    prefix: str | None = None  # a text put before what was found and taken


class RevisionKind(StrEnum):
    """What an equal revision says about two states of an entity."""

    EXACT = "exact"  # equal content
    COARSE = "coarse"  # nothing: two states may share one
    NONE = "none"  # there is no revision


@dataclass(frozen=True, slots=True)
class RevisionSpec:
    """The provider's own order of one entity's states; `path` and `type` are None with NONE."""

    kind: RevisionKind
    path: ByPlan[Path] | None = None
    type: ColumnType | None = None
    from_: TimeFormat | None = None
    zone: str | None = None
    pattern: str | None = None  # searched for; group 1 is taken, no match is a fault


class Unknown(StrEnum):
    """What becomes of a value that `values` does not list."""

    QUARANTINE = "quarantine"
    KEEP = "keep"
    USE = "use"  # `unknown_value` instead


class Personal(StrEnum):
    """How a column's content may be treated; only NO may appear in logs, alerts and pages."""

    UNDECLARED = "undeclared"  # stored, never shown
    KEEP = "keep"  # personal: stored, never shown
    HASH = "hash"  # personal: stored as a hash
    DROP = "drop"  # personal: not stored
    NO = "no"  # written as `personal: false`


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column. Reading order: path, pattern, from/zone/type, values, then min and max."""

    name: str
    type: ColumnType
    path: ByPlan[tuple[Alternative, ...]] | None = None  # None: the value is `const`
    const: Constant = None
    required: bool = False  # key columns always are; else missing is NULL
    default: Constant = None  # used where the value is missing or null
    min: Bound | None = None  # numbers and times: the value; text: characters; arrays: elements
    max: Bound | None = None
    values: Mapping[Constant, Constant] | None = None  # allowed value → stored value
    unknown: Unknown = Unknown.QUARANTINE
    unknown_value: Constant = None
    from_: TimeFormat | None = None  # None: ISO 8601
    zone: str | None = None  # IANA zone of times without one; None: those are faults
    personal: Personal = Personal.UNDECLARED
    hash_key: Reference | None = None  # with HASH: an HMAC under this key, else a plain SHA-256


PostAuth = BearerAuth | BasicAuth | ApiKeyAuth
"""How the relay proves who it is; every secret in it is a reference."""


@dataclass(frozen=True, slots=True)
class PostSpec:
    """A receiver of events over HTTP. The whole address, or where it is to be found."""

    url: str | Reference
    auth: PostAuth | None = None


POSITION = "position"
"""The column of every child table that holds an element's index in its list, from 0."""
PARENT_PREFIX = "parent_"
"""What stands before the names of the parent's key columns in a child table."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child table: a row for each element of a list in the parent's entity.

    Paths of `columns` start at the element. Beside them the table has the parent's key, each column
    behind PARENT_PREFIX, and POSITION, which may be the `key` itself.
    """

    name: str
    table: str
    path: ByPlan[Path]  # root ENTITY or RECORD, with one EACH among the steps
    key: tuple[str, ...]  # what tells two elements of one parent apart
    columns: Mapping[str, ColumnSpec]

    def parent_columns(self, parent_key: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the parent's key columns in this table."""
        return tuple(PARENT_PREFIX + name for name in parent_key)


@dataclass(frozen=True, slots=True)
class EventsSpec:
    """Which changes of rows become events, and where they go: to a topic, or posted (topic None)."""

    topic: str | None
    created: str | None = None  # event type names; None: no such event
    changed: str | None = None
    changed_fields: tuple[str, ...] = ()  # empty: a change of any column
    deleted: str | None = None
    post: PostSpec | None = None  # not part of the mapping's hash: it says nothing of any row


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A Python function that makes the entity of a record, in a process of its own."""

    module: str
    name: str  # of the function, within the module
    hang_s: float  # the longest that one record may take
    memory_bytes: int  # the most data that its process may hold

    @property
    def path(self) -> str:
        """The function as the definition names it."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True)
class MappingSpec:
    """A versioned rule from the records of one stream to one table."""

    name: str
    version: int
    source: str
    stream: str
    table: str
    key: tuple[str, ...]  # columns; `tenant_id` last where the source has tenants
    revision: RevisionSpec
    columns: Mapping[str, ColumnSpec]
    entity: ByPlan[Path]  # root RECORD; no steps: the record itself
    where: Predicate | None = None  # else the outcome is `ignored`
    deleted: Predicate | None = None  # soft delete or tombstone
    absent: str = "delete"  # or keep
    absent_max: Decimal = Decimal("0.1")  # share of rows; a larger sweep of more than a few waits
    subjects: tuple[str, ...] = ()  # columns an erasure looks for
    events: EventsSpec | None = None
    keep_quarantine_s: float = 90 * 86_400.0
    faults_max: int | None = None  # records in quarantine per log partition; None: any number
    incident: Mapping[str, object] | None = None  # roles to columns, as written
    python: FunctionSpec | None = None  # what it returns is the entity; `entity` says nothing then
    children: Mapping[str, ChildSpec] = field(default_factory=dict)
    hash: str = ""  # fingerprint of all that rows depend on, but the version
    file: str = ""
    schema: str = "public"  # where its tables stand; a replay builds them beside the live ones

"""What an audit compares: pages and marks of the log, and the rows of Postgres, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from schemas import codec
from schemas.keys import PageKey, mark_key, page_key_of, tick_id
from schemas.log.reader import LogRecord
from schemas.records import Mark, Observation


@dataclass(frozen=True, slots=True)
class Page:
    """An observation without its bytes. `missing`: position in this part → why.

    `foreign`: a value that is no record of ours; it has to be accounted for as one record.
    """

    partition_id: str
    plan: str
    scope: str
    pass_: str
    page: int
    part: int
    parts: int
    original_offset: int | None
    first_index: int
    records: int
    missing: dict[int, str] = field(default_factory=dict)
    foreign: bool = False

    @property
    def key(self) -> str:
        prefix = _prefix(self.partition_id, self.plan, self.scope, self.pass_)
        return f"{prefix}/{self.page}/{self.part}"


@lru_cache(maxsize=64)
def _prefix(partition_id: str, plan: str, scope: str, pass_: str) -> str:
    """Of the keys of a pass: most of a key's cost, and the same for page after page."""
    return page_key_of(PageKey(partition_id, plan, scope, pass_, 0, 0)).rsplit("/", 2)[0]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value of a newer schema: nobody may judge it before an upgrade."""

    reason: str


@dataclass(frozen=True, slots=True)
class Logged:
    """One committed record of the observation topic; `value` None is a tombstone."""

    offset: int
    key: str
    value: Page | Mark | Unreadable | None

    @property
    def expected_key(self) -> str | None:
        """The key that its content asks for; None where there is no content."""
        if isinstance(self.value, Page):
            return None if self.value.foreign else self.value.key
        return mark_key(self.value) if isinstance(self.value, Mark) else None


def logged(record: LogRecord) -> Logged:
    """A record of the log as the audit sees it."""
    if record.value is None:
        return Logged(record.offset, record.key, None)
    try:
        of, found = codec.decode_mapping(record.value)
        if of is Observation:
            return Logged(record.offset, record.key, _page(found))
        value = codec.decode(record.value)
    except codec.UnknownSchema as error:
        return Logged(record.offset, record.key, Unreadable(str(error)))
    except codec.UnreadableValue:
        return Logged(record.offset, record.key, _foreign(record))
    if isinstance(value, Mark):
        return Logged(record.offset, record.key, value)
    return Logged(record.offset, record.key, _foreign(record))


def _foreign(record: LogRecord) -> Page:
    """As the ledger names it: one record of the partition's own id."""
    return Page(
        partition_id=tick_id(record.partition),
        plan="foreign",
        scope=record.key[:200],
        pass_="-",
        page=0,
        part=1,
        parts=1,
        original_offset=None,
        first_index=0,
        records=1,
        foreign=True,
    )


def _page(found: dict[str, object]) -> Page:
    records, missing = found["records"], found["missing"]
    assert isinstance(records, list)
    assert isinstance(missing, list)
    first = int(str(found["first_index"]))
    original = found["original_offset"]
    return Page(
        partition_id=str(found["partition_id"]),
        plan=str(found["plan"]),
        scope=str(found["scope"]),
        pass_=str(found["pass"]),
        page=int(str(found["page"])),
        part=int(str(found["part"])),
        parts=int(str(found["parts"])),
        original_offset=None if original is None else int(str(original)),
        first_index=first,
        records=len(records),
        missing={int(slot["index"]) - first: str(slot["why"]) for slot in missing},
    )


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row of `page_ledger`; the partition and its generation are the caller's."""

    offset: int
    mapping_version: int
    partition_id: str
    plan: str
    scope: str
    pass_: str
    page: int
    part: int
    parts: int
    original_offset: int
    records: int
    counts: tuple[int, ...]
    outcomes: bytes

    @property
    def key(self) -> str:
        prefix = _prefix(self.partition_id, self.plan, self.scope, self.pass_)
        return f"{prefix}/{self.page}/{self.part}"


@dataclass(frozen=True, slots=True)
class ExceptionRow:
    """One row of `exception`; `index` counts within the whole page."""

    offset: int
    mapping_version: int
    index: int
    state: str


@dataclass(frozen=True, slots=True)
class MarkRow:
    """One row of `mark`."""

    offset: int
    partition_id: str
    kind: str
    plan: str
    scope: str
    state: str
    at_us: int
    start: str | None = None
    end: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """One registered mapping version."""

    id: int
    mapping: str
    version: int
    source: str
    stream: str
    table: str
    live: bool


@dataclass(frozen=True, slots=True)
class Position:
    """One row of `position`."""

    pipeline: str
    partition: int
    generation: int
    next_offset: int
    last_offset: int | None
    last_key: str | None

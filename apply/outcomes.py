"""What can become of a record: outcomes as bytes, their counts, and the faults of single records.

Invariant: every record of a logged page has exactly one outcome; counts always sum to the records.
Absent on purpose: faults of the sink as a whole. Those pause the stage and are no outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

KeyValue = str | int | bool | None


class Outcome(IntEnum):
    """One byte per record in `page_ledger.outcomes`."""

    APPLIED = 1
    SUPERSEDED = 2
    IGNORED = 3
    QUARANTINED = 4
    RETRYABLE = 5
    ERASED = 6


PENDING = 0
"""The byte of a record that became a row and waits for the sink's answer; never stored."""


_VALUES = tuple(outcome.value for outcome in Outcome)


def counts(outcomes: bytes | bytearray) -> list[int]:
    """How many records have each outcome, in the order of `Outcome`: six numbers.

    Raises ValueError if a byte is no outcome, so that counts sum to the records or nothing is stored.
    """
    found = list(map(outcomes.count, _VALUES))
    if sum(found) != len(outcomes):
        strange = sorted(set(outcomes).difference(_VALUES))
        raise ValueError(f"not an outcome: {strange}; every record needs one before the ledger")
    return found


class Reason(StrEnum):
    """Why a record has an exception; what each means stands in `MEANING`."""

    UNREADABLE = "unreadable"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_KEY = "missing_key"
    MISSING_REVISION = "missing_revision"
    MISSING_VALUE = "missing_value"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    TOO_LONG = "too_long"
    NUL = "nul"
    DUPLICATE_CHILD = "duplicate_child"
    NO_MATCH = "no_match"
    UNKNOWN_VALUE = "unknown_value"
    BAD_TIME = "bad_time"
    NAIVE_TIME = "naive_time"
    AMBIGUOUS_TIME = "ambiguous_time"
    OVERSIZED = "oversized"
    UNSPLITTABLE = "unsplittable"
    FOREIGN_OWNER = "foreign_owner"
    MAPPER_FAILED = "mapper_failed"
    MAPPER_HUNG = "mapper_hung"
    MAPPER_ENDED = "mapper_ended"
    FOREIGN_KEY = "foreign_key"
    UNIQUE = "unique"
    CHECK = "check"
    REFUSED_BY_SINK = "refused_by_sink"
    TIMED_OUT = "timed_out"
    KILLED_WORKER = "killed_worker"


MEANING: Mapping[Reason, str] = {
    Reason.UNREADABLE: "not valid JSON: broken, not UTF-8, NaN, too deep, or a member named twice",
    Reason.NOT_AN_OBJECT: "the record, or its entity, is not a JSON object",
    Reason.MISSING_KEY: "a key column has no value",
    Reason.MISSING_REVISION: "the revision has no value",
    Reason.MISSING_VALUE: "a required column has no value",
    Reason.WRONG_TYPE: "a value cannot be read as the column's type",
    Reason.OUT_OF_RANGE: "a value lies outside the type, its precision, or `min` and `max`",
    Reason.TOO_LONG: "a text is longer than the type or `max` allows",
    Reason.NUL: "a text holds the character U+0000, or one that UTF-8 cannot write",
    Reason.DUPLICATE_CHILD: "two elements of a list have the same key in the child table",
    Reason.NO_MATCH: "the declared pattern does not match the value",
    Reason.UNKNOWN_VALUE: "the value is none of the declared `values`",
    Reason.BAD_TIME: "a time is not written as declared",
    Reason.NAIVE_TIME: "a time carries no zone and none is declared",
    Reason.AMBIGUOUS_TIME: "its zone has this time of day twice, or not at all: clocks change",
    Reason.OVERSIZED: "the record is larger than the log may hold; its size and hash were kept",
    Reason.UNSPLITTABLE: "the page could not be split into records",
    Reason.FOREIGN_OWNER: "another partition id already holds a row with this key",
    Reason.MAPPER_FAILED: "the mapping itself raised an error on this record",
    Reason.MAPPER_HUNG: "the mapping function did not return in time",
    Reason.MAPPER_ENDED: "the mapping function ended its process, or needed more memory than it may",
    Reason.FOREIGN_KEY: "the database misses a row that this one refers to",
    Reason.UNIQUE: "another row already has a value that must be unique",
    Reason.CHECK: "a check constraint of the database refused the row",
    Reason.REFUSED_BY_SINK: "the database refused this row alone",
    Reason.TIMED_OUT: "the database timed out on this row alone",
    Reason.KILLED_WORKER: "this record ended the process that mapped or stored it",
}


BY_HAND = frozenset((Reason.OVERSIZED, Reason.UNSPLITTABLE, Reason.KILLED_WORKER))
"""What is not tried again by itself under a newer version of the mapping: no mapping cures it, or
trying it may end the process."""


@dataclass(frozen=True, slots=True)
class RecordFault:
    """One record that became no row, with evidence that holds no personal data.

    `index` counts within the whole page (`first_index` + position in the part), as `_index` of rows
    and `exception.index` do. `key`: the entity's key by column, JSON-ready; None if it is unreadable.
    """

    index: int
    reason: Reason
    detail: str
    key: Mapping[str, KeyValue] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the database refused one record alone, and what becomes of it."""

    reason: Reason
    detail: str
    outcome: Outcome

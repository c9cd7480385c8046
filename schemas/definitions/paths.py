"""Paths into answers, records and observations: RFC 9535 singular queries without the leading `$.`.

A path finds at most one value; `[*]` (every element) stands only in array columns.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Root(StrEnum):
    """What a path starts from."""

    STATUS = "status"  # the answer's status code, an int
    HEADER = "header"  # one header of the answer; the step is its name in lower case
    BODY = "body"  # the decoded body of the answer
    RECORD = "record"  # the record as fetched
    ENTITY = "entity"  # where a mapping's `entity` points; the record if it has none
    OBSERVATION = "observation"  # tenant, plan, run, fetched_at, as_of


class Missing:
    """The type of MISSING: a path that leads nowhere (a JSON null is a value, None)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


class Each:
    """The type of EACH, the step `[*]`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[*]"


EACH: Final = Each()

Step = str | int | Each


@dataclass(frozen=True, slots=True)
class Path:
    """One parsed path: member names (str), indices (int, negative from the end) and EACH."""

    root: Root
    steps: tuple[Step, ...]
    text: str  # as written, for messages

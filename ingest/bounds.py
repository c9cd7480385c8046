"""How many records and values one answer may hold, counted before anything is made of them. Pure.

`body_max` bounds an answer's bytes; two bytes may be a record, and each record costs a hundred more.
"""

from __future__ import annotations

from typing import Any

import msgspec

RECORDS_MAX = 500_000
"""Records of one answer. A record of 64 bytes reaches `body_max` of 32 MiB at about as many."""
VALUES_MAX = 2_000_000
"""Values of what is decoded whole; the smallest take up to a hundred bytes each."""
LARGE_BYTES = 2 * RECORDS_MAX
"""An answer that is not larger holds no more records: each has a byte, and a comma behind it."""

SMALLER = "a smaller `pages.size`; where one answer is all, pages, or a smaller `width`"
"""What unblocks an answer of too many."""


class FetchRefused(Exception):
    """This answer must not be taken: too large, or it leads to another origin. Not to be retried."""


class TooMany(FetchRefused):
    """It would grow beyond bounds when it is read.

    No ValueError: msgspec takes those for faults of the JSON.
    """

    def __init__(self, what: str, most: int) -> None:
        super().__init__(f"the answer holds more than {most:,} {what}, more than a page may hold")


class _Counted:
    """Stands for an element that was counted."""


_COUNTED = _Counted()


def check_elements(array: bytes | msgspec.Raw) -> None:
    """Raises TooMany for an array of more than RECORDS_MAX elements, or DecodeError for no JSON.

    Nothing is kept of an element that is an object; others are decoded, one at a time.
    """
    if memoryview(array).nbytes <= LARGE_BYTES:
        return
    counted = 0

    def count(*_: Any) -> _Counted:
        nonlocal counted
        counted += 1
        if counted > RECORDS_MAX:
            raise TooMany("records", RECORDS_MAX)
        return _COUNTED

    # An object without fields is one whose members are all skipped.
    skipped = msgspec.defstruct("Skipped", [], namespace={"__post_init__": count}, gc=False)
    try:
        msgspec.json.Decoder(list[skipped]).decode(array)  # type: ignore[valid-type]
    except msgspec.ValidationError:
        counted = 0
        check_values(bytes(memoryview(array)))
        msgspec.json.Decoder(list[_Counted], dec_hook=count).decode(array)


def check_values(content: bytes) -> None:
    """Raises TooMany for what may hold more than VALUES_MAX values: its commas and brackets."""
    if len(content) > VALUES_MAX and sum(map(content.count, (b",", b"[", b"{"))) > VALUES_MAX:
        raise TooMany("values", VALUES_MAX)

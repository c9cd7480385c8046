"""A body becomes its envelope and the raw bytes of each record, exactly as they were sent. Pure.

The fast way is msgspec; a body that it refuses (NaN, control characters, bad UTF-8, deep nesting) goes
through a tolerant scanner, so that one bad record costs itself and not its page. An answer of more
records than `bounds` allows is refused before they are made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from ingest import scan
from ingest.bounds import LARGE_BYTES, RECORDS_MAX, TooMany, check_elements, check_values
from ingest.decode import seeker
from schemas.records import MissingRecord

BOM = b"\xef\xbb\xbf"
RECORD_OVERHEAD_BYTES = 8
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
# What stands before a member's value: a comma, the key, a colon.
_KEY = re.compile(rb'[ \t\r\n]*,?[ \t\r\n]*"(?:[^"\\]++|\\.)*+"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_LINE = re.compile(rb"\S[^\n]*")

Step = str | int
_Members = dict[str, msgspec.Raw] | list[msgspec.Raw]


class NoRecords(ValueError):
    """The body is readable, but no list stands where the definition says that records are."""


class Unsplittable(ValueError):
    """The body is no JSON, or none that records could be cut out of."""


@dataclass(frozen=True, slots=True)
class Split:
    """`envelope`: the body with the list of records emptied; `records`: their bytes in order."""

    envelope: bytes
    records: list[bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a page that fits one record of the log; `first_index` counts in the whole page."""

    first_index: int
    records: list[bytes]
    missing: list[MissingRecord]


def split(body: bytes, steps: Sequence[Step], read_as: str = "json") -> Split:
    """Raises NoRecords, Unsplittable or TooMany. `steps`: where the list of records is in the body."""
    if read_as == "ndjson":
        return _lines(body)
    content = body[len(BOM) :] if body[:3] == BOM else body
    try:
        span, records = _strict(content, steps)
    except (msgspec.DecodeError, RecursionError):
        span, records = _tolerant(content, steps)
    if not records:
        return Split(content, [])
    start, end = span
    return Split(content[:start] + b"[]" + content[end:], records)


def _strict(content: bytes, steps: Sequence[Step]) -> tuple[scan.Span, list[bytes]]:
    reach = _reached if len(content) <= LARGE_BYTES else _reached_in_large
    at, raw = reach(content, steps)
    if not bytes(memoryview(raw)[:64]).lstrip().startswith(b"["):
        msgspec.json.decode(raw)  # no JSON at all is the tolerant scanner's business
        raise NoRecords(f"{_shown(steps)} is no list")
    check_elements(raw)
    records: list[Any] = _array.decode(raw)
    for index, record in enumerate(records):  # in place: no second list of them stands beside it
        records[index] = bytes(record)
    if not records:
        return (0, 0), records
    if at is None:
        check_values(content)
        return _located(content, steps), records
    return (at, at + memoryview(raw).nbytes), records


def _reached(content: bytes, steps: Sequence[Step]) -> tuple[int | None, bytes | msgspec.Raw]:
    """Where the value at the path begins, if that is known, and the value."""
    raw: bytes | msgspec.Raw = content
    at: int | None = 0
    for number, step in enumerate(steps):
        members, raw = _strict_step(raw, step, steps[: number + 1])
        at = None if at is None else _where(content, at, members, step)
    return at, raw


def _reached_in_large(
    content: bytes, steps: Sequence[Step]
) -> tuple[int | None, bytes | msgspec.Raw]:
    """The same, with nothing kept of the neighbours, of which there may be millions."""
    raw: bytes | msgspec.Raw = content
    for number, step in enumerate(steps):
        if isinstance(step, int):
            check_elements(raw)
            _, raw = _strict_step(raw, step, steps[: number + 1])
            continue
        member: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
        with suppress(msgspec.ValidationError):  # no object, so without members
            member = seeker(step).decode(raw).value
        if isinstance(member, msgspec.UnsetType):
            raise NoRecords(f"the answer has no {_shown(steps[: number + 1])}")
        raw = member
    whole = bytes(memoryview(raw))
    at = content.find(whole)
    return (at if content.find(whole, at + 1) < 0 else None), raw


def _where(content: bytes, at: int, members: _Members, step: Step) -> int | None:
    """Where the member begins, counted along its neighbours' lengths; None: it has to be looked for."""
    if not isinstance(members, dict):
        return None
    at = scan.skip_space(content, at) + 1
    for name, value in members.items():
        key = _KEY.match(content, at)
        if key is None:
            return None
        at = key.end()
        size = memoryview(value).nbytes
        if name == step:
            return at if content.startswith(memoryview(value), at) else None
        at += size
    return None


def _strict_step(
    raw: bytes | msgspec.Raw, step: Step, so_far: Sequence[Step]
) -> tuple[_Members, msgspec.Raw]:
    members: _Members
    try:
        members = _object.decode(raw) if isinstance(step, str) else _array.decode(raw)
    except msgspec.ValidationError:
        raise NoRecords(f"the answer has no {_shown(so_far)}") from None
    try:
        return members, members[step]  # type: ignore[index]
    except (KeyError, IndexError):
        raise NoRecords(f"the answer has no {_shown(so_far)}") from None


def _tolerant(content: bytes, steps: Sequence[Step]) -> tuple[scan.Span, list[bytes]]:
    check_values(content)
    try:
        start, end = _located(content, steps)
        if content[start : start + 1] != b"[":
            raise NoRecords(f"{_shown(steps)} is no list")
        elements = scan.elements(content, start)
        return (start, end), _bounded(content[a:b] for a, b in elements)
    except scan.NotJson as error:
        raise Unsplittable(str(error)) from None


def _bounded(records: Iterator[bytes]) -> list[bytes]:
    found = list(islice(records, RECORDS_MAX + 1))
    if len(found) > RECORDS_MAX:
        raise TooMany("records", RECORDS_MAX)
    return found


def _located(content: bytes, steps: Sequence[Step]) -> scan.Span:
    span = scan.locate(content, steps)
    if span is None:
        raise NoRecords(f"the answer has no {_shown(steps)}")
    return span


def _lines(body: bytes) -> Split:
    """One record per line. A bad line costs itself; a body of none but bad ones is no page, and
    neither is one whose last line breaks off: what followed would be missing without a trace.
    """
    content = body[len(BOM) :] if body[:3] == BOM else body
    records = _bounded(line[0].rstrip() for line in _LINE.finditer(content))
    if records and not any(map(_closed, records)):
        raise Unsplittable("no line of it is a JSON object or list")
    if records and not content.endswith(b"\n") and not _closed(records[-1]):
        raise Unsplittable("its last line breaks off")
    return Split(b"", records)


def _closed(line: bytes) -> bool:
    """Whether it is one value whose brackets close; most are told by the first look."""
    if line[:1] not in (b"{", b"["):
        return False
    try:
        return scan.value_end(line, 0) == len(line)
    except scan.NotJson:
        return False


def _shown(steps: Sequence[Step]) -> str:
    path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
    return f"body{path}"


def parts(split_page: Split, limit_bytes: int) -> Iterator[Part]:
    """The page in parts that fit `limit_bytes` each, cut between records; always at least one.

    A record that is larger by itself becomes an empty slot with its size and hash as evidence.
    The envelope stands in the first part, so it counts there.
    """
    used = min(len(split_page.envelope), limit_bytes // 2)
    held = split_page.records
    if used + sum(map(len, held)) + RECORD_OVERHEAD_BYTES * len(held) <= limit_bytes:
        yield Part(0, list(held), [])
        return
    first, records, missing = 0, list[bytes](), list[MissingRecord]()
    room = limit_bytes - used
    for index, record in enumerate(split_page.records):
        size = len(record) + RECORD_OVERHEAD_BYTES
        if size > limit_bytes:
            digest = hashlib.sha256(record).digest()
            missing.append(MissingRecord(index, "oversized", len(record), digest))
            record, size = b"", RECORD_OVERHEAD_BYTES
        if size > room and records:
            yield Part(first, records, [m for m in missing if m.index < index])
            missing = [m for m in missing if m.index >= index]
            first, records, room = index, [], limit_bytes
        records.append(record)
        room -= size
    yield Part(first, records, missing)

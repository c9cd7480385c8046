"""A body becomes its envelope and the raw bytes of each record, exactly as they were sent. Pure.

The fast way is msgspec; a body that it refuses (NaN, control characters, bad UTF-8, deep nesting) goes
through a tolerant scanner, so that one bad record costs itself and not its page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from ingest import scan
from schemas.records import MissingRecord

BOM = b"\xef\xbb\xbf"
RECORD_OVERHEAD_BYTES = 8
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])

Step = str | int


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
    """Raises NoRecords or Unsplittable. `steps`: where the list of records is in the body."""
    if read_as == "ndjson":
        return _lines(body)
    content = body[len(BOM) :] if body[:3] == BOM else body
    try:
        listed, records = _strict(content, steps)
    except (msgspec.DecodeError, RecursionError):
        listed, records = _tolerant(content, steps)
    if not records:
        return Split(content, [])
    at = content.find(listed)
    return Split(content[:at] + b"[]" + content[at + len(listed) :], records)


def _strict(content: bytes, steps: Sequence[Step]) -> tuple[bytes, list[bytes]]:
    raw: bytes | msgspec.Raw = content
    for number, step in enumerate(steps):
        raw = _strict_step(raw, step, steps[: number + 1])
    if not bytes(memoryview(raw)[:64]).lstrip().startswith(b"["):
        msgspec.json.decode(raw)  # no JSON at all is the tolerant scanner's business
        raise NoRecords(f"{_shown(steps)} is no list")
    listed = content if raw is content else bytes(raw)
    return listed, [bytes(record) for record in _array.decode(raw)]


def _strict_step(raw: bytes | msgspec.Raw, step: Step, so_far: Sequence[Step]) -> msgspec.Raw:
    try:
        found = _object.decode(raw) if isinstance(step, str) else _array.decode(raw)
    except msgspec.ValidationError:
        raise NoRecords(f"the answer has no {_shown(so_far)}") from None
    try:
        return found[step]  # type: ignore[index]
    except (KeyError, IndexError):
        raise NoRecords(f"the answer has no {_shown(so_far)}") from None


def _tolerant(content: bytes, steps: Sequence[Step]) -> tuple[bytes, list[bytes]]:
    try:
        span = scan.locate(content, steps)
        if span is None:
            raise NoRecords(f"the answer has no {_shown(steps)}")
        start, end = span
        if content[start : start + 1] != b"[":
            raise NoRecords(f"{_shown(steps)} is no list")
        elements = scan.elements(content, start)
        return content[start:end], [content[a:b] for a, b in elements]
    except scan.NotJson as error:
        raise Unsplittable(str(error)) from None


def _lines(body: bytes) -> Split:
    content = body[len(BOM) :] if body[:3] == BOM else body
    records = [line.strip() for line in content.split(b"\n")]
    return Split(b"", [record for record in records if record])


def _shown(steps: Sequence[Step]) -> str:
    path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
    return f"body{path}"


def parts(split_page: Split, limit_bytes: int) -> Iterator[Part]:
    """The page in parts that fit `limit_bytes` each, cut between records; always at least one.

    A record that is larger by itself becomes an empty slot with its size and hash as evidence.
    The envelope stands in the first part, so it counts there.
    """
    used = min(len(split_page.envelope), limit_bytes // 2)
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

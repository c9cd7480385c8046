"""What a plan has to know of an answer: records, ids, times, the next page, the cursor. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ingest.http import parsed
from ingest.plans.opaque import keep
from ingest.plans.protocol import Ask, Now, Page
from ingest.responses import Answer
from ingest.split import Split
from schemas.definitions.paths import MISSING, Root, find
from schemas.definitions.source import CursorSpec, End, IntervalSpec, Order, PlanSpec, Turn
from schemas.definitions.time_fields import TimeFault
from schemas.definitions.times import time_reader

# RFC 8288: <target>; param; param, … (a target holds no ">").
_LINK = re.compile(r"<([^>]*)>((?:\s*;\s*[^;,\"=]+(?:=(?:\"[^\"]*\"|[^;,\"]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^;,\s\"]+))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Read:
    """One answer, split. `answer.body` may be the envelope alone: records are in `split`."""

    answer: Answer
    split: Split
    at: Now
    parts: int
    elapsed_us: int


def next_of(answer: Answer, spec: PlanSpec) -> str | None:
    """The next token as text that `give` turns back, or the next link as it stands; None if none.

    An empty token is none: providers end their pages so.
    """
    pages = spec.request.pages
    if pages is None or pages.next is None:
        return None
    if pages.next.root is Root.HEADER and pages.next.steps == ("link",):
        return link_next(answer.headers.get("link", ""))
    value = answer.value(pages.next)
    if value is MISSING or value in (None, "", False):
        return None
    return keep(value)


def link_next(header: str) -> str | None:
    """The target of `rel="next"` in a Link header."""
    for target, parameters in _LINK.findall(header):
        rel = _REL.search(parameters)
        if rel is not None and "next" in (rel[1] or rel[2] or "").lower().split():
            return str(target)
    return None


def leads_into_records(spec: PlanSpec) -> bool:
    """Whether a path for the next page, the end, the total or the cursor leads to a record."""
    pages = spec.request.pages
    paths = [spec.next] if isinstance(spec, CursorSpec) else []
    if pages is not None:
        paths += [path for path in (pages.next, pages.total) if path is not None]
        if not isinstance(pages.end, End):
            paths += [line.path for lines in pages.end.any_of for line in lines]
    listed = spec.request.records.steps
    return any(p.root is Root.BODY and p.steps[: len(listed)] == listed for p in paths)


def page_of(read: Read, ask: Ask, spec: PlanSpec, next_page: str | None) -> Page:
    """The facts of an answer. `next_page`: a token, or a link made absolute."""
    pages = spec.request.pages
    ids = _Ids(read.split.records, spec, ask)
    declared_end = pages is not None and not isinstance(pages.end, End)
    return Page(
        records=len(read.split.records),
        at=read.at,
        parts=read.parts,
        next=next_page,
        ended=declared_end and pages.end.matches(read.answer.value),  # type: ignore[union-attr]
        total=_whole(read.answer.value(pages.total)) if pages and pages.total else None,
        cursor=_cursor(read.answer, spec),
        last_id=ids.last() if pages is not None and pages.turn is Turn.LAST_ID else None,
        content=_content(read.split.records),
        read_ids=ids.ids,
        read_compared=ids.compared,
        times=ids.times()
        if isinstance(spec, IntervalSpec) and spec.order is not Order.NONE
        else (),
        elapsed_us=read.elapsed_us,
    )


def empty_page(at: Now, elapsed_us: int) -> Page:
    """What an answer is that a rule treats as empty: it ends a walk and completes no snapshot."""
    return Page(records=0, at=at, closed=True, elapsed_us=elapsed_us)


class _Ids:
    """Ids and times of a page's records, worked out only if a plan asks."""

    def __init__(self, raw: list[bytes], spec: PlanSpec, ask: Ask) -> None:
        self._raw, self._spec, self._ask = raw, spec, ask
        self._values: list[Any] | None = None

    def last(self) -> str | None:
        if not self._raw:
            return None
        value = find(self._spec.request.id.steps, _value(self._raw[-1]))
        return None if value is MISSING or value is None else keep(value)

    def ids(self) -> Sequence[int]:
        return [self._id(index) for index in range(len(self._raw))]

    def compared(self) -> Sequence[int]:
        """Id and time of every record within the window: a record that moved out of it proves nothing."""
        if not isinstance(self._spec, IntervalSpec) or self._ask.window is None:
            return self.ids()
        start, end = self._ask.window
        return [
            hash_of(f"{self._id(index)}@{time}".encode())
            for index, time in enumerate(self.times())
            if time is None or start <= time <= end
        ]

    def times(self) -> list[int | None]:
        assert isinstance(self._spec, IntervalSpec)
        read = time_reader(self._spec.format, self._spec.zone)
        found: list[int | None] = []
        for record in self._records:
            value = find(self._spec.time.steps, record)
            try:
                found.append(None if value is MISSING or value is None else read(value))
            except TimeFault:
                found.append(None)
        return found

    @property
    def _records(self) -> list[Any]:
        if self._values is None:
            self._values = [_value(record) for record in self._raw]
        return self._values

    def _id(self, index: int) -> int:
        value = find(self._spec.request.id.steps, self._records[index])
        if value is MISSING or value is None:
            return hash_of(self._raw[index])
        return hash_of(keep(value).encode("utf-8", "surrogatepass"))


def hash_of(content: bytes) -> int:
    """Eight bytes that tell records apart."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def _content(records: list[bytes]) -> int:
    """Tells pages apart well enough to notice one that comes again and again."""
    if not records:
        return 0
    return hash((len(records), sum(map(len, records)), records[0], records[-1]))


def _value(record: bytes) -> Any:
    try:
        return orjson.loads(record)
    except orjson.JSONDecodeError:
        found = parsed(record.decode("utf-8", "replace").encode())
        return MISSING if found is None else found


def _cursor(answer: Answer, spec: PlanSpec) -> str | None:
    if not isinstance(spec, CursorSpec):
        return None
    value = answer.value(spec.next)
    return None if value is MISSING or value is None or value == "" else keep(value)


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None

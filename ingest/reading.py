"""What a plan has to know of an answer: records, ids, times, the next page, the cursor. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from ingest.decode import parsed
from ingest.plans.opaque import keep
from ingest.plans.protocol import Ask, Now, Page, Parent, Position
from ingest.responses import Answer
from ingest.split import Split, Unsplittable
from schemas.definitions.paths import MISSING, Path, Root, Step, find
from schemas.definitions.source import (
    CursorSpec,
    End,
    IntervalSpec,
    Order,
    ParentSpec,
    PlanSpec,
    Turn,
)
from schemas.definitions.time_fields import TimeFault
from schemas.definitions.times import time_reader

# RFC 8288: <target>; param; param, … (a target holds no ">").
_LINK = re.compile(r"<([^>]*)>((?:\s*;\s*[^;,\"=]+(?:=(?:\"[^\"]*\"|[^;,\"]*))?)*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^;,\s\"]+))", re.IGNORECASE)

_SCALARS = (str, int, float, bool)


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

    An empty token is none: providers end their pages so. Raises Unsplittable where it cannot be
    told whether there is one.
    """
    pages = spec.request.pages
    if pages is None or pages.next is None:
        return None
    if pages.next.root is Root.HEADER and pages.next.steps == ("link",):
        return link_next(answer.headers.get("link", ""))
    value = _told(answer, pages.next)
    if value is MISSING or value in (None, "", False):
        return None
    return _storable(value, pages.next)


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
        ended=declared_end and pages.end.matches(partial(_told, read.answer)),  # type: ignore[union-attr]
        total=_whole(_told(read.answer, pages.total)) if pages and pages.total else None,
        cursor=_cursor(read.answer, spec),
        last_id=ids.last() if pages is not None and pages.turn is Turn.LAST_ID else None,
        content=_content(read.split.records),
        read_ids=ids.ids,
        read_compared=ids.compared,
        times=ids.times()
        if isinstance(spec, IntervalSpec) and spec.order is not Order.NONE
        else (),
        positions=ids.positions() if pages is not None and pages.turn is Turn.KEYSET else (),
        elapsed_us=read.elapsed_us,
    )


def empty_page(at: Now, elapsed_us: int) -> Page:
    """What an answer is that a rule treats as empty: it ends a walk and completes no snapshot."""
    return Page(records=0, at=at, closed=True, elapsed_us=elapsed_us)


def parents_of(found: Split, spec: ParentSpec, asked: PlanSpec) -> list[Parent]:
    """The records of a listing that count as parents, each with what tells it apart from others."""
    read_id = finder(asked.request.id.steps)
    parents: list[Parent] = []
    for raw in found.records:
        record = _value(raw)

        def lookup(path: Path, of: Any = record) -> Any:
            return find(path.steps, of)

        if spec.when is not None and not spec.when.matches(lookup):
            continue
        id_ = _kept(read_id(raw))
        named = raw if id_ is None else id_.encode("utf-8", "surrogatepass")
        key = hashlib.blake2b(named, digest_size=8).hexdigest()
        fields = {name: find((name,), record) for name in spec.fields}
        kept = {n: v for n, v in fields.items() if isinstance(v, _SCALARS) and _is_text(keep(v))}
        parents.append((key, kept))
    return parents


class _Ids:
    """Ids and times of a page's records, worked out only if a plan asks.

    Every record of a long listing comes through here: each is decoded no further than to these two.
    """

    def __init__(self, raw: list[bytes], spec: PlanSpec, ask: Ask) -> None:
        self._raw, self._spec, self._ask = raw, spec, ask

    def last(self) -> str | None:
        if not self._raw:
            return None
        value = finder(self._spec.request.id.steps)(self._raw[-1])
        if value is MISSING or value is None:
            return None
        return _storable(value, self._spec.request.id)

    def ids(self) -> Sequence[int]:
        return [hash(one) for one in self._ids()]

    def compared(self) -> Sequence[int]:
        """Id and time of every record within the window: a record that moved out of it proves nothing.

        Parents are told apart by their ids: one that changes meanwhile is asked for all the same.
        """
        listing, window = self._ask.listing, self._ask.window
        if not isinstance(self._spec, IntervalSpec) or window is None or listing:
            return self.ids()
        start, end = window
        return [
            hash((one, at))
            for one, at in zip(self._ids(), self.times(), strict=True)
            if at is None or start <= at <= end
        ]

    def times(self) -> list[int | None]:
        assert isinstance(self._spec, IntervalSpec)
        read = time_reader(self._spec.format, self._spec.zone)
        find_time = finder(self._spec.time.steps)
        found: list[int | None] = []
        for record in self._raw:
            value = find_time(record)
            try:
                found.append(None if value is MISSING or value is None else read(value))
            except TimeFault:
                found.append(None)
        return found

    def positions(self) -> list[Position]:
        """The time and id of every record as they stand there; a time that cannot be read is none."""
        assert isinstance(self._spec, IntervalSpec)
        find_time, find_id = finder(self._spec.time.steps), finder(self._spec.request.id.steps)
        return [
            (None if at is None else _kept(find_time(record)), _kept(find_id(record)))
            for record, at in zip(self._raw, self.times(), strict=True)
        ]

    def _ids(self) -> list[str | bytes]:
        """What tells each record apart: its id, else its bytes."""
        find_id = finder(self._spec.request.id.steps)
        values = [find_id(record) for record in self._raw]
        return [
            raw if value is MISSING or value is None else keep(value)
            for raw, value in zip(self._raw, values, strict=True)
        ]


@cache
def finder(steps: tuple[Step, ...]) -> Callable[[bytes], Any]:
    """Reads one value out of a record, or MISSING; the rest of an ordinary record is only skipped."""

    def general(record: bytes) -> Any:
        return find(steps, _value(record))

    if not steps or not all(isinstance(step, str) for step in steps):
        return general
    kind: Any = Any
    for step in reversed(steps):
        field = ("value", kind, msgspec.UNSET)
        kind = msgspec.defstruct("Seen", [field], rename={"value": str(step)}, gc=False)
    decode, depth = msgspec.json.Decoder(kind).decode, len(steps)

    def quick(record: bytes) -> Any:
        try:
            value = decode(record)
            for _ in range(depth):
                value = value.value
        except (msgspec.MsgspecError, AttributeError, RecursionError):
            return general(record)
        return MISSING if value is msgspec.UNSET else value

    return quick


def _kept(value: Any) -> str | None:
    """Its text for the checkpoint; None for none, and for what could not be stored."""
    if value is MISSING or value is None:
        return None
    kept = keep(value)
    return kept if _is_text(kept) else None


def _content(records: list[bytes]) -> int:
    """Tells pages apart well enough to notice one that comes again and again."""
    if not records:
        return 0
    return hash((len(records), sum(map(len, records)), records[0], records[-1]))


def _value(record: bytes) -> Any:
    found = parsed(record)
    return MISSING if found is None else found


def _cursor(answer: Answer, spec: PlanSpec) -> str | None:
    if not isinstance(spec, CursorSpec):
        return None
    value = _told(answer, spec.next)
    return None if value is MISSING or value is None or value == "" else _storable(value, spec.next)


def _told(answer: Answer, path: Path) -> object:
    """What an answer says of its pages. A body that cannot be read does not say that none follow."""
    if path.root is Root.BODY and answer.body is None:
        raise Unsplittable(f"what stands around its records cannot be read, and so not {path.text}")
    return answer.value(path)


def _storable(value: object, path: Path) -> str:
    """Its text for the checkpoint; bytes that are no text could neither be stored nor sent back."""
    kept = keep(value)
    if not _is_text(kept):
        raise Unsplittable(f"{path.text} holds bytes that are no UTF-8")
    return kept


def _is_text(kept: str) -> bool:
    try:
        kept.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, int | str) else None
    except ValueError:
        return None

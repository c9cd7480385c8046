"""What the records of a stream usually look like, learnt from pages, so that they decode faster.

A decoder that knows all members of an object makes no dict of it, which takes half the time. Invariant:
a page that decodes by a shape holds nothing but what the shape names, each value read as without it;
every other page is read without it, and may widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from schemas.definitions.paths import Step, find

UNSET = msgspec.UNSET
LEAST_RECORDS = 8
"""A page of fewer says too little."""
_WIDENED_MAX = 8
_MISSED_MAX = 50
_MEMBERS_MAX = 200
_DEPTH_MAX = 5
_UNORDERED_MAX = 24
"""Members are looked for from the last one on: out of order, more of them are slower than a dict."""
_STEPS_BACK_SHARE = 1 / 12
_STRANGE = frozenset('"\\') | frozenset(map(chr, range(32)))
Name = tuple[str, ...]
"""Member names from the record down to a value."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object. `optional`: not every object has it. `inner`: an object, or null."""

    optional: bool
    inner: Shape | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The members of one object, as they mostly follow each other. Values without an `inner` shape
    may be anything."""

    members: dict[str, Member]


def learn(records: Iterable[object], whole: frozenset[Name], at: Name = ()) -> Shape | None:
    """The shape of these objects; None if they are no objects, or too different to have one.

    `whole`: values that are needed as they are, so nothing below them is part of a shape.
    """
    seen: dict[str, list[object]] = {}
    every: list[dict[str, object]] = []
    for one in records:
        if not isinstance(one, dict):
            return None
        every.append(one)
        for name, value in one.items():
            seen.setdefault(name, []).append(value)
    count = len(every)
    if not seen or len(seen) > _MEMBERS_MAX or len(at) >= _DEPTH_MAX or _is_map(seen, count):
        return None
    if any(not _STRANGE.isdisjoint(name) for name in seen):
        return None
    order = _merged(every)
    if _is_unordered(every, order):
        return None
    members = {}
    for name in order:
        values = seen[name]
        below = (*at, name)
        objects = [value for value in values if value is not None]
        inner = learn(objects, whole, below) if objects and below not in whole else None
        members[name] = Member(len(values) < count, inner)
    return Shape(members)


def _is_map(seen: dict[str, list[object]], count: int) -> bool:
    """Whether the names are data (ids, days): then the next object has others."""
    return len(seen) > 8 and sum(map(len, seen.values())) * 4 < len(seen) * count


def _merged(every: Iterable[Collection[str]]) -> list[str]:
    """All names in one order, each new one behind that which it was seen behind.

    Whoever has most of them first, since it leaves the fewest whose order is guessed.
    """
    order: list[str] = []
    known: set[str] = set()
    for names in sorted(every, key=len, reverse=True):
        if known.issuperset(names):
            continue
        at = 0
        for name in names:
            if name in known:
                at = order.index(name) + 1
                continue
            order.insert(at, name)
            known.add(name)
            at += 1
    return order


def _is_unordered(every: Sequence[Iterable[str]], order: Sequence[str]) -> bool:
    """Whether the members of these objects follow each other now so, now otherwise."""
    if len(order) <= _UNORDERED_MAX:
        return False
    place = {name: at for at, name in enumerate(order)}
    steps = back = 0
    for names in every:
        last = -1
        for name in names:
            steps += 1
            back += place[name] < last
            last = place[name]
    return back > steps * _STEPS_BACK_SHARE


def widen(old: Shape, new: Shape) -> Shape:
    """One that has room for what either has."""
    members = {}
    for name in _merged([old.members, new.members]):
        one, other = old.members.get(name), new.members.get(name)
        if one is None or other is None:
            only = one or other
            assert only is not None
            members[name] = Member(True, only.inner)
        else:
            both = one.inner is not None and other.inner is not None
            inner = widen(one.inner, other.inner) if both else None  # type: ignore[arg-type]
            members[name] = Member(one.optional or other.optional, inner)
    return Shape(members)


class Form:
    """A class for the objects of a shape: how its values decode, and how code reads them."""

    def __init__(
        self, shape: Shape, numbers: Collection[Name] = frozenset(), at: Name = ()
    ) -> None:
        """`numbers`: members, by their names from the record down, that stay as JSON writes them."""
        self.members = shape.members
        self.inner = {
            name: Form(member.inner, numbers, (*at, name))
            for name, member in shape.members.items()
            if member.inner is not None
        }
        self._fields = {name: f"m{at}" for at, name in enumerate(shape.members)}
        self.raw = frozenset(
            name for name in shape.members if (*at, name) in numbers and name not in self.inner
        )
        """Members that are read as `msgspec.Raw`."""
        fields: list[Any] = []
        for name, member in shape.members.items():
            form = self.inner.get(name)
            of: Any = object if form is None else form.type | None
            if name in self.raw:
                of = msgspec.Raw
            if member.optional and of is not object:
                of = of | msgspec.UnsetType
            field = self._fields[name]
            fields.append((field, of, UNSET) if member.optional else (field, of))
        renamed = {field: name for name, field in self._fields.items()}
        self.type: Any = msgspec.defstruct(
            "Shaped", fields, rename=renamed, forbid_unknown_fields=True, gc=False,
            kw_only=True,  # or those without a default would have to be first, out of order
        )  # fmt: skip
        self.nothing = self.type(**dict.fromkeys(renamed))
        """Stands for an object that is not there: every member is null."""

    def decoder(self, *, exact: bool) -> Callable[[bytes], object]:
        """Reads one record. Raises what msgspec raises, for whatever is not of this shape."""
        return msgspec.json.Decoder(self.type, float_hook=Decimal if exact else None).decode

    def keeps(self, numbers: Collection[Name]) -> bool:
        """Whether all these members that an object may have stay as JSON writes them."""
        return all(map(self._keeps, numbers))

    def _keeps(self, name: Name) -> bool:
        first, *rest = name
        if first not in self.members:
            return True
        inner = self.inner.get(first)
        return first in self.raw if not rest else inner is not None and inner._keeps(tuple(rest))

    def field(self, name: str) -> str | None:
        """The attribute that holds a member; None if no object has it."""
        return self._fields.get(name)

    def find(self, name: Sequence[Step]) -> Form | None:
        """The form of an object further down, this one for an empty name; None: it has none."""
        form: Form | None = self
        for step in name:
            form = None if form is None else form.inner.get(step) if isinstance(step, str) else None
        return form


class Learner:
    """Learns the shape of one stream's records under one plan.

    Two threads may use it: they only ever replace what it knows.
    """

    def __init__(
        self, whole: frozenset[Name] | None, numbers: Collection[Name] = frozenset()
    ) -> None:
        """`whole`: as `learn` takes it; None: these records are never read by a shape. `numbers`: as
        a form takes it."""
        self._whole, self._numbers = whole, frozenset(numbers)
        self._shape: Shape | None = None
        self._widened = self._missed = 0

    def see(self, records: Sequence[object]) -> Form | None:
        """A new form, if these records did not have the last one."""
        if self._whole is None or len(records) < LEAST_RECORDS or self._widened >= _WIDENED_MAX:
            return None
        self._widened += 1
        found = learn(records, self._whole)
        if found is None:
            return None
        shape = found if self._shape is None else widen(self._shape, found)
        if shape == self._shape or _size(shape) > _MEMBERS_MAX:
            return None
        self._shape = shape
        # a number in a text is read sooner as a text
        self._numbers -= {name for name in self._numbers if _is_text(name, records)}
        return Form(shape, self._numbers)

    def keeps(self, *, hit: bool) -> bool:
        """Whether the form still pays, after one more page that had it or not."""
        self._missed += -1 if hit and self._missed > 0 else 0 if hit else 1
        return self._missed < _MISSED_MAX


def _is_text(name: Name, records: Sequence[object]) -> bool:
    return any(isinstance(find(name, record), str) for record in records)


def _size(shape: Shape) -> int:
    inner = sum(_size(one.inner) for one in shape.members.values() if one.inner is not None)
    return len(shape.members) + inner

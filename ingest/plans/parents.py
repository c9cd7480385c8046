"""One walk over the records of many parents: the parents' listing, and the pages of each parent.

A parents' page is left only when every parent on it is done; which are, stands in the walk's token,
so a new owner asks for that page again and goes on with the rest. What is not known to be done is
asked for again, never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from ingest.plans.idset import IdSet
from ingest.plans.protocol import (
    PASS_RANGES_MAX,
    RESTARTS_MAX,
    Listing,
    Nonce,
    Now,
    Page,
    Parent,
    Value,
)
from ingest.plans.walk import Memory, Outcome, Turned, Walker, begun_again, extended
from schemas.definitions.source import PagesSpec
from schemas.records import Walk

DONE_MAX = 500
"""Of a longer page of parents, those beyond are asked again by a new owner: a checkpoint is small."""
POSITION_MAX_BYTES = 12_000
"""A longer position forgets who is done, and if need be how far the parent in work is: for a new
owner that means to ask again, and no more."""
_SAVE_EVERY = 32


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the walk stands: the parents' page in work, which of it are done, the parent in work."""

    parents: Walk
    done: list[str] = []
    parent: str | None = None
    child: Walk | None = None


@dataclass(slots=True)
class _Scope:
    """What may be lost: the parents' page in work, who is left of it, and who was done in this scope."""

    name: str | None = None
    left: list[Parent] | None = None
    listed_at: Walk | None = None
    following: Turned | None = None
    seen: IdSet = field(default_factory=IdSet)
    deepest: int = 1


class ParentsWalker(Walker):
    """Pages of all parents as the pages of one walk; its token is a `Position`."""

    divided = True

    def __init__(self, pages: PagesSpec | None, listing: PagesSpec | None, nonce: Nonce) -> None:
        super().__init__(pages, nonce)
        self._child = Walker(pages, nonce)
        self._parents = Walker(listing, nonce)
        self._scope = _Scope()

    def forget(self) -> None:
        super().forget()
        self._reset(None)

    def resume(self) -> None:
        """The parents are listed again: one that went meanwhile is asked no more."""
        self._scope.left = None
        self._parents.forget()

    def enter(self, walk: Walk) -> Memory:
        if walk.scope != self._scope.name:
            self._reset(walk.scope)
        return super().enter(replace(walk, token=None))

    def expired(self, walk: Walk, now: Now) -> bool:
        at = _position(walk)
        child = at.child is not None and self._child.expired(at.child, now)
        return child or (self.wants_listing(walk) and self._parents.expired(at.parents, now))

    def renewed(self, walk: Walk) -> Walk | None:
        at = _position(walk)
        child = None if self.wants_listing(walk) else at.child
        old = child or at.parents
        restarts = old.restarts + 1
        if restarts > RESTARTS_MAX:
            return None
        again = begun_again(old, restarts)
        if child is not None:
            self._child.forget()
            return _at(walk, replace(at, child=again))
        self._scope.left = None
        self._parents.forget()
        return _at(walk, Position(again))

    def wants_listing(self, walk: Walk) -> bool:
        self.enter(walk)
        return self._scope.left is None or self._scope.listed_at != _position(walk).parents

    def values(self, walk: Walk) -> dict[str, Value]:
        at = _position(walk)
        if self.wants_listing(walk):
            return self._parents.values(at.parents)
        key, fields = self._front()
        named = {f"parent.{name}": value for name, value in fields.items()}
        return named | self._child.values(_child(at, key))

    def link(self, walk: Walk) -> str | None:
        at = _position(walk)
        if self.wants_listing(walk):
            return self._parents.link(at.parents)
        return self._child.link(_child(at, self._front()[0]))

    def leaf(self, walk: Walk) -> tuple[Memory, Walk]:
        if self.wants_listing(walk):
            return super().leaf(walk)
        child = _child(_position(walk), self._front()[0])
        return self._child.enter(child), child

    def depth(self, walk: Walk) -> int:
        return self._scope.deepest

    def turn(self, walk: Walk, page: Page, *, beyond: bool = False) -> Turned:
        memory, at = self.enter(walk), _position(walk)
        if page.listing is not None:
            return self._listed(walk, at, page.listing)
        key, _ = self._front()
        child = _child(at, key)
        turned = self._child.turn(child, page, beyond=beyond)
        if turned.outcome is Outcome.STALL:
            return Turned(Outcome.STALL, walk, stall=turned.stall)
        self._scope.deepest = max(self._scope.deepest, child.page)
        after = extended(walk, memory.pass_, page) if turned.log else walk
        if len(after.passes) > PASS_RANGES_MAX:
            self.forget()
            return Turned(Outcome.BEGIN, begun_again(walk))
        if turned.outcome is Outcome.INCOMPLETE:
            self.forget()
            return Turned(Outcome.INCOMPLETE, after, turned.log, turned.stall)
        if turned.log:
            after = replace(after, page=after.page + 1)
        if turned.outcome is not Outcome.END:
            going = replace(at, parent=key, child=turned.walk)
            return Turned(Outcome.MORE, _at(after, going), turned.log)
        return self._done(after, at, turned.log)

    # Parents

    def _listed(self, walk: Walk, at: Position, listing: Listing) -> Turned:
        """A page of parents: those that are not known to be done are left to ask for."""
        turned = self._parents.turn(at.parents, listing.page)
        if turned.outcome is Outcome.STALL:
            return Turned(Outcome.STALL, walk, stall=turned.stall)
        done = set(at.done)
        left = {
            key: (key, fields)
            for key, fields in listing.parents
            if key not in done and int(key, 16) not in self._scope.seen
        }
        first = left.pop(at.parent, None) if at.parent is not None else None
        self._scope.left = ([] if first is None else [first]) + list(left.values())
        self._scope.listed_at, self._scope.following = at.parents, turned
        if first is None:
            at = replace(at, parent=None, child=None)
        return self._onto(_at(walk, at), at, False)

    def _done(self, walk: Walk, at: Position, log: bool) -> Turned:
        """The parent in front is done."""
        assert self._scope.left is not None
        key, _ = self._scope.left.pop(0)
        self._scope.seen.add([int(key, 16)])
        done = [*at.done, key] if len(at.done) < DONE_MAX else at.done
        at = replace(at, done=done, parent=None, child=None)
        return self._onto(_at(walk, at), at, log)

    def _onto(self, walk: Walk, at: Position, log: bool) -> Turned:
        """The next parent of the page, or what follows the page."""
        following = self._scope.following
        assert following is not None
        if self._scope.left:
            save = len(at.done) % _SAVE_EVERY == _SAVE_EVERY - 1
            return Turned(Outcome.MORE, walk, log, save=save)
        if following.outcome in (Outcome.END, Outcome.INCOMPLETE):
            self.forget()
            return Turned(following.outcome, replace(walk, token=None), log, following.stall)
        self._scope.left = None
        return Turned(Outcome.MORE, _at(walk, Position(following.walk)), log, save=True)

    def _front(self) -> Parent:
        assert self._scope.left
        return self._scope.left[0]

    def _reset(self, scope: str | None) -> None:
        self._scope = _Scope(scope)
        self._child.forget()
        self._parents.forget()


def _position(walk: Walk) -> Position:
    if walk.token is None:
        return Position(Walk(scope="parents"))
    return msgspec.json.decode(walk.token, type=Position)


def _at(walk: Walk, position: Position) -> Walk:
    shorter = replace(position, done=[])
    for one in (position, shorter, replace(shorter, parent=None, child=None)):
        token = msgspec.json.encode(one)
        if len(token) <= POSITION_MAX_BYTES:
            break
    return replace(walk, token=token.decode())


def _child(at: Position, key: str) -> Walk:
    return at.child if at.child is not None and at.parent == key else Walk(scope=key)

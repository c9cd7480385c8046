"""The cursor plan against feeds with durable cursors, re-created collections and crashes."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ingest.plans.cursor import CursorPlan
from ingest.plans.protocol import Ask, Page, Refusal
from schemas.definitions.paths import Path, Root
from schemas.definitions.source import CursorSpec, End, IdentitySpec, PagesSpec, Turn
from schemas.definitions.templates import Template
from tests.property.plan_source import Driver, Fact, S, Source, page_of, request


@dataclass
class Feed:
    """A change feed: facts in the order of their numbers, read from behind a cursor.

    With tokens of its own the answer's cursor is the head when the walk began; without, each
    page's own. A re-created collection has another identity and begins at zero.
    """

    source: Source
    by_token: bool
    identity: int = 1
    first: int = 0
    forgets: bool = False
    token_lifetime: int | None = None
    _walks: dict[str, tuple[list[Fact], int, int]] = field(default_factory=dict)

    @property
    def facts(self) -> list[Fact]:
        return self.source.facts[self.first :]

    def answer(self, ask: Ask) -> tuple[list[Fact], Page] | Refusal:
        token = ask.values.get("token")
        at = self.source.now
        if isinstance(token, str):
            found, offset, issued = self._walks[token]
            if self.token_lifetime is not None and at - issued > self.token_lifetime:
                return Refusal.TOKEN_EXPIRED
        else:
            cursor = int(str(ask.values.get("cursor", 0)))
            if self.forgets and 0 < cursor < len(self.facts):
                return Refusal.GAP
            found, offset = self.facts[cursor:], 0
            if not self.by_token:
                rows = found[:3]
                moved = max(cursor, min(cursor + len(rows), len(self.facts)))
                return rows, page_of(rows, self.source.clock(), cursor=str(moved))
        rows, following = found[offset : offset + 3], None
        if offset + 3 < len(found):
            following = f"t{len(self._walks)}"
            self._walks[following] = (found, offset + 3, at)
        head = str(len(self.facts))
        return rows, page_of(rows, self.source.clock(), next=following, cursor=head)


class FeedDriver(Driver):
    """A driver that also answers the identity probe."""

    feed: Feed

    def step(self) -> bool:
        if self.polling and isinstance(self.plan, CursorPlan):
            found = self.plan.next(self.state, self.source.clock())
            if isinstance(found, Ask) and found.probe:
                self.asked.append(found)
                head = str(len(self.feed.facts))
                step = self.plan.identified(
                    found, str(self.feed.identity), head, self.source.clock()
                )
                self._emit(step, [], None)
                return step.stall is None
        if not self.polling:
            self.state = self.plan.begin(self.state, self.source.clock())
            self.polling = True
            return self.step()
        return super().step()


def spec_of(by_token: bool, stable: bool, probed: bool, start: str | None) -> CursorSpec:
    pages = PagesSpec(
        turn=Turn.TOKEN if by_token else Turn.CURSOR,
        end=End.NO_NEXT if by_token else End.EMPTY,
        size=3,
        stable=stable,
    )
    identity = IdentitySpec(
        get=Template(("/",), "/"),
        value=Path(Root.BODY, ("id",), "body.id"),
        head=Path(Root.BODY, ("head",), "body.head"),
    )
    return CursorSpec(
        next=Path(Root.BODY, ("cursor",), "body.cursor"),
        start=start,
        lifetime_s=None,
        identity=identity if probed else None,
        on_reset="reread",
        request=request(pages),
        definition_hash="h1",
    )


class Cursors(RuleBasedStateMachine):
    """No fact between two cursors is skipped, whatever dies; a re-created collection is noticed."""

    @initialize(
        by_token=st.booleans(),
        stable=st.booleans(),
        probed=st.booleans(),
        start=st.sampled_from([None, "0"]),
        lifetime=st.sampled_from([None, 5 * S]),
    )
    def start(
        self, by_token: bool, stable: bool, probed: bool, start: str | None, lifetime: int | None
    ) -> None:
        self.source = Source(pages=None)
        self.feed = Feed(self.source, by_token, token_lifetime=lifetime)
        spec = spec_of(by_token, stable, probed, start)
        self.probed = probed
        self.driver = FeedDriver(
            lambda nonce: CursorPlan(spec, "s/t", nonce), self.source, self.feed.answer
        )
        self.driver.feed = self.feed
        self.gone: set[int] = set()

    @rule(count=st.integers(1, 8))
    def facts(self, count: int) -> None:
        for _ in range(count):
            self.source.add(self.source.now)

    @rule(seconds=st.sampled_from([1, 10]))
    def wait(self, seconds: int) -> None:
        self.source.now += seconds * S

    @rule(count=st.integers(1, 8))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            if not self.driver.step():
                break

    @rule()
    def keep(self) -> None:
        self.driver.keep()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @precondition(lambda self: self.probed)
    @rule(keeps=st.booleans())
    def recreate(self, keeps: bool) -> None:
        """The collection is made anew between two polls; its unread facts are gone with it."""
        if self.driver.polling:
            return
        self.gone |= {f.number for f in self.feed.facts} - self.driver.seen()
        self.feed.identity += 1
        self.feed.first = len(self.source.facts)

    @precondition(lambda self: hasattr(self, "driver"))
    @invariant()
    def never_ahead(self) -> None:
        """All below the durable cursor is in a page, since the last time it was set back."""
        assert not self.driver.stalls
        self.driver.check_named()
        cursor = self.driver.state.cursor
        if cursor is None or self.driver.marks("gap"):
            return
        if self.feed.first == 0:
            assert {f.number for f in self.feed.facts[: int(cursor)]} <= self.driver.seen()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        epochs = sum(e.step.recreated for e in self.driver.all)
        self.driver.crash()
        # A walk may freeze its result when it begins: what came later is for the next poll.
        for _ in range(2):
            self.driver.poll(200)
        missing = {f.number for f in self.source.facts} - self.driver.seen() - self.gone
        if self.feed.first:
            missing = {n for n in missing if n >= self.feed.first}
        assert not missing
        assert sum(e.step.recreated for e in self.driver.all) <= epochs + self.feed.identity


TestCursors = Cursors.TestCase
TestCursors.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_a_recreated_collection_is_a_gap_and_a_new_epoch() -> None:
    source = Source(pages=None)
    feed = Feed(source, by_token=False)
    spec = spec_of(False, True, True, "0")
    driver = FeedDriver(lambda nonce: CursorPlan(spec, "s/t", nonce), source, feed.answer)
    driver.feed = feed
    for _ in range(7):
        source.add(source.now)
    driver.poll()
    feed.identity, feed.first = 2, 7
    source.add(source.now)
    driver.poll()
    assert [mark.start for mark in driver.marks("gap")] == ["7"]
    assert [e.step.recreated for e in driver.all].count(True) == 1
    assert any(e.step.lost for e in driver.all)
    assert 7 in driver.seen()


def test_the_cursor_of_the_first_page_is_adopted_when_the_walk_is_over() -> None:
    source = Source(pages=None)
    feed = Feed(source, by_token=True)
    spec = spec_of(True, True, False, None)
    driver = FeedDriver(lambda nonce: CursorPlan(spec, "s/t", nonce), source, feed.answer)
    driver.feed = feed
    for _ in range(5):
        source.add(source.now)
    assert driver.step()
    source.add(source.now)
    first = driver.state
    assert (first.cursor, first.cursor_pending) == (None, "5")
    driver.poll()
    assert (driver.state.cursor, driver.state.cursor_pending) == ("5", None)
    assert driver.marks("caught_up")
    driver.poll()
    assert driver.seen() == set(range(6))

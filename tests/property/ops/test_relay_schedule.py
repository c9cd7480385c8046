"""The relay's decisions against a model of outbox, locks and receivers, with relays that die or sleep.

The receiver of the model drops what is not newer than the last sequence of its key, as documented.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ops.relay.answers import ACCEPTED, Kind, Result
from ops.relay.event import Event
from ops.relay.schedule import ATTEMPTS, Head, Turn, most, settle

KEYS = "abc"
NOW = datetime(2024, 1, 1, tzinfo=UTC)
OPEN = ("unsent", "dead")
SCAN = 2
"""Fewer than there are keys, so that a turn has several stretches."""
TROUBLE = strategies.sampled_from([Kind.REFUSED, Kind.FAULT, Kind.AWAY, Kind.GATEWAY])


@dataclass
class Stored:
    """One row of the outbox; its id is its place in the list, and its sequence."""

    key: str
    state: str = "unsent"
    attempts: int = 0
    due: bool = True
    holder: int | None = None


@dataclass
class Relay:
    """A process: its walk over the keys, what it has in hand, and whether it still has its session."""

    turn: Turn = field(default_factory=Turn)
    away: int = 0
    hand: list[Event] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    session: bool = True


class RelayMachine(RuleBasedStateMachine):
    """Two relays choose, publish, mark, die, and lose their sessions in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Stored] = []
        self.relays = [Relay(), Relay()]
        self.log: list[int] = []
        """What arrives, in this order, copies too."""
        self.sent: set[int] = set()

    def head(self, key: str) -> int | None:
        found = [at for at, row in enumerate(self.rows) if row.key == key and row.state in OPEN]
        return found[0] if found else None

    def heads(self, after: str | None) -> list[Head]:
        """As the query of the outbox: a stretch of keys, each with its oldest open event."""
        found = []
        for key in KEYS:
            at = self.head(key)
            if at is not None and (after is None or key > after):
                row = self.rows[at]
                found.append(Head(at, "m", key, row.state == "unsent" and row.due))
        return found[:SCAN]

    @rule(key=strategies.sampled_from(KEYS))
    def change(self, key: str) -> None:
        if len(self.rows) < 14:
            self.rows.append(Stored(key))

    @rule(who=strategies.sampled_from([0, 1]))
    def choose(self, who: int) -> None:
        relay = self.relays[who]
        if relay.hand:
            return
        heads = self.heads(relay.turn.after[1] if relay.turn.after else None)
        for at in relay.turn.choose(heads, SCAN, most(relay.away, 5)):
            row = self.rows[at]
            if row.holder is None and row.state == "unsent" and row.due:
                row.holder = who
                relay.hand.append(event(at, row))
        relay.turn.quiet(len(relay.hand))
        relay.results = {}

    @rule(who=strategies.sampled_from([0, 1]), trouble=TROUBLE, share=strategies.integers(0, 3))
    def publish(self, who: int, trouble: Kind, share: int) -> None:
        """Every so-manyth event fails; a failure may have arrived all the same, as a time-out may."""
        relay = self.relays[who]
        for number, one in enumerate(relay.hand):
            if one.id in relay.results:
                continue
            fails = share and number % share == 0
            relay.results[one.id] = Result(trouble, "x") if fails else ACCEPTED
            if not fails or trouble is Kind.FAULT:
                self.log.append(one.id)

    @rule(who=strategies.sampled_from([0, 1]))
    def mark(self, who: int) -> None:
        relay = self.relays[who]
        if not relay.results:
            return
        if relay.session:
            marks = settle(relay.hand, relay.results, relay.away)
            for number in marks.sent:
                self.rows[number].state = "sent"
                self.sent.add(number)
            for later in marks.later:
                row = self.rows[later.id]
                row.state, row.attempts, row.due = later.state, later.attempts, not later.wait_s
            relay.away = relay.away + 1 if marks.away else 0
        self.let_go(who)

    @rule(who=strategies.sampled_from([0, 1]))
    def die(self, who: int) -> None:
        """kill -9: the session ends with the process, and a new one begins."""
        self.let_go(who)
        self.relays[who] = Relay()

    @rule(who=strategies.sampled_from([0, 1]))
    def sleep(self, who: int) -> None:
        """Stopped for longer than it may hold keys: the server ends the session, it knows nothing."""
        if self.relays[who].hand:
            self.free(who)
            self.relays[who].session = False

    @rule(who=strategies.sampled_from([0, 1]), trouble=TROUBLE, share=strategies.integers(0, 1))
    def be_overtaken(self, who: int, trouble: Kind, share: int) -> None:
        """Stopped before publishing, another publishing meanwhile; then it goes on as if nothing were."""
        self.choose(who)
        self.sleep(who)
        other = 1 - who
        self.mark(other)
        for _ in KEYS:
            self.choose(other)
            self.publish(other, trouble, 0)
            self.mark(other)
        self.publish(who, trouble, share)
        self.mark(who)

    def free(self, who: int) -> None:
        for row in self.rows:
            if row.holder == who:
                row.holder = None

    def let_go(self, who: int) -> None:
        self.free(who)
        self.relays[who].hand, self.relays[who].session = [], True

    @rule()
    def wait(self) -> None:
        for row in self.rows:
            row.due = True

    @precondition(lambda self: any(row.state == "dead" for row in self.rows))
    @rule()
    def retry(self) -> None:
        row = next(row for row in self.rows if row.state == "dead")
        row.state, row.attempts, row.due = "unsent", 0, True

    @invariant()
    def first_copies_of_a_key_arrive_in_order(self) -> None:
        first: dict[str, list[int]] = defaultdict(list)
        for at in self.log:
            if at not in first[self.rows[at].key]:
                first[self.rows[at].key].append(at)
        for key, found in first.items():
            assert found == [at for at, row in enumerate(self.rows) if row.key == key][: len(found)]

    @invariant()
    def whoever_drops_lower_sequences_ends_with_the_newest(self) -> None:
        kept: dict[str, list[int]] = defaultdict(list)
        for at in self.log:
            mine = kept[self.rows[at].key]
            if not mine or at > mine[-1]:
                mine.append(at)
        for key, found in kept.items():
            assert found == [at for at, row in enumerate(self.rows) if row.key == key][: len(found)]

    @invariant()
    def what_is_marked_as_sent_has_arrived(self) -> None:
        arrived = set(self.log)
        assert all(at in arrived for at, row in enumerate(self.rows) if row.state == "sent")

    @invariant()
    def one_relay_has_a_key_in_hand(self) -> None:
        held = [one.key for relay in self.relays if relay.session for one in relay.hand]
        assert len(held) == len(set(held))

    @invariant()
    def what_is_sent_stays_sent(self) -> None:
        assert all(self.rows[at].state == "sent" for at in self.sent)

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert all(row.attempts <= ATTEMPTS for row in self.rows)

    def teardown(self) -> None:
        """Once nothing goes wrong any more, all is sent but what stands behind a dead event."""
        for who in (0, 1):
            self.die(who)
        self.wait()
        for _ in range(4 * len(self.rows) + 4):
            self.choose(0)
            self.publish(0, Kind.AWAY, 0)
            self.mark(0)
        for key in KEYS:
            at = self.head(key)
            assert at is None or self.rows[at].state == "dead"
        self.first_copies_of_a_key_arrive_in_order()


def event(at: int, row: Stored) -> Event:
    return Event(at, "m", row.key, at, "t", None, f"id-{at}", b"{}", row.attempts, NOW)


TestRelay = RelayMachine.TestCase
TestRelay.settings = settings(max_examples=150, stateful_step_count=40)

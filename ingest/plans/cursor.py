"""The cursor plan: a change feed read from a durable, opaque cursor.

A cursor is stored only with the pages of the answer that gave it. Where pages have tokens of their
own, the cursor is that of the walk's first page and is adopted when the walk is over.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from ingest.plans.opaque import give, keep
from ingest.plans.protocol import (
    RESTARTS_MAX,
    TOKEN_MAX_BYTES,
    Ask,
    Nonce,
    Now,
    Page,
    Refusal,
    Stall,
    Step,
    too_long,
)
from ingest.plans.ranges import to_text
from ingest.plans.walk import Outcome, Walker, begun_again
from schemas.definitions.source import CursorSpec, Turn
from schemas.records import Mark, MarkKind, PlanState, Walk

_NUMBER = re.compile(r"\s*(-?\d+)")


class CursorPlan:
    """A feed; `identified` takes what the identity probe found."""

    name = "cursor"

    def __init__(self, spec: CursorSpec, partition_id: str, nonce: Nonce) -> None:
        self._spec = spec
        self._partition_id = partition_id
        pages = spec.request.pages
        self._by_cursor = pages is not None and pages.turn is Turn.CURSOR
        self._walker = Walker(pages, nonce)
        self._began = 0
        self._over = False
        self._probe_due = False

    def adopt(self, state: PlanState | None) -> PlanState:
        self._walker.forget()
        if state is None or state.definition_hash != self._spec.definition_hash:
            return PlanState(definition_hash=self._spec.definition_hash)
        return state

    def begin(self, state: PlanState, now: Now) -> PlanState:
        self._began, self._over = now.local, False
        self._probe_due = self._spec.identity is not None
        return state

    def next(self, state: PlanState, now: Now) -> Ask | Step | None:
        if self._over:
            return None
        if self._probe_due:
            return self._ask(state, Walk(scope="identity"), probe=True)
        walk = state.walk
        if walk is None:
            if self._too_old(state, now):
                return self._reset(state, "the cursor outlived its lifetime", now)
            walk = Walk(scope=to_text(now.local), started_at=now.local)
        if self._walker.expired(walk, now):
            return self._expired(state, walk, now)
        return self._ask(state, walk)

    def take(self, ask: Ask, page: Page) -> Step:
        state = ask.state
        walk = state.walk
        assert walk is not None
        if page.cursor is not None and too_long(page.cursor):
            return Step(state, stall=_too_long("cursor", "plan.cursor.next"))
        pending = state.cursor_pending
        if not self._by_cursor and pending is None and walk.page == 1:
            pending = page.cursor
            if pending is None and page.records:
                return Step(state, stall=_no_cursor())
        turned = self._walker.turn(walk, page)
        if turned.outcome is Outcome.STALL:
            return Step(state, stall=turned.stall)
        if turned.outcome in (Outcome.BEGIN, Outcome.INCOMPLETE):
            begun = replace(state, walk=None, cursor_pending=None)
            return Step(begun, stall=turned.stall)
        state = replace(state, walk=turned.walk, cursor_pending=pending)
        if self._by_cursor and page.cursor is not None:
            state = replace(state, cursor=page.cursor, cursor_issued_at=page.at.local)
        if turned.outcome is not Outcome.END:
            return Step(state, log=turned.log)
        return self._caught_up(ask.state, state, page, turned.log)

    def identified(self, ask: Ask, value: str | None, head: str | None, now: Now) -> Step:
        """The identity probe's answer: `value` names the collection, `head` is its newest cursor."""
        state = ask.state
        self._probe_due = False
        if value is not None and too_long(value):
            return Step(state, stall=_too_long("identity", "plan.cursor.identity"))
        if value is not None and state.identity not in (None, value):
            known = (
                f"the collection was re-created: its identity is {value}, it was {state.identity}"
            )
            return self._reset(state, known, now, identity=value, recreated=True)
        if head is not None and _below(head, state.cursor):
            known = (
                f"the collection was re-created: its head {head} is below the cursor {state.cursor}"
            )
            return self._reset(state, known, now, identity=value, recreated=True)
        return Step(replace(state, identity=value or state.identity))

    def refuse(self, ask: Ask, refusal: Refusal, now: Now) -> Step:
        state, walk = ask.state, ask.state.walk
        if refusal is Refusal.TOKEN_EXPIRED and walk is not None:
            return self._expired(state, walk, now)
        if refusal is Refusal.GAP:
            return self._reset(state, "the provider has forgotten the cursor", now)
        return Step(
            state,
            stall=Stall(
                f"the provider says {refusal}, but a feed cannot be read in smaller windows",
                "a smaller `pages.size`; or correct the rule in `errors`",
            ),
        )

    def can_split(self, ask: Ask) -> bool:
        return False

    def _ask(self, state: PlanState, walk: Walk, *, probe: bool = False) -> Ask:
        memory = self._walker.enter(walk)
        if state.cursor is not None:
            memory.used.add(state.cursor)
        values = {} if probe else self._walker.values(walk)
        start = self._spec.start
        cursor = state.cursor
        if cursor is None and start is not None:
            cursor = keep(start)
        if cursor is not None:
            values["cursor"] = cursor
        return Ask(
            plan=self.name,
            state=state if probe else replace(state, walk=walk),
            scope=walk.scope,
            pass_=memory.pass_,
            page=walk.page,
            reason="identity" if probe else "changes",
            values=values,
            link=self._walker.link(walk),
            probe=probe,
            token=cursor if self._by_cursor else walk.token,
        )

    def _caught_up(self, before: PlanState, state: PlanState, page: Page, log: bool) -> Step:
        """The walk is over: the feed has nothing more to say."""
        if not self._by_cursor and state.cursor_pending is not None:
            state = replace(state, cursor=state.cursor_pending, cursor_issued_at=page.at.local)
        walk = state.walk
        assert walk is not None
        self._over = True
        mark = self._mark("caught_up", walk.scope, page.at)
        mark = replace(mark, start=before.cursor, end=state.cursor)
        after = replace(state, walk=None, cursor_pending=None, polled_at=self._began)
        return Step(after, log=log, marks=(mark,))

    def _too_old(self, state: PlanState, now: Now) -> bool:
        lifetime_s = self._spec.lifetime_s
        if lifetime_s is None or state.cursor is None or state.cursor_issued_at is None:
            return False
        return now.local - state.cursor_issued_at >= lifetime_s * 1_000_000

    def _expired(self, state: PlanState, walk: Walk, now: Now) -> Step:
        if self._by_cursor or walk.page == 1:
            return self._reset(state, "the provider has forgotten the cursor", now)
        restarts = walk.restarts + 1
        if restarts > RESTARTS_MAX:
            return Step(
                state,
                stall=Stall(
                    f"the token of the pages expired {restarts} times before they ended",
                    "a provider that answers faster, or a larger `pages.size`",
                ),
            )
        self._walker.forget()
        again = begun_again(walk, restarts)
        return Step(replace(state, walk=again, cursor_pending=None))

    def _reset(
        self,
        state: PlanState,
        reason: str,
        now: Now,
        *,
        identity: str | None = None,
        recreated: bool = False,
    ) -> Step:
        """From `start` again, with a gap on record; or stop, if that is what was declared."""
        if state.cursor is None:
            if recreated:
                return Step(replace(state, identity=identity))
            return Step(
                state,
                stall=Stall(f"{reason}, although none was sent", "correct the rule in `errors`"),
            )
        if self._spec.on_reset == "stop":
            return Step(
                state,
                stall=Stall(reason, "a reset of this partition id: `on_reset` is `stop`"),
            )
        self._walker.forget()
        mark = self._mark("gap", f"reset~{to_text(now.local)}", now)
        mark = replace(mark, start=state.cursor, reason=reason)
        after = replace(
            state,
            cursor=None,
            cursor_pending=None,
            cursor_issued_at=None,
            identity=identity or state.identity,
            walk=None,
        )
        return Step(after, marks=(mark,), recreated=recreated, lost=True)

    def _mark(self, kind: MarkKind, scope: str, now: Now) -> Mark:
        return Mark(
            kind=kind,
            partition_id=self._partition_id,
            plan=self.name,
            scope=scope,
            at=now.local,
        )


def _below(head: str, cursor: str | None) -> bool:
    """Whether both begin with a number and the head's is smaller."""
    if cursor is None:
        return False
    a, b = _NUMBER.match(str(give(head))), _NUMBER.match(str(give(cursor)))
    return a is not None and b is not None and int(a[1]) < int(b[1])


def _too_long(what: str, key: str) -> Stall:
    return Stall(
        f"the {what} is longer than {TOKEN_MAX_BYTES} bytes",
        f"correct `{key}`: a checkpoint cannot hold such a value",
    )


def _no_cursor() -> Stall:
    return Stall("the first page has records but no cursor", "correct `plan.cursor.next`")

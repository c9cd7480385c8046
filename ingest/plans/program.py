"""The durable side of a plan that is a program: its state as opaque bytes, its pages counted.

What is asked is the program's to say (a class, a tap). Invariant: a state is stored only with or
behind the pages that it claims, so whatever stands behind the stored one is fetched again.
"""

from __future__ import annotations

from msgspec.structs import replace

from ingest.plans.protocol import Ask, Nonce, Now, Page, Refusal, Stall, Step
from ingest.plans.ranges import to_text
from schemas.definitions.scrubber import Scrubber
from schemas.records import Mark, MarkKind, PassRange, PlanState, Walk

STATE_MAX_BYTES = 48 * 1024
"""A checkpoint stays below 64 KiB, whatever a program would like to remember."""


class StateRefused(Exception):
    """What a program wants to remember cannot stand in a checkpoint."""

    def __init__(self, reason: str, unblocked_by: str) -> None:
        super().__init__(reason)
        self.unblocked_by = unblocked_by


def checked_state(state: bytes, what: str, scrubber: Scrubber) -> bytes:
    """`state` if a checkpoint may hold it; `what` names it. Raises StateRefused."""
    if len(state) > STATE_MAX_BYTES:
        raise StateRefused(
            f"{what} has {len(state):,} bytes, and a checkpoint holds {STATE_MAX_BYTES:,}",
            "a smaller state: positions, not records; or several tenants instead of one",
        )
    if scrubber.bytes(state) != state:
        raise StateRefused(
            f"{what} holds a secret, and checkpoints hold none",
            "a state without it, since secrets are given again whenever they are needed; or a secret"
            " that is no common word",
        )
    return state


class ProgramPlan:
    """The plan `python` or `singer` of one partition id. A pass is one run of the program."""

    def __init__(self, name: str, definition_hash: str, partition_id: str, nonce: Nonce) -> None:
        self.name = name
        self._hash, self._partition_id, self._nonce = definition_hash, partition_id, nonce
        self._pass = ""
        self._began = 0

    def adopt(self, state: PlanState | None) -> PlanState:
        self._pass = ""
        if state is None or state.definition_hash != self._hash:
            return PlanState(definition_hash=self._hash)
        return state

    def begin(self, state: PlanState, now: Now) -> PlanState:
        """A fresh pass from the stored state; pages of an earlier one that go beyond it are surplus."""
        self._pass, self._began = self._nonce(), now.local
        return replace(state, walk=Walk(scope=to_text(now.local), started_at=now.local))

    def next(self, state: PlanState, now: Now) -> Ask:
        """Where the next page will stand; the program says what it is."""
        if not self._pass or state.walk is None:
            state = self.begin(state, now)
        walk = state.walk
        assert walk is not None
        return Ask(
            plan=self.name,
            state=state,
            scope=walk.scope,
            pass_=self._pass,
            page=walk.page,
            reason="changes",
        )

    def take(self, ask: Ask, page: Page) -> Step:
        """The page that was asked for; one without records leaves no trace."""
        walk = ask.state.walk
        assert walk is not None
        if not page.records:
            return Step(ask.state)
        before = walk.passes[0] if walk.passes else None
        run = PassRange(
            pass_=ask.pass_,
            first=1,
            last=walk.page,
            parts=page.parts + (before.parts if before else 0),
            records=page.records + (before.records if before else 0),
            parts_max=max(page.parts, before.parts_max if before else 1),
        )
        after = replace(walk, page=walk.page + 1, passes=[run])
        return Step(replace(ask.state, walk=after), log=True)

    def complete(self, state: PlanState) -> Step:
        """The program says that there is nothing more since it was begun."""
        scope = state.walk.scope if state.walk is not None else to_text(self._began)
        mark = self._mark("caught_up", scope, self._began)
        self._pass = ""
        return Step(replace(state, walk=None, polled_at=self._began), marks=(mark,))

    def gap(self, state: PlanState, reason: str, now: Now) -> Step:
        """The program says that something is gone for good, and goes on."""
        mark = replace(self._mark("gap", f"gap~{to_text(now.local)}", now.local), reason=reason)
        return Step(state, marks=(mark,), lost=True)

    def refuse(self, ask: Ask, refusal: Refusal, now: Now) -> Step:
        return Step(
            ask.state,
            stall=Stall(
                f"an error rule says {refusal}, which only the program could make sense of",
                "let it see such answers: `do: success` in `errors`",
            ),
        )

    def can_split(self, ask: Ask) -> bool:
        return False

    def _mark(self, kind: MarkKind, scope: str, at: int) -> Mark:
        return Mark(kind=kind, partition_id=self._partition_id, plan=self.name, scope=scope, at=at)

"""The snapshot plan: a full listing, begun by a mark and ended by one that names every page.

Absence proves something only with both marks. What older snapshots left in the log is tombstoned
after a newer one is complete, their marks first.
"""

from __future__ import annotations

from msgspec.structs import replace

from ingest.plans.protocol import (
    RESTARTS_MAX,
    Ask,
    Nonce,
    Now,
    Page,
    Refusal,
    Stall,
    Step,
)
from ingest.plans.ranges import to_text
from ingest.plans.walk import Outcome, Walker
from schemas.definitions.source import SnapshotSpec
from schemas.keys import PageKey, mark_key, page_key_of
from schemas.records import KeptSnapshot, Mark, MarkKind, PlanState, Walk

PREVIOUS_MAX = 16
PREVIOUS_PASSES_MAX = 256
"""What the log still has of snapshots that were given up is named only as far as a checkpoint allows."""
TOMBSTONES_MAX = 2_000


class SnapshotPlan:
    """`keep`: how many complete snapshots stay in the log; `walker`: if not one over pages."""

    name = "snapshot"

    def __init__(
        self,
        spec: SnapshotSpec,
        partition_id: str,
        nonce: Nonce,
        *,
        keep: int = 1,
        walker: Walker | None = None,
    ) -> None:
        self._spec = spec
        self._partition_id = partition_id
        self._keep = max(keep, spec.listings_needed)
        self._nonce = nonce
        self._walker = walker or Walker(spec.request.pages, nonce)
        self._wanted = False
        self._tombstoned = 0

    def adopt(self, state: PlanState | None) -> PlanState:
        self._walker.forget()
        self._wanted, self._tombstoned = False, 0
        spec = self._spec
        if state is None:
            return PlanState(definition_hash=spec.definition_hash)
        if state.definition_hash != spec.definition_hash:
            state = replace(given_up(state), polled_at=None)
            return replace(state, definition_hash=spec.definition_hash)
        return state

    def begin(self, state: PlanState, now: Now) -> PlanState:
        self._wanted = True
        self._walker.resume()
        return state

    def next(self, state: PlanState, now: Now) -> Ask | Step | None:
        if state.tombstone_due:
            return self._tombstone(state)
        walk = state.walk
        if walk is None or state.snapshot_id is None:
            return self._begun(state, now) if self._wanted else None
        if self._walker.expired(walk, now):
            return self._restart(state, walk)
        return Ask(
            plan=self.name,
            state=state,
            scope=state.snapshot_id,
            pass_=self._walker.enter(walk).pass_,
            page=walk.page,
            reason="snapshot",
            values=self._walker.values(walk),
            link=self._walker.link(walk),
            token=self._walker.leaf(walk)[1].token,
            listing=self._walker.wants_listing(walk),
        )

    def take(self, ask: Ask, page: Page) -> Step:
        state, walk = ask.state, ask.state.walk
        assert walk is not None
        if page.closed:
            self._wanted = False
            return Step(replace(given_up(state), polled_at=walk.started_at))
        turned = self._walker.turn(walk, page)
        if turned.outcome is Outcome.STALL:
            return Step(state, stall=turned.stall)
        if turned.outcome is Outcome.INCOMPLETE:
            return self._give_up(state, turned.walk, turned.log, turned.stall)
        if turned.outcome is Outcome.BEGIN:
            return Step(given_up(state))
        state = replace(state, walk=turned.walk)
        if turned.outcome is not Outcome.END:
            return Step(state, log=turned.log, save=turned.save)
        spec = self._spec
        stable = spec.listings_needed == 1 or (walk.page == 1 and not spec.shifting_parents)
        return self._complete(state, turned.walk, stable, page.at, turned.log)

    def refuse(self, ask: Ask, refusal: Refusal, now: Now) -> Step:
        state, walk = ask.state, ask.state.walk
        if refusal is Refusal.TOKEN_EXPIRED and walk is not None:
            return self._restart(state, walk)
        return Step(
            state,
            stall=Stall(
                f"the provider says {refusal}, but a listing cannot be read in smaller windows",
                "a smaller `pages.size`; or correct the rule in `errors`",
            ),
        )

    def can_split(self, ask: Ask) -> bool:
        return False

    def _begun(self, state: PlanState, now: Now) -> Step:
        snapshot_id = f"{to_text(now.local)[:19]}Z.{self._nonce()}"
        walk = Walk(scope=snapshot_id, started_at=now.local)
        mark = self._mark("snapshot_begin", snapshot_id, now.local)
        after = replace(state, snapshot_id=snapshot_id, walk=walk)
        return Step(after, marks=(mark,))

    def _restart(self, state: PlanState, walk: Walk) -> Step:
        """From the first page; what was listed so far stays named, it was there."""
        renewed = self._walker.renewed(walk)
        if renewed is not None:
            return Step(replace(state, walk=renewed))
        restarts = walk.restarts + 1
        if restarts > RESTARTS_MAX:
            why = f"the token of the listing expired {restarts} times before it ended"
            stall = Stall(why, "a larger `pages.size`, or paging by {last.id}")
            return self._give_up(state, walk, False, stall)
        self._walker.forget()
        again = replace(walk, page=1, token=None, token_at=None, last_id=None, restarts=restarts)
        return Step(replace(state, walk=again))

    def _give_up(self, state: PlanState, walk: Walk, log: bool, stall: Stall | None) -> Step:
        """An incomplete listing; the next one begins when it is due."""
        self._wanted = False
        after = replace(given_up(replace(state, walk=walk)), polled_at=walk.started_at)
        return Step(after, log=log, stall=stall)

    def _complete(self, state: PlanState, walk: Walk, stable: bool, now: Now, log: bool) -> Step:
        snapshot_id = walk.scope
        kept = KeptSnapshot(snapshot_id=snapshot_id, passes=walk.passes)
        previous = [*state.previous, kept]
        complete = [one.snapshot_id for one in previous if one.complete]
        oldest = complete[-self._keep :][0]
        cut = next(i for i, one in enumerate(previous) if one.snapshot_id == oldest)
        self._wanted = False
        after = replace(
            state,
            snapshot_id=None,
            walk=None,
            polled_at=walk.started_at,
            previous=previous,
            tombstone_due=[one.snapshot_id for one in previous[:cut]],
        )
        mark = replace(
            self._mark("snapshot_complete", snapshot_id, now.local),
            passes=walk.passes,
            stable=stable,
        )
        return Step(after, log=log, marks=(mark,))

    def _tombstone(self, state: PlanState) -> Step:
        """Some keys of the oldest snapshot that has to go; with the last of them it is forgotten."""
        oldest = state.tombstone_due[0]
        kept = next((s for s in state.previous if s.snapshot_id == oldest), None)
        keys = [] if kept is None else self._keys(kept)
        chunk = keys[self._tombstoned : self._tombstoned + TOMBSTONES_MAX]
        self._tombstoned += len(chunk)
        if self._tombstoned >= len(keys):
            self._tombstoned = 0
            state = replace(
                state,
                tombstone_due=state.tombstone_due[1:],
                previous=[s for s in state.previous if s.snapshot_id != oldest],
            )
        return Step(state, tombstones=tuple(chunk))

    def _keys(self, kept: KeptSnapshot) -> list[str]:
        complete = replace(self._mark("snapshot_complete", kept.snapshot_id, 0), passes=kept.passes)
        begin = self._mark("snapshot_begin", kept.snapshot_id, 0)
        keys = [mark_key(complete)] if kept.complete else []
        keys.append(mark_key(begin))
        for run in kept.passes:
            for page in range(run.first, run.last + 1):
                for part in range(1, run.parts_max + 1):
                    key = PageKey(
                        self._partition_id,
                        self.name,
                        kept.snapshot_id,
                        run.pass_,
                        page,
                        part,
                    )
                    keys.append(page_key_of(key))
        return keys

    def _mark(self, kind: MarkKind, scope: str, at: int) -> Mark:
        return Mark(
            kind=kind,
            partition_id=self._partition_id,
            plan=self.name,
            scope=scope,
            at=at,
        )


def given_up(state: PlanState) -> PlanState:
    """The snapshot in work will not be complete; its pages go when a later one is."""
    previous = list(state.previous)
    if state.snapshot_id is not None:
        passes = state.walk.passes if state.walk else []
        previous.append(KeptSnapshot(snapshot_id=state.snapshot_id, passes=passes, complete=False))
    previous = previous[-PREVIOUS_MAX:]
    while sum(len(one.passes) for one in previous) > PREVIOUS_PASSES_MAX:
        previous = previous[1:]
    return replace(state, snapshot_id=None, walk=None, previous=previous)

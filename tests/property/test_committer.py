"""The committer's decisions against a model of the log: order, and never ahead of what is durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingest import committer
from ingest.committer import Head, Limits, Transaction
from ingest.emission import Emission, StreamState
from schemas.records import Mark, Observation, PlanState, SourceCheckpoint

OWNERS = ("a/s", "b/s/t1", "b/s/t2")
LIMITS = Limits(emissions=6, pages=3, size_bytes=250)


def page(owner: str, number: int, pass_: str) -> Observation:
    return Observation(
        partition_id=owner,
        plan="interval",
        scope="s",
        pass_=pass_,
        page=number,
        reason="new",
        method="GET",
        url="http://x/",
        definition_hash="h",
        status=200,
        requested_at=1,
        received_at=2,
    )


def state(steps: int) -> StreamState:
    """A state that says how many steps of its partition id it covers."""
    return StreamState(plans={"interval": PlanState(definition_hash="h", width_us=steps)})


def covers(found: StreamState | SourceCheckpoint) -> int:
    return found.plans["interval"].width_us or 0


@dataclass
class Log:
    """What the broker holds: committed records (offset, key, step), and the checkpoints."""

    end: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[str, list[SourceCheckpoint]] = field(default_factory=dict)


class CommitterMachine(RuleBasedStateMachine):
    """Fetching, committing, dying and restoring in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.buffer: list[Emission] = []
        self.emitted: dict[str, int] = dict.fromkeys(OWNERS, 0)
        self.heads: dict[str, Head] = {}
        self.passes = 0
        self.order: list[tuple[str, int]] = []

    @rule(
        owner=strategies.sampled_from(OWNERS),
        parts=strategies.integers(0, 2),
        marks=strategies.integers(0, 2),
        size=strategies.integers(0, 300),
    )
    def fetch(self, owner: str, parts: int, marks: int, size: int) -> None:
        step = self.emitted[owner] = self.emitted[owner] + 1
        pages = tuple(page(owner, step, f"p{self.passes}-{n}") for n in range(parts))
        stand = tuple(
            Mark(kind="gap", partition_id=owner, plan="interval", scope=f"{step}-{n}", at=1)
            for n in range(marks)
        )
        self.buffer.append(Emission(owner, pages, stand, state(step), size))

    @rule(owner=strategies.sampled_from(OWNERS), count=strategies.integers(1, 4))
    def clear_old(self, owner: str, count: int) -> None:
        step = self.emitted[owner] = self.emitted[owner] + 1
        gone = tuple(f"{owner}/snapshot/old/p/{n}/1" for n in range(count))
        self.buffer.append(Emission(owner, (), (), state(step), 1, gone))

    @rule(aborted_before=strategies.integers(0, 3))
    @precondition(lambda self: self.buffer)
    def commit(self, aborted_before: int) -> None:
        transaction = committer.next_transaction(self.buffer, LIMITS)
        assert transaction is not None
        self.check_batch(transaction)
        offsets = self.deliver(transaction, aborted_before)
        found = committer.checkpoints(transaction, offsets, self.heads, "w", 5)
        self.check_checkpoints(transaction, found)
        for checkpoint in found:
            self.log.checkpoints.setdefault(checkpoint.partition_id, []).append(checkpoint)
            self.heads[checkpoint.partition_id] = committer.head_of(checkpoint)
        for emission in transaction.emissions:
            self.log.steps[emission.partition_id] = covers(emission.state)
        del self.buffer[: len(transaction.emissions)]

    @rule()
    def die_and_restore(self) -> None:
        """What was not committed is lost; the last checkpoints say where to go on."""
        self.buffer.clear()
        self.passes += 1
        newest = {owner: found[-1] for owner, found in self.log.checkpoints.items()}
        self.heads = {owner: committer.head_of(found) for owner, found in newest.items()}
        self.emitted = {
            owner: covers(committer.state_of(newest[owner])) if owner in newest else 0
            for owner in OWNERS
        }

    def deliver(self, transaction: Transaction, aborted_before: int) -> list[int]:
        """Appends the records behind `aborted_before` offsets of some aborted transaction."""
        self.log.end += aborted_before
        offsets = list(range(self.log.end, self.log.end + len(transaction.records)))
        self.log.end += len(offsets) + 1
        for offset, record in zip(offsets, transaction.records, strict=True):
            self.log.keys[offset] = record.key if record.content is not None else ""
        return offsets

    def check_batch(self, transaction: Transaction) -> None:
        """A beginning of the buffer, in its order, bounded, and tombstones alone."""
        count = len(transaction.emissions)
        assert 1 <= count <= LIMITS.emissions
        assert list(transaction.emissions) == self.buffer[:count]
        wanted = [
            *(
                (type(content), content)
                for emission in transaction.emissions
                for content in (*emission.observations, *emission.marks)
            )
        ]
        if any(emission.tombstones for emission in transaction.emissions):
            assert count == 1 and transaction.kind == "tombstones"
            assert all(record.content is None for record in transaction.records)
            assert [r.key for r in transaction.records] == list(self.buffer[0].tombstones)
            return
        assert [(type(r.content), r.content) for r in transaction.records] == wanted
        if count > 1:
            assert sum(1 for e in transaction.emissions if e.observations) <= LIMITS.pages
            assert sum(e.size for e in transaction.emissions) <= LIMITS.size_bytes

    def check_checkpoints(self, transaction: Transaction, found: list[SourceCheckpoint]) -> None:
        assert {c.partition_id for c in found} == {e.partition_id for e in transaction.emissions}
        for checkpoint in found:
            owner = checkpoint.partition_id
            mine = [e for e in transaction.emissions if e.partition_id == owner]
            # it covers exactly what was durable before and what stands in this transaction
            assert covers(checkpoint) == self.log.steps.get(owner, 0) + len(mine)
            before = self.log.checkpoints.get(owner, [])
            assert checkpoint.sequence == (before[-1].sequence + 1 if before else 1)
            wrote = any(e.observations or e.marks for e in mine)
            if wrote:
                assert checkpoint.named is not None
                last = mine[-1] if mine[-1].observations or mine[-1].marks else None
                assert self.log.keys[checkpoint.named.offset] == checkpoint.named.key
                if last is not None and last.marks:
                    assert "/mark/" in checkpoint.named.key
            else:
                assert checkpoint.named == (before[-1].named if before else None)

    @invariant()
    def never_ahead(self) -> None:
        """No committed checkpoint covers a step that is not in the log."""
        for owner, found in self.log.checkpoints.items():
            assert covers(found[-1]) <= self.log.steps[owner]

    @invariant()
    def names_stand_in_the_log(self) -> None:
        for found in self.log.checkpoints.values():
            named = found[-1].named
            assert named is None or self.log.keys[named.offset] == named.key


TestCommitter = CommitterMachine.TestCase
TestCommitter.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

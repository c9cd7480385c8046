"""Restoring from a real log: validation of what checkpoints name, fall-back, healing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ingest import committer
from ingest.committer import Head, Limits
from ingest.emission import Emission, StreamState
from ingest.faults import Refused
from ingest.producer import Floors, LogProducer
from ingest.restore import Restored
from ingest.restore_log import LogState
from ops.audit.checkpoints import SequenceJudge
from ops.audit.findings import Findings
from ops.facts import log as facts
from ops.facts.deployment import read_log
from ops.topics import ensure_topics
from schemas import codec
from schemas.failpoints import none
from schemas.log.reader import bounds
from schemas.records import Named, Observation, PlanState, SourceCheckpoint
from schemas.settings import Settings
from tests.integration.ingest import log
from tests.integration.ingest.scripted import Source, next_page, page_of, with_next
from tests.waiting import wait_until

A, B = "src/a", "src/b"


def now() -> int:
    return time.time_ns() // 1000


class Writer:
    """A producer with its heads and floors."""

    def __init__(self, settings: Settings) -> None:
        self._producer = LogProducer(settings, 0, none)
        self._producer.fence()
        restored = LogState(settings, 0, lambda: None).read()
        self.heads: dict[str, Head] = dict(restored.heads)
        self._floors = Floors(restored.floor_observations, restored.floor_checkpoints)

    def pages(self, owner: str, *numbers: int) -> dict[str, Head]:
        """Commits these pages of one partition id in one transaction."""
        source = Source(owner, pages=99)
        emissions = [
            Emission(owner, (page_of(source, n, "p"),), (), with_next(StreamState(), n + 1), 40)
            for n in numbers
        ]
        transaction = committer.next_transaction(emissions, Limits())
        assert transaction is not None
        written = self._producer.write(transaction, self.heads, self._floors, now)
        self._floors = written.floors
        self.heads |= {c.partition_id: committer.head_of(c) for c in written.checkpoints}
        return self.heads

    def close(self) -> None:
        self._producer.close()


@contextmanager
def writer(settings: Settings) -> Iterator[Writer]:
    found = Writer(settings)
    yield found
    found.close()


def restore(settings: Settings) -> Restored:
    """As a new owner does it: fence, then read."""
    producer = LogProducer(settings, 0, none)
    producer.fence()
    try:
        return LogState(settings, 0, lambda: None).read()
    finally:
        producer.close()


def recreate(settings: Settings, topic: str) -> None:
    """Deletes a topic with all it holds, and creates it again, as an accident does."""
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, 20, f"{topic} to go")
    ensure_topics(settings)


def test_an_empty_log_restores_nothing(settings: Settings) -> None:
    found = restore(settings)
    assert (dict(found.states), found.heal, found.floor_observations) == ({}, False, -1)


def test_the_last_checkpoint_of_each_partition_id_counts(settings: Settings) -> None:
    with writer(settings) as w:
        w.pages(A, 1, 2)
        w.pages(B, 1)
        heads = dict(w.pages(A, 3))
    found = restore(settings)
    assert {owner: next_page(state) for owner, state in found.states.items()} == {A: 4, B: 2}
    assert dict(found.heads) == heads
    assert not found.heal and found.fall_backs == ()
    end = bounds(settings, settings.observations, 0).end
    assert found.floor_observations == end - 1
    assert found.appended_at is not None and abs(found.appended_at - now()) < 60_000_000


def test_a_tombstoned_checkpoint_is_no_state(settings: Settings) -> None:
    with writer(settings) as w:
        w.pages(A, 1)
        w.pages(B, 1)
    log.put(settings, settings.checkpoints, A, None)
    assert set(restore(settings).states) == {B}


def test_a_recreated_log_is_noticed_and_fetched_again(settings: Settings) -> None:
    """The checkpoints survived, the pages did not: nothing may be believed."""
    with writer(settings) as w:
        w.pages(A, 1, 2)
        w.pages(B, 1)
    recreate(settings, settings.observations)
    found = restore(settings)
    assert {fall.partition_id for fall in found.fall_backs} == {A, B}
    assert all(fall.to is None for fall in found.fall_backs)
    assert {owner: next_page(state) for owner, state in found.states.items()} == {A: 1, B: 1}
    assert found.heal, "the fall-back is written at once"
    assert found.heads[A].sequence == 1


def test_other_records_at_the_named_offsets_are_noticed(settings: Settings) -> None:
    with writer(settings) as w:
        w.pages(A, 1, 2)
    recreate(settings, settings.observations)
    for number in range(5):
        log.put(settings, settings.observations, f"{A}/interval/all/other/{number}/1", b"x")
    found = restore(settings)
    assert [fall.partition_id for fall in found.fall_backs] == [A]


def test_it_falls_back_to_the_newest_checkpoint_that_is_valid(settings: Settings) -> None:
    """The log keeps the beginning of what was there, as after an unclean leader election."""
    with writer(settings) as w:
        w.pages(A, 1, 2)
        w.pages(B, 1)
        w.pages(A, 3)
    kept = [(seen.key, _raw(settings, seen.offset)) for seen in log.observations(settings)][:3]
    recreate(settings, settings.observations)
    # the same records at the same offsets; transactions, so that the markers stand there too
    keep = Producer(
        {"bootstrap.servers": settings.kafka, "transactional.id": f"{settings.prefix}t"}
    )
    keep.init_transactions(10)
    for group in (kept[:2], kept[2:]):
        keep.begin_transaction()
        for key, value in group:
            keep.produce(settings.observations, key=key, value=value, partition=0)
        keep.commit_transaction(10)
    found = restore(settings)
    assert [(fall.partition_id, fall.to) for fall in found.fall_backs] == [
        (A, Named(1, f"{A}/interval/all/p/2/1"))
    ]
    assert {owner: next_page(state) for owner, state in found.states.items()} == {A: 3, B: 2}
    assert (found.heads[A].sequence, found.heads[A].named) == (2, found.fall_backs[0].to)


def _raw(settings: Settings, offset: int) -> bytes:
    content = next(s.content for s in log.observations(settings) if s.offset == offset)
    assert content is not None
    return codec.encode(content)


def test_a_page_rewritten_by_an_erasure_is_still_valid(settings: Settings) -> None:
    """Compaction removed the named record; a later one under its key carries its offset."""
    with writer(settings) as w:
        w.pages(A, 1, 2)
    named = restore(settings).heads[A].named
    assert named is not None
    page = next(s.content for s in log.observations(settings) if s.offset == named.offset)
    assert isinstance(page, Observation)
    emptied = msgspec.structs.replace(page, records=[b"", b""], original_offset=named.offset)
    recreate(settings, settings.observations)
    for _ in range(named.offset):
        log.put(settings, settings.observations, "filler", b"x")
    _leave_a_hole(settings)
    log.put(settings, settings.observations, named.key, codec.encode(emptied))
    found = restore(settings)
    assert found.fall_backs == () and not found.heal
    assert next_page(found.states[A]) == 3


def _leave_a_hole(settings: Settings) -> None:
    """An offset without a visible record, as compaction leaves it: an aborted one."""
    aborted = Producer(
        {"bootstrap.servers": settings.kafka, "transactional.id": f"{settings.prefix}hole"}
    )
    aborted.init_transactions(10)
    aborted.begin_transaction()
    aborted.produce(settings.observations, key="hole", value=b"x", partition=0)
    aborted.flush(10)
    aborted.abort_transaction(10)


def with_retention(admin: AdminClient, topic: str) -> None:
    policy = ConfigEntry(
        "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(20)


def test_what_retention_removed_is_expired_and_not_lost(settings: Settings) -> None:
    with writer(settings) as w:
        w.pages(A, 1, 2)
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    with_retention(admin, settings.observations)
    end = bounds(settings, settings.observations, 0).end
    where = TopicPartition(settings.observations, 0, end)
    for done in admin.delete_records([where]).values():
        done.result(20)
    wait_until(lambda: bounds(settings, settings.observations, 0).low == end, 10, "the deletion")
    found = restore(settings)
    assert found.fall_backs == ()
    assert next_page(found.states[A]) == 3


def test_an_open_transaction_of_somebody_else_is_healed_around(settings: Settings) -> None:
    """The last stable offset stands below the end: a lost marker looks like this."""
    with writer(settings) as w:
        w.pages(A, 1)
    hanging = Producer(
        {"bootstrap.servers": settings.kafka, "transactional.id": f"{settings.prefix}hangs"}
    )
    hanging.init_transactions(10)
    hanging.begin_transaction()
    for owner in (A, B):
        ghost = SourceCheckpoint(
            partition_id=owner,
            worker="lost",
            sequence=7,
            written_at=1,
            plans={"interval": PlanState(definition_hash="h", width_us=99)},
        )
        hanging.produce(settings.checkpoints, key=owner, value=codec.encode(ghost), partition=0)
    hanging.flush(10)
    found = restore(settings)
    assert found.heal
    assert {owner: next_page(state) for owner, state in found.states.items()} == {A: 2}
    assert found.ghosts == (B,), "it stands only in the transaction without a marker"
    assert found.heads[A].sequence == 7, "what is written behind it has to rise"
    producer = LogProducer(settings, 0, none)
    producer.fence()
    transaction = committer.heal(0, now(), found.states, found.ghosts)
    floors = Floors(found.floor_observations, found.floor_checkpoints)
    producer.write(transaction, found.heads, floors, now)
    producer.close()
    hanging.commit_transaction(10)  # the worst case: the lost transaction becomes visible
    after = restore(settings)
    assert {owner: next_page(state) for owner, state in after.states.items()} == {A: 2}
    assert after.heads[A].sequence == 8 and not after.heal
    ends = facts.ends(facts.connect(settings), settings.checkpoints, 1)
    read = [
        (one.partition_id, None)
        if isinstance(one, facts.Cleared)
        else (one.checkpoint.partition_id, one.checkpoint.sequence)
        for one in facts.checkpoints(settings, ends)
    ]
    assert read == [(A, 1), (A, 7), (B, 7), (A, 8), (B, None)]
    findings = Findings()
    judge = SequenceJudge(1, findings)
    for one in facts.checkpoints(settings, ends):
        judge.see(one)
    assert findings.clean and judge.last.keys() == {A}
    assert read_log(settings).checkpoints.keys() == {A}


def test_an_unreadable_checkpoint_stops_with_what_to_do(settings: Settings) -> None:
    log.put(settings, settings.checkpoints, A, b"\xc3\x01" + b"\0" * 8 + b"x")
    with pytest.raises(Refused, match="upgrade this process"):
        restore(settings)

"""The producer's edge on a real broker: order, fence, torn and unclear commits."""

from __future__ import annotations

import time

import pytest

from ingest import committer
from ingest.committer import Head, Limits, Transaction
from ingest.emission import Emission, StreamState
from ingest.faults import Fenced, LogCut
from ingest.producer import Floors, LogProducer, Written
from ingest.restore_log import LogState
from schemas.failpoints import none
from schemas.log.reader import bounds
from schemas.records import Observation
from schemas.settings import Settings
from tests.integration.ingest import log
from tests.integration.ingest.scripted import Source, complete, page_of, with_next

OWNER = "src/things"
SOURCE = Source(OWNER, pages=99)
NOTHING = Floors(-1, -1)
# what abandoning a fenced producer looks like
pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")


class Crash(Exception):
    """What a failpoint of these tests raises."""


def now() -> int:
    return time.time_ns() // 1000


def pages(*numbers: int, pass_: str = "p", owner: str = OWNER) -> Transaction:
    source = Source(owner, pages=99)
    emissions = [
        Emission(owner, (page_of(source, n, pass_),), (), with_next(StreamState(), n + 1), 40)
        for n in numbers
    ]
    found = committer.next_transaction(emissions, Limits())
    assert found is not None
    return found


def crash_at(name: str, times: int = 1) -> tuple[list[str], object]:
    hits: list[str] = []

    def hit(at: str) -> None:
        hits.append(at)
        if hits.count(name) == times and at == name:
            raise Crash(name)

    return hits, hit


def opened(settings: Settings, hit: object = none) -> LogProducer:
    producer = LogProducer(settings, 0, hit)  # type: ignore[arg-type]
    producer.fence()
    return producer


def write(
    producer: LogProducer,
    transaction: Transaction,
    heads: dict[str, Head] | None = None,
    floors: Floors = NOTHING,
) -> Written:
    return producer.write(transaction, heads or {}, floors, now)


def restored_next(settings: Settings) -> int | None:
    """The page that a new owner would fetch next; None without a checkpoint."""
    fresh = opened(settings)
    try:
        state = LogState(settings, 0, lambda: None).read().states.get(OWNER)
        return None if state is None else state.plans["interval"].width_us
    finally:
        fresh.close()


def test_checkpoints_come_after_their_pages_and_name_the_last_one(settings: Settings) -> None:
    seen: dict[str, tuple[int, int]] = {}

    def look(name: str) -> None:
        if name in ("ingest.after_flush", "ingest.before_commit"):
            seen[name] = (
                len(log.read(settings, settings.observations, committed=False)),
                len(log.read(settings, settings.checkpoints, committed=False)),
            )

    producer = opened(settings, look)
    mark = Emission(OWNER, (), (complete(SOURCE, "p"),), with_next(StreamState(), 9), 1)
    transaction = committer.next_transaction([*pages(1, 2, 3).emissions, mark], Limits())
    assert transaction is not None
    written = write(producer, transaction)
    producer.close()
    assert seen["ingest.after_flush"] == (4, 0), "no checkpoint before its pages are acknowledged"
    assert seen["ingest.before_commit"] == (4, 1)
    named = written.checkpoints[0].named
    assert named is not None
    record = log.observations(settings)[-1]
    assert (named.offset, named.key) == (record.offset, record.key)
    assert "/mark/" in named.key
    assert log.checkpoints(settings)[OWNER].sequence == 1


def test_a_fenced_owner_is_told_and_nothing_of_it_is_seen(settings: Settings) -> None:
    stale = opened(settings)
    first = write(stale, pages(1))
    new = opened(settings)
    written = write(new, pages(2, pass_="new"), {OWNER: Head(1)}, first.floors)
    with pytest.raises(Fenced):
        write(stale, pages(2, 3, 4), {OWNER: Head(1)}, first.floors)
    assert log.pages(settings, OWNER) == [1, 2]
    with pytest.raises(RuntimeError, match="never used again"):
        write(stale, pages(5))
    stale.abandon()
    write(new, pages(3, pass_="new"), {OWNER: Head(2)}, written.floors)
    new.close()
    assert log.pages(settings, OWNER) == [1, 2, 3]


def test_an_owner_paused_inside_its_transaction_is_fenced(settings: Settings) -> None:
    """Everything is acknowledged, only the commit is missing when the next one takes over."""
    taken_over: list[int | None] = []

    def take_over(name: str) -> None:
        if name == "ingest.before_commit":
            taken_over.append(restored_next(settings))

    stale = opened(settings, take_over)
    with pytest.raises(Fenced):
        write(stale, pages(1, 2))
    stale.abandon()
    assert taken_over == [None], "its open transaction was aborted, nothing was restored from it"
    assert log.observations(settings) == []
    assert log.checkpoints(settings) == {}
    where = bounds(settings, settings.observations, 0)
    assert where.stable_end == where.end, "no reader waits behind it"


@pytest.mark.parametrize(
    "at",
    [
        "ingest.before_begin",
        "ingest.after_begin",
        "ingest.between_pages",
        "ingest.after_pages",
        "ingest.after_flush",
        "ingest.after_checkpoints",
        "ingest.before_commit",
    ],
)
def test_before_the_commit_nothing_happened(settings: Settings, at: str) -> None:
    first = opened(settings)
    floors = write(first, pages(1)).floors
    first.close()
    hits, hit = crash_at(at)
    producer = opened(settings, hit)
    with pytest.raises(Crash):
        write(producer, pages(2, 3), {OWNER: Head(1)}, floors)
    assert hits[-1] == at
    producer.abandon()
    assert restored_next(settings) == 2
    assert log.pages(settings, OWNER) == [1]


@pytest.mark.parametrize("at", ["ingest.answer_lost", "ingest.after_commit"])
def test_after_the_commit_the_log_says_that_it_happened(settings: Settings, at: str) -> None:
    _, hit = crash_at(at)
    producer = opened(settings, hit)
    with pytest.raises(Crash):
        write(producer, pages(1, 2))
    producer.abandon()
    assert restored_next(settings) == 3
    assert log.pages(settings, OWNER) == [1, 2]


def test_tombstones_have_a_transaction_of_their_own(settings: Settings) -> None:
    hits, hit = crash_at("none")
    producer = opened(settings, hit)
    written = write(producer, pages(1, 2))
    keys = tuple(seen.key for seen in log.observations(settings))
    gone = Emission(OWNER, (), (), with_next(StreamState(), 3), 1, keys[:1])
    transaction = committer.next_transaction([gone, *pages(3).emissions], Limits())
    assert transaction is not None
    heads = {OWNER: committer.head_of(written.checkpoints[0])}
    cleared = write(producer, transaction, heads, written.floors)
    producer.close()
    assert hits.count("ingest.before_tombstones") == 1
    assert [(s.key, s.content is None) for s in log.observations(settings)][-1] == (keys[0], True)
    assert cleared.checkpoints[0].named == written.checkpoints[0].named, "never names a tombstone"


def test_an_offset_that_does_not_rise_is_a_cut_log(settings: Settings) -> None:
    producer = opened(settings)
    with pytest.raises(LogCut, match="the log was cut"):
        write(producer, pages(1, 2), floors=Floors(1_000, -1))
    producer.abandon()
    assert restored_next(settings) is None, "the transaction did not commit"


def test_a_page_of_many_parts_is_named_by_its_last_part(settings: Settings) -> None:
    whole = page_of(SOURCE, 1, "p")
    parts = tuple(
        Observation(
            **{**{f: getattr(whole, f) for f in whole.__struct_fields__}, "part": n, "parts": 3}
        )
        for n in (1, 2, 3)
    )
    emission = Emission(OWNER, parts, (), with_next(StreamState(), 2), 100)
    transaction = committer.next_transaction([emission], Limits())
    assert transaction is not None
    producer = opened(settings)
    named = write(producer, transaction).checkpoints[0].named
    producer.close()
    assert named is not None and named.key.endswith("/1/3")

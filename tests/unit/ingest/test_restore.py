"""Which checkpoint a new owner continues from."""

from __future__ import annotations

import pytest

from ingest import restore
from ingest.committer import Head
from ingest.restore import Candidate, Verdict, judge
from schemas.log.reader import LogRecord
from schemas.records import Named, PlanState, SourceCheckpoint

NAMED = Named(10, "k")


def record(offset: int, key: str = "k", value: bytes | None = b"v") -> LogRecord:
    return LogRecord(0, offset, key, value, 1, None)


@pytest.mark.parametrize(
    ("low", "stable_end", "found", "verdict"),
    [
        (0, 20, record(10), Verdict.THERE),
        (10, 20, record(10), Verdict.THERE),
        (11, 20, None, Verdict.EXPIRED),
        (0, 10, None, Verdict.LOST),
        (0, 11, None, Verdict.ABSENT),
        (0, 20, record(11), Verdict.ABSENT),
        (0, 20, record(10, "other"), Verdict.LOST),
        (0, 20, record(10, value=None), Verdict.LOST),
    ],
)
def test_what_the_log_says_about_a_named_record(
    low: int, stable_end: int, found: LogRecord | None, verdict: Verdict
) -> None:
    assert judge(NAMED, low, stable_end, found) is verdict


def checkpoint(sequence: int, named: Named | None, epoch: int = 0) -> SourceCheckpoint:
    return SourceCheckpoint(
        partition_id="a/s",
        worker="w",
        sequence=sequence,
        source_epoch=epoch,
        written_at=1,
        named=named,
        plans={"interval": PlanState(definition_hash="h", width_us=sequence)},
    )


def test_the_newest_valid_one_is_chosen() -> None:
    history = [Candidate(n, n, Named(n * 10, "k")) for n in range(1, 5)]
    chosen = restore.newest_valid(history, lambda named: named.offset <= 20)
    assert chosen == history[1]
    assert restore.newest_valid(history, lambda named: False) is None
    unnamed = Candidate(0, 0, None)
    assert restore.newest_valid([unnamed, *history], lambda named: False) == unnamed


def test_a_fall_back_keeps_the_epoch_and_the_sequence() -> None:
    newest, older = checkpoint(9, Named(90, "k"), epoch=3), checkpoint(4, Named(40, "k"), epoch=2)
    state, head = restore.fallen_back(newest, older)
    assert state.plans == older.plans
    assert state.source_epoch == 3
    assert (head.sequence, head.named) == (9, Named(40, "k"))


def test_with_nothing_to_fall_back_to_it_begins_again_in_the_same_epoch() -> None:
    state, head = restore.fallen_back(checkpoint(9, Named(90, "k"), epoch=3), None)
    assert (state.plans, state.source_epoch) == ({}, 3)
    assert (head.sequence, head.named) == (9, None)


def test_what_is_written_behind_an_undecided_checkpoint_rises() -> None:
    heads = {"a/s": Head(sequence=4), "a/t": Head(sequence=9)}
    risen = restore.risen(heads, {"a/s": 6, "a/t": 8, "a/ghost": 1})
    assert {owner: head.sequence for owner, head in risen.items()} == {"a/s": 6, "a/t": 9}


def test_the_highest_named_record_is_looked_at_first() -> None:
    found = restore.highest([checkpoint(1, Named(7, "a")), checkpoint(2, None)])
    assert found == Named(7, "a")
    assert restore.highest([checkpoint(2, None)]) is None

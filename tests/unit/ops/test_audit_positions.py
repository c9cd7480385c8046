"""Planted faults of sequences, positions, coverage and generations: each must be found by its name."""

from __future__ import annotations

import msgspec
import pytest

from ops.audit.checkpoints import SequenceJudge
from ops.audit.coverage import Stretch, judge_coverage
from ops.audit.facts import Position
from ops.audit.findings import Findings
from ops.audit.positions import judge_positions
from ops.audit.sink import generation_stretches
from ops.facts.log import CheckpointRecord, Cleared
from schemas.log.reader import Bounds
from schemas.records import PlanState, SourceCheckpoint
from tests.unit.ops.audit_world import DAYS, OWNER, world


def _sequences(*numbers: int) -> Findings:
    findings = Findings()
    judge = SequenceJudge(1, findings)
    for at, number in enumerate(numbers):
        checkpoint = SourceCheckpoint(
            partition_id=OWNER, worker="w", sequence=number, written_at=1,
            plans={"interval": PlanState(definition_hash="h")},
        )  # fmt: skip
        judge.see(CheckpointRecord(0, at, checkpoint))
    return findings


def test_sequences_of_checkpoints_rise() -> None:
    assert _sequences(1, 2, 9).clean
    assert _sequences(1, 2, 2).counts == {"checkpoint_order": 1}
    assert _sequences(1, 3, 2).counts == {"checkpoint_order": 1}


def test_behind_a_tombstone_a_sequence_begins_again() -> None:
    findings = Findings()
    judge = SequenceJudge(1, findings)
    checkpoint = SourceCheckpoint(partition_id=OWNER, worker="w", sequence=4, written_at=1)
    judge.see(CheckpointRecord(0, 0, checkpoint))
    judge.see(Cleared(0, 1, OWNER))
    assert not judge.last, "a cleared checkpoint claims nothing"
    judge.see(CheckpointRecord(0, 2, msgspec.structs.replace(checkpoint, sequence=1)))
    assert findings.clean and judge.number == 2


def _position(next_offset: int, last: int | None = None, pipeline: str = "live") -> Position:
    return Position(pipeline, 0, 0, next_offset, last, None)


@pytest.mark.parametrize(
    ("positions", "mirrored", "kinds"),
    [
        ([_position(10, 9)], {0: 10}, {}),
        ([_position(10)], {}, {}),
        ([_position(11)], {}, {"applied_past_end": 1}),
        ([_position(3), _position(11, pipeline="replay:x:1")], {}, {"applied_past_end": 1}),
        ([Position("live", 7, 0, 1, None, None)], {}, {"applied_past_end": 1}),
        ([_position(5, 5)], {}, {"position_differs": 1}),
        ([_position(5)], {0: 6}, {"mirror_ahead": 1}),
        ([], {0: 1}, {"mirror_ahead": 1}),
    ],
)
def test_positions(
    positions: list[Position], mirrored: dict[int, int], kinds: dict[str, int]
) -> None:
    findings = Findings()
    judge_positions(positions, {0: Bounds(0, 10, 12)}, mirrored, findings)
    assert findings.counts == kinds


def test_the_last_record_of_a_position_is_another_one() -> None:
    found = world()
    found.positions = [Position("live", 0, 0, 22, 21, "something else")]
    assert found.kinds() == {"position_differs": 1}


def _stretch(start: int, end: int, owner: str = OWNER) -> Stretch:
    return Stretch(owner, "interval", DAYS[start], DAYS[end])


@pytest.mark.parametrize(
    ("marks", "coverage", "number"),
    [
        ([_stretch(0, 1), _stretch(1, 2)], [_stretch(0, 2)], 0),
        ([_stretch(0, 2), _stretch(1, 2)], [_stretch(0, 1), _stretch(1, 2)], 0),
        ([_stretch(0, 1)], [], 1),
        ([], [_stretch(0, 1)], 1),
        ([_stretch(0, 1)], [_stretch(0, 2)], 2),
        ([_stretch(0, 1), _stretch(2, 3)], [_stretch(0, 1)], 1),
        ([_stretch(0, 1, "a/b")], [_stretch(0, 1, "a/c")], 2),
    ],
)
def test_coverage(marks: list[Stretch], coverage: list[Stretch], number: int) -> None:
    findings = Findings()
    judge_coverage(marks, coverage, findings)
    assert findings.counts.total() == number
    assert set(findings.counts) <= {"coverage_differs"}


def test_findings_are_counted_beyond_what_is_kept() -> None:
    findings = Findings(keep_per_kind=2)
    for offset in range(5):
        findings.add("unaccounted", "x", offset=offset)
    assert (len(findings.kept), findings.counts["unaccounted"]) == (2, 5)
    assert not findings.clean
    with pytest.raises(KeyError):
        findings.add("no such kind", "x")


@pytest.mark.parametrize(
    ("known", "stretches"),
    [
        ([], [(0, 0, 1 << 62)]),
        ([(0, 0)], [(0, 0, 1 << 62)]),
        ([(0, 0), (1, 50)], [(0, 0, 50), (1, 50, 1 << 62)]),
        ([(0, 0), (1, 0)], [(1, 0, 1 << 62)]),
        ([(0, 0), (1, 50), (2, 30)], [(0, 0, 30), (2, 30, 1 << 62)]),
        ([(1, 20)], [(0, 0, 20), (1, 20, 1 << 62)]),
    ],
)
def test_generations_of_todays_log(
    known: list[tuple[int, int]], stretches: list[tuple[int, int, int]]
) -> None:
    assert generation_stretches(known) == stretches

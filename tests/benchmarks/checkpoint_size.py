"""How large a checkpoint can become: everything that the plans bound stands at its bound at once.

What gets there is a hostile provider and a worker that dies all the time: intervals that are bisected,
fail and begin again, the longest tokens and ids, pages of many parents, snapshots that are given up.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingest.committer import PERSIST_KEPT
from ingest.plans.interval_states import FAILED_MAX
from ingest.plans.parents import POSITION_MAX_BYTES
from ingest.plans.protocol import OPEN_MAX, PASS_RANGES_MAX, TOKEN_MAX_BYTES
from ingest.plans.ranges import scope_of, to_text
from ingest.plans.snapshot import PREVIOUS_MAX, PREVIOUS_PASSES_MAX
from schemas import codec
from schemas.records import (
    Blocked,
    Done,
    Failed,
    KeptSnapshot,
    Named,
    OpenInterval,
    PassRange,
    PlanState,
    SourceCheckpoint,
    Walk,
)
from tests.benchmarks.figures import Samples

_AT_US = 1_780_000_000_000_000
_MANY = 2**31 - 1
_REASON = "unsplittable: its token expires before its pages end"


def measure(samples: Samples) -> None:
    """The largest value, in 1,000 bytes."""
    largest = max(len(codec.encode(one)) for one in worst_checkpoints())
    samples.add("ingest.checkpoint_kb", largest / 1_000, "kB")


def worst_checkpoints() -> Iterator[SourceCheckpoint]:
    """Of an ordinary stream, and of one whose walks go over parents."""
    longest = "t" * TOKEN_MAX_BYTES
    yield _checkpoint(_walk(longest, longest))
    yield _checkpoint(_walk("p" * POSITION_MAX_BYTES, None))


def _checkpoint(walk: Walk) -> SourceCheckpoint:
    far = [_stretch(n) for n in range(FAILED_MAX + OPEN_MAX)]
    changes = PlanState(
        definition_hash="0123456789abcdef",
        complete_before=to_text(_AT_US),
        polled_at=_AT_US,
        open=[OpenInterval(start=a, end=b, reason=_REASON, walk=None) for a, b in far[:OPEN_MAX]],
        done=[Done(*stretch) for stretch in far],
        failed=[Failed(*stretch, _REASON) for stretch in far[:FAILED_MAX]],
        empty=Done(*far[0]),
        width_us=_AT_US,
    )
    changes.open[0] = OpenInterval(start=far[0][0], end=far[0][1], reason=_REASON, walk=walk)
    each = PREVIOUS_PASSES_MAX // PREVIOUS_MAX
    listings = PlanState(
        definition_hash="0123456789abcdef",
        snapshot_id=_snapshot(0),
        polled_at=_AT_US,
        walk=walk,
        previous=[
            KeptSnapshot(snapshot_id=_snapshot(n), passes=_passes(each), complete=False)
            for n in range(PREVIOUS_MAX)
        ],
        tombstone_due=[_snapshot(n) for n in range(PREVIOUS_MAX)],
    )
    return SourceCheckpoint(
        partition_id="a-source/a-collection/a-tenant-of-the-longest-kind",
        worker="a-worker-of-some-host-12345",
        sequence=_MANY,
        written_at=_AT_US,
        not_before=_AT_US,
        named=Named(_MANY, "k" * 300),
        blocked=Blocked("r" * 1_000, _AT_US, "u" * 300),
        persist_s=[0.5] * PERSIST_KEPT,
        plans={"interval": changes, "snapshot": listings},
    )


def _walk(token: str, last_id: str | None) -> Walk:
    return Walk(
        scope=scope_of(*_stretch(0)), page=_MANY, passes=_passes(PASS_RANGES_MAX), token=token,
        token_at=_AT_US, last_id=last_id, restarts=5, started_at=_AT_US,
    )  # fmt: skip


def _passes(count: int) -> list[PassRange]:
    return [
        PassRange(
            pass_=f"{n:012x}", first=1, last=_MANY, parts=_MANY, records=2**40, parts_max=_MANY
        )
        for n in range(count)
    ]


def _stretch(number: int) -> tuple[str, str]:
    start = _AT_US + number * 2_000_000
    return to_text(start), to_text(start + 1_000_000)


def _snapshot(number: int) -> str:
    return f"2026-06-01T00:00:{number:02d}Z.0123456789ab"

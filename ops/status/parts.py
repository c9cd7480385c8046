"""Single parts of the status: rows and states as the values of the model. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ingest.headway import Progress
from ops.facts.sink import Row
from ops.status.expected import ExpectedStream
from ops.status.model import (
    CoverageStatus,
    OpenExceptions,
    PlanStatus,
    SnapshotStatus,
    SourceStatus,
    Stretch,
)
from schemas.records import PassRange, PlanState, SourceCheckpoint, Walk


def plan_status(
    name: str, state: PlanState, now_us: int, progress: Progress | None = None
) -> PlanStatus:
    behind = None
    if state.complete_before is not None:
        behind = now_us - micros(state.complete_before)
    elif state.polled_at is not None:
        behind = now_us - state.polled_at
    pages, records = _walked(state.walk)
    return PlanStatus(
        plan=name,
        lag_s=None if behind is None else max(0.0, behind / 1e6),
        complete_before=state.complete_before,
        cursor=state.cursor,
        cursor_age_s=_age_s(state.cursor_issued_at, now_us),
        polled_at=state.polled_at,
        snapshot_id=state.snapshot_id,
        walk_pages=pages,
        walk_records=records,
        open=tuple(Stretch(o.start, o.end, *_walked(o.walk)) for o in state.open),
        done=tuple(Stretch(d.start, d.end) for d in state.done),
        failed=tuple(Stretch(f.start, f.end, reason=f.reason) for f in state.failed),
        progress=progress,
    )


def _age_s(since_us: int | None, now_us: int) -> float | None:
    return None if since_us is None else max(0.0, (now_us - since_us) / 1e6)


def _walked(walk: Walk | None) -> tuple[int, int]:
    passes: Sequence[PassRange] = walk.passes if walk else ()
    return sum(p.last - p.first + 1 for p in passes), sum(p.records for p in passes)


def ingest_lag_s(plans: Sequence[PlanStatus]) -> float | None:
    """Of the changes, else of the snapshot."""
    changes = [p.lag_s for p in plans if p.plan != "snapshot" and p.lag_s is not None]
    snapshots = [p.lag_s for p in plans if p.plan == "snapshot" and p.lag_s is not None]
    found = changes or snapshots
    return max(found) if found else None


def next_snapshot_at(plans: Sequence[PlanStatus], declared: ExpectedStream | None) -> int | None:
    if declared is None or declared.snapshot_every_s is None:
        return None
    polled = [p.polled_at for p in plans if p.plan == "snapshot" and p.polled_at is not None]
    return max(polled) + int(declared.snapshot_every_s * 1e6) if polled else None


def source_status(checkpoint: SourceCheckpoint, plans: tuple[PlanStatus, ...]) -> SourceStatus:
    return SourceStatus(
        sequence=checkpoint.sequence,
        worker=checkpoint.worker,
        written_at=checkpoint.written_at,
        source_epoch=checkpoint.source_epoch,
        not_before=checkpoint.not_before,
        plans=plans,
    )


def coverage_status(row: Row) -> CoverageStatus:
    return CoverageStatus(
        plan=row["plan"],
        start_at=us(row["start_at"]),
        end_at=us(row["end_at"]),
        pages=int(row["pages"]),
        records=int(row["records"]),
        failed=int(row["failed"]),
        gaps=int(row["gaps"]),
        errors=int(row["errors"]),
    )


def snapshot_status(row: Row) -> SnapshotStatus:
    return SnapshotStatus(
        snapshot=row["snapshot"],
        mapping=row["mapping"],
        state=row["state"],
        listed=int(row["listed"]),
        swept=int(row["swept"]),
        unreadable=int(row["unreadable"]),
        note=row["note"],
        at=us(row["at"]),
    )


def by_owner(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["partition_id"] is not None:
            found.setdefault(row["partition_id"], []).append(row)
    return found


def count(rows: Iterable[Row], state: str) -> int:
    return sum(int(row["count"]) for row in rows if row["state"] == state)


def open_exceptions(rows: Iterable[Row]) -> tuple[OpenExceptions, ...]:
    """By mapping, state and reason, over all partition ids."""
    found: dict[tuple[str, str, str], OpenExceptions] = {}
    for row in rows:
        of = (row["mapping"] or "none", row["state"], row["reason"])
        one = OpenExceptions(*of, int(row["count"]), us(row["since"]))
        known = found.get(of)
        if known is not None:
            since = min(one.since, known.since)
            one = replace(one, records=one.records + known.records, since=since)
        found[of] = one
    return tuple(found[of] for of in sorted(found))


def us(moment: Any) -> int:
    assert isinstance(moment, datetime)
    return round(moment.timestamp() * 1e6)


def micros(text: str) -> int:
    """The bound of an interval as microseconds since the epoch."""
    moment = datetime.fromisoformat(text)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)

"""The status as text for a terminal: one block per partition id, then what is blocked. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.headway import Progress
from ops.status.model import Horizons, PartitionStatus, PlanStatus, SnapshotStatus, Status, Trouble
from ops.status.parts import micros
from ops.status.words import copies, duration, moment, number, sightings
from schemas.records import BY_TIME

_NO_SINK = "Postgres cannot be asked: what follows is what the log knows. Ingest does not need it."
_BLOCKS_MAX = 12
"""With more partition ids than this, one that flows gets a single line."""


def to_text(status: Status) -> str:
    """All of it, ready to print."""
    return "\n".join(_lines(status))


def _lines(status: Status) -> Iterator[str]:
    yield from _unasked(status)
    if not status.partition_ids:
        yield "Nothing was read yet, and no definition says what to read."
    brief = len(status.partition_ids) > _BLOCKS_MAX
    width = max([17, *(len(one.partition_id) for one in status.partition_ids)])
    for one in status.partition_ids:
        yield _head(one, width)
        if not brief or one.state != "flowing":
            yield from _block(one, status.read_at)
    if status.unsent_events:
        waited = _oldest(status.unsent_since, status.read_at)
        yield f"Events             {number(status.unsent_events)} to publish{waited}"
    if status.unsent_copies:
        waited = _oldest(status.unsent_copies_since, status.read_at)
        yield (
            f"Copies             {copies(status.unsent_copies)} to publish{waited}; gapless relay does"
        )
    if status.unrelayed_copies:
        yield (
            f"Copies             {copies(status.unrelayed_copies)}, which nobody has to publish: "
            "gapless relay does;"
        )
        yield "                   without a reader of them set GAPLESS_QUARANTINE_COPIES=false for apply"
    for trouble in status.troubles:
        yield from _trouble(trouble, status.read_at)


def _unasked(status: Status) -> Iterator[str]:
    """Why one side or the other tells nothing."""
    for why, missing, said in (
        (
            status.kafka,
            status.topics_missing,
            "Kafka cannot be asked: what follows is what Postgres knows.",
        ),
        (status.postgres, status.tables_missing, _NO_SINK),
    ):
        if why is None:
            continue
        if not missing:
            yield said
        first, *more = why.splitlines() or [""]
        yield first if missing else f"  {first}"
        yield from (f"  {line}" for line in more)


def _oldest(since: int | None, now: int) -> str:
    return "" if since is None else f", the oldest for {duration((now - since) / 1e6)}"


def _head(one: PartitionStatus, width: int) -> str:
    return f"{one.partition_id:<{width}} {one.state:<12} lag {duration(one.lag_s)}"


def _block(one: PartitionStatus, now: int) -> Iterator[str]:
    plans = one.source.plans if one.source else ()
    for plan in plans:
        if plan.plan != "snapshot":
            yield _row("source checkpoint", _plan(plan, now))
    if one.source is None:
        yield _row("source checkpoint", "none yet")
    for run in one.runs:
        due = "" if run.due_at is None else f", due {moment(run.due_at, now)}"
        span = f"{moment(run.start_at, now)} .. {moment(run.end_at, now)}"
        yield _row("run", f"{span:<36} {run.state}{due if run.state != 'searched' else ''}")
    if one.stages:
        yield _row("stages of a run", ", ".join(one.stages))
    for plan in plans:
        if plan.progress is not None and plan.progress.long:
            yield _row("progress", f"{plan.plan}: {progress_text(plan.progress)}")
    yield _row("applied offset", applied_text(one))
    waits = (one.quarantined or 0) + (one.retryable or 0)
    opened = f"{number(waits)} record{'' if waits == 1 else 's'} in quarantine now"
    for covered in one.coverage:
        holes = f"{covered.gaps} gaps" if covered.gaps else "no gap"
        failed = f"{covered.failed} failed" if covered.failed else "none failed"
        errors = (
            f"; {sightings(covered.errors)} had errors when read, {opened}"
            if covered.errors
            else ""
        )
        span = f"{moment(covered.start_at, now)} .. {moment(covered.end_at, now)}"
        yield _row("coverage", f"{span:<26} {holes}, {failed}{errors}")
    yield from _snapshots(one, now)
    if one.outcomes is not None:
        shown = [
            f"{name} {number(count)}"
            for name, count in one.outcomes.items()
            if count or name in ("applied", "superseded", "ignored", "quarantined")
        ]
        yield _row("outcomes, 24 h", "  ".join(shown))
        yield _row("", "of sightings: a record that is read again counts again, changed or not")
    elif one.applied.end is not None:
        yield _row("unknown", "coverage, snapshots, outcomes and exceptions: Postgres has them")
    yield _row("horizons", _horizons(one.horizons))


def applied_text(one: PartitionStatus) -> str:
    """Where apply stands; without Postgres what Kafka's mirror proves, and what it does not."""
    applied = one.applied
    place = f"in partition {one.partition}"
    if applied.next_offset_to_apply is None and applied.mirrored is not None:
        at_least = f"unknown, at least {number(applied.mirrored)} of {number(applied.end)} {place}"
        behind_s = applied.lag_at_most_s
        return f"{at_least}, {duration(behind_s)} behind at most" if behind_s else at_least
    where = f"{number(applied.next_offset_to_apply)} of {number(applied.end)}"
    lag = f", {duration(applied.lag_s)} behind" if applied.lag_s else ""
    nobody = "   no worker holds it" if applied.owner is None and applied.records_behind else ""
    return f"{where} {place}{lag}{nobody}"


def progress_text(one: Progress) -> str:
    """How a long poll gets on: of a listing only what is known, which is no share of it."""
    so_far = (
        f"{number(one.pages)} pages, {number(one.records)} records in {duration(one.elapsed_s)}"
    )
    rate = "rate unknown"
    if one.pages_per_s is not None and one.records_per_s is not None:
        rate = f"{one.pages_per_s:,.1f} pages/s, {one.records_per_s:,.0f} records/s"
    if one.share is None:
        return f"{so_far}   {rate}"
    share = f"{one.share:.0%} of the range, {duration(one.left_s)} left"
    if one.left_s is None:
        share = f"{one.share:.0%} of the range, time left unknown"
    return f"{share}   {rate}   {so_far}"


def _plan(plan: PlanStatus, now: int) -> str:
    opened = f"{len(plan.open)} intervals open"
    if plan.plan in BY_TIME:
        if plan.complete_before is None:
            return opened
        at = moment(micros(plan.complete_before), now)
        failed = f", {len(plan.failed)} failed" if plan.failed else ""
        return f"complete through {at}, {duration(plan.lag_s)} behind   {opened}{failed}"
    kept = "cursor" if plan.plan == "cursor" else "state"
    if plan.polled_at is None:
        return f"{kept} not complete yet, {plan.walk_pages} pages so far"
    walk = f"   {plan.walk_pages} pages of the next walk" if plan.walk_pages else ""
    return f"{kept} of {moment(plan.polled_at, now)}, {duration(plan.lag_s)} behind{walk}"


def _snapshots(one: PartitionStatus, now: int) -> Iterator[str]:
    left = ""
    if one.next_snapshot_at is not None:
        left_s = (one.next_snapshot_at - now) / 1e6
        left = f"next in {duration(left_s)}" if left_s > 0 else "next is due"
    walking = [p for p in one.source.plans if p.plan == "snapshot"] if one.source else []
    for plan in walking:
        if plan.walk_pages:
            so_far = f"{number(plan.walk_pages)} pages, {number(plan.walk_records)} records so far"
            yield _row("snapshot", f"being read: {so_far}")
    for snapshot in one.snapshots:
        said = f"{moment(snapshot.at, now)} {_became(snapshot)}"
        of = f" of {snapshot.mapping}" if snapshot.mapping and len(one.snapshots) > 1 else ""
        yield _row("snapshot", f"{said + of:<41} {left}".rstrip())


def _became(snapshot: SnapshotStatus) -> str:
    """What became of a listing; `kept` alone would not say of what, and why."""
    if snapshot.state != "kept":
        return f"{snapshot.state}, {number(snapshot.swept)} deleted"
    if snapshot.note is None:
        return "complete, absence deletes nothing"
    return f"complete, nothing deleted yet: {snapshot.note}"


def _horizons(found: Horizons) -> str:
    upstream = duration(found.upstream_s) if found.upstream_s is not None else "not declared"
    topic = "unknown"
    if found.topic_known:
        topic = duration(found.topic_s) if found.topic_s is not None else "forever"
    token = duration(found.token_s) if found.token_s is not None else "unknown"
    used = f"   {found.share_used:.0%} used" if found.share_used is not None else ""
    return f"upstream {upstream:<16} topic {topic:<9} token {token}{used}"


def _trouble(trouble: Trouble, now: int) -> Iterator[str]:
    since = f"     since {moment(trouble.since, now)}" if trouble.since is not None else ""
    owner = f"{trouble.partition_id}   " if trouble.partition_id else ""
    yield f"Blocked: {owner}{trouble.kind}   {trouble.what}{since}"
    yield _row("unblocks", trouble.unblocks)
    if trouble.look is not None:
        yield _row("look", trouble.look)


def _row(name: str, text: str) -> str:
    return f"  {name:<18} {text}"

"""Everything that waits for somebody, with what unblocks it. Pure.

What heals by itself is listed too, and says when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ops.facts.deployment import LogFacts
from ops.facts.sink import Row, SinkFacts
from ops.status.expected import Expected
from ops.status.model import PartitionStatus, Trouble
from ops.status.parts import us
from ops.status.paused import paused
from ops.status.words import copies, duration
from schemas.settings import Settings

_REFUSED_BY_THE_DATABASE = (
    "foreign_key", "unique", "check", "refused_by_sink", "timed_out", "foreign_owner",
)  # fmt: skip
_NOT_STORED = ("oversized", "unsplittable")
_EVENTS_LATE_S = 300.0


def troubles(
    settings: Settings,
    now_us: int,
    partition_ids: Sequence[PartitionStatus],
    log: LogFacts | None,
    sink: SinkFacts | None,
    expected: Expected,
) -> Iterator[Trouble]:
    """What is blocked: first what stops a partition id, then what stops records."""
    for source, why in sorted(expected.unlisted.items()):
        yield Trouble(
            "tenants",
            None,
            f"the tenants of {source} cannot be read: {why}",
            None,
            "correct the list; meanwhile those that were known before are polled",
        )
    for one in partition_ids:
        if log is not None and not expected.left(one.partition_id):
            yield from _of_ingest(one, log, now_us)
        yield from _of_horizon(one, settings.warn_share)
        yield from _of_runs(one)
    if log is not None:
        yield from _open_transactions(settings, log, now_us)
    if sink is not None:
        yield from _halted(sink)
        for row in sink.exceptions:
            yield _exceptions(row, expected)
        yield from _held(sink)
        yield from _gaps(sink)
        yield from _overdue_marks(sink, now_us, settings.mark_deadline_s)
        yield from _dead_events(sink)
        yield from _stalled_events(sink, now_us)


def _of_ingest(one: PartitionStatus, log: LogFacts, now_us: int) -> Iterator[Trouble]:
    name = one.partition_id
    decision = paused(log.controls, name)
    if decision is not None:
        yield Trouble(
            "paused",
            name,
            f"paused by {decision.by}: {decision.note or 'no reason given'}",
            decision.at,
            f"gapless control resume {decision.about}",
        )
    record = log.checkpoints.get(name)
    if record is None:
        return
    checkpoint = record.checkpoint
    if checkpoint.blocked is not None and decision is None:
        blocked = checkpoint.blocked
        yield Trouble("blocked", name, blocked.reason, blocked.since, blocked.unblocked_by)
    if checkpoint.not_before is not None and checkpoint.not_before > now_us:
        left_s = (checkpoint.not_before - now_us) // 1_000_000
        yield Trouble(
            "waiting",
            name,
            f"the provider is not asked for another {duration(left_s)}",
            checkpoint.written_at,
            "nothing to do: it goes on by itself; to ask all the same: "
            f"gapless control resume {name}",
        )
    for plan, state in checkpoint.plans.items():
        for failed in state.failed:
            yield Trouble(
                "failed interval",
                name,
                f"{failed.start} to {failed.end}: {failed.reason}",
                checkpoint.written_at,
                "the cause, or accept what is missing: gapless control accept-failed "
                f"{name} --plan {plan} --start {failed.start} --end {failed.end}",
                f"gapless coverage {name}",
            )


def _of_horizon(one: PartitionStatus, warn_share: float) -> Iterator[Trouble]:
    share, left_s = one.horizons.share_used, one.horizons.time_left_s
    if share is not None and left_s is not None and share >= warn_share:
        what = (
            f"{share:.0%} of a retention is used, {left_s / 3600:.1f} h left"
            if left_s > 0
            else "a retention was exceeded: what is older is lost"
        )
        yield Trouble("horizon", one.partition_id, what, None, "let it catch up; see its lag")


def _of_runs(one: PartitionStatus) -> Iterator[Trouble]:
    for run in one.runs:
        if run.state == "overdue":
            yield Trouble(
                "overdue run",
                one.partition_id,
                f"{run.run_id} was to be searched by its deadline, and is not",
                run.due_at,
                "ingest reading on: see what blocks it, or how far it is behind",
                "the runbook overdue-run",
            )


def _open_transactions(settings: Settings, log: LogFacts, now_us: int) -> Iterator[Trouble]:
    limit_ms = 2 * settings.transaction_timeout_ms
    for number, since_ms in sorted(log.open_since_ms.items()):
        if now_us // 1000 - since_ms > limit_ms:
            yield Trouble(
                "open transaction",
                None,
                f"readers of partition {number} wait for a transaction that does not end",
                since_ms * 1000,
                f"kafka-transactions.sh find-hanging --topic {settings.observations}",
                "the runbook hanging-transaction",
            )


def _halted(sink: SinkFacts) -> Iterator[Trouble]:
    for row in sink.positions:
        halted = row["halted"]
        if halted is not None:
            yield Trouble(
                "halted",
                None,
                f"{row['pipeline']} stops at partition {row['partition']}: "
                f"{halted.get('cause')}, {halted.get('detail')}",
                us(row["checkpointed_at"]),
                str(halted.get("unblocked_by")),
            )


def _exceptions(row: Row, expected: Expected) -> Trouble:
    mapping, number = row["mapping"], int(row["count"])
    if row["state"] == "retryable":
        due = f", next try at {row['due_at']:%H:%M:%S}" if row["due_at"] else ""
        unblocks = f"what they wait for; tried again by itself{due}"
    else:
        unblocks = (
            f"{_cure(row['reason'], mapping, expected)}; or gapless quarantine dismiss. A newer state "
            "of the record that is applied heals it by itself"
        )
    return Trouble(
        row["state"],
        row["partition_id"],
        f"{number} record{'s' if number != 1 else ''}: {_details(row)}",
        us(row["since"]),
        unblocks,
        f"gapless quarantine list {mapping or ''}".strip(),
    )


def _details(row: Row) -> str:
    """What is wrong, or of several things one."""
    several = int(row["details"]) > 1
    return f"{row['reason']}, such as {row['detail']}" if several else str(row["detail"])


def _cure(reason: str, mapping: str | None, expected: Expected) -> str:
    """What lets a quarantined record land. A new version of a mapping tries them by itself."""
    if reason in _REFUSED_BY_THE_DATABASE:
        return f"correct what the database refuses, then gapless quarantine retry {mapping}"
    if reason in _NOT_STORED:
        return "nothing brings the bytes: make the provider send smaller records"
    file = expected.mapping_files.get(mapping or "")
    return f"change {file} and raise its version" if file else "change the mapping"


def _held(sink: SinkFacts) -> Iterator[Trouble]:
    for row in sink.snapshots:
        if row["state"] == "held":
            yield Trouble(
                "held sweep",
                row["partition_id"],
                f"snapshot {row['snapshot']} would delete too many rows of {row['mapping']}: "
                f"{row['note'] or 'an operator has to look'}",
                us(row["at"]),
                f"gapless release-sweep {row['partition_id']} {row['snapshot']}",
            )


def _gaps(sink: SinkFacts) -> Iterator[Trouble]:
    halted = {
        row["partition"] for row in sink.positions if row["halted"] and row["pipeline"] == "live"
    }
    for row in sink.gaps:
        if row["partition_id"] is None and row["partition"] in halted:
            continue  # the halted partition says it
        where = row["partition_id"] or f"partition {row['partition']}"
        yield Trouble(
            "gap",
            row["partition_id"],
            f"{where}: {row['from_text'] or '?'} to {row['to_text'] or '?'} is missing: "
            f"{row['cause']}",
            us(row["found_at"]),
            f"nothing brings it back; accept it: gapless accept-gap {row['id']}",
        )


def _overdue_marks(sink: SinkFacts, now_us: int, deadline_s: float) -> Iterator[Trouble]:
    for row in sink.pending_marks:
        if now_us - us(row["applied_at"]) > deadline_s * 1e6:
            yield Trouble(
                "pending mark",
                row["partition_id"],
                f"{row['kind']} of {row['scope']} names pages that were never applied: "
                "a suspected gap",
                us(row["applied_at"]),
                "find out with gapless audit",
            )


def _dead_events(sink: SinkFacts) -> Iterator[Trouble]:
    for row in sink.outbox:
        if row["state"] == "dead":
            yield Trouble(
                "dead events",
                None,
                f"{row['count']} events could not be published; newer ones of their keys wait",
                us(row["since"]),
                "gapless events retry or gapless events skip, by its number or the mapping",
                "gapless events list",
            )


def _stalled_events(sink: SinkFacts, now_us: int) -> Iterator[Trouble]:
    """Those behind a dead event are old for its reason, which is told already."""
    states = {row["state"]: row for row in sink.outbox}
    for name in ("unsent", "copies"):
        row = states.get(name)
        if row is None or "dead" in states or now_us - us(row["since"]) <= _EVENTS_LATE_S * 1e6:
            continue
        count, unblocks = int(row["count"]), "what its text says, or start gapless relay"
        if name == "copies":
            said = copies(count)
            unblocks += ", or GAPLESS_QUARANTINE_COPIES=false for apply where nobody reads them"
        else:
            said = f"{count} event{'' if count == 1 else 's'}"
        yield Trouble(
            "copies wait" if name == "copies" else "events wait",
            None,
            f"{said} {'is' if count == 1 else 'are'} not published: "
            f"{row['error'] or 'no relay has tried'}",
            us(row["since"]),
            f"{unblocks}; it goes on by itself",
            "gapless events list",
        )

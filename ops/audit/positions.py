"""Do applied offsets, their mirror in Kafka and the ends of the log fit together? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ops.audit.facts import Position
from ops.audit.findings import Findings
from ops.audit.index import LogIndex
from schemas.log.reader import Bounds

LIVE = "live"


def judge_positions(
    positions: Sequence[Position],
    ends: Mapping[int, Bounds],
    mirrored: Mapping[int, int],
    findings: Findings,
) -> None:
    """`mirrored` was read before the positions, and the ends after them: none may be ahead."""
    live = {p.partition: p for p in positions if p.pipeline == LIVE}
    for position in positions:
        found = ends.get(position.partition)
        if found is None:
            findings.add(
                "applied_past_end",
                f"{position.pipeline} has a position in a partition that the topic does not have",
                partition=position.partition,
            )
        elif position.next_offset > found.stable_end:
            findings.add(
                "applied_past_end",
                f"{position.pipeline} stands at {position.next_offset},"
                f" the log ends at {found.stable_end}",
                partition=position.partition,
                offset=position.next_offset,
            )
        if position.last_offset is not None and position.last_offset >= position.next_offset:
            findings.add(
                "position_differs",
                f"{position.pipeline} remembers {position.last_offset},"
                f" but would apply {position.next_offset} next",
                partition=position.partition,
                offset=position.last_offset,
            )
    for partition, offset in sorted(mirrored.items()):
        applied = live[partition].next_offset if partition in live else 0
        if offset > applied:
            findings.add(
                "mirror_ahead",
                f"Kafka says {offset}, Postgres {applied}",
                partition=partition,
                offset=offset,
            )


def judge_last_record(
    position: Position, low: int, keys: Mapping[int, str], index: LogIndex, findings: Findings
) -> None:
    """The record that the position remembers stands there, unless compaction may have taken it."""
    offset, key = position.last_offset, position.last_key
    if offset is None or key is None or offset < low:
        return
    there = keys.get(offset)
    if there is not None and there != key:
        findings.add(
            "position_differs",
            f"{position.pipeline} applied {key}, there stands {there}",
            partition=position.partition,
            offset=offset,
        )

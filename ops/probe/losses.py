"""What a difference between the definition and the server loses. Pure; times in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

from ingest.plans.window import asked
from ops.probe.servers import Server
from schemas.definitions.source import Bounds


def edge_is_missed(
    server: Server, bounds: Bounds, unit: int, *, by_start: bool, by_end: bool
) -> bool:
    """Whether a record between two adjacent windows can be in neither, as they would be asked.

    `unit`: the step by which ends are widened. Where an end is not sent, the walk itself reaches
    over the edge.
    """
    if not (by_start and by_end) or server.start_closed or server.end_closed:
        return False
    start, end = asked((0, 0), bounds, unit)
    return end - start < server.step


def any_edge_is_missed(
    servers: Sequence[Server], bounds: Bounds, unit: int, *, by_start: bool, by_end: bool
) -> bool:
    """Whether it may be missed, as far as is known of the server."""
    return any(
        edge_is_missed(server, bounds, unit, by_start=by_start, by_end=by_end) for server in servers
    )


def late_rows_are_lost(lag: int, settle: int | None, lookback: int | None) -> bool:
    """Whether rows that show `lag` after their stamp are behind every later window."""
    return lag > (settle or 0) + (lookback or 0)

"""Drops what stands beside the live table, in one transaction, and all that was noted for its sake."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
from psycopg.types.json import Jsonb

from apply.exceptions import Said
from apply.faults import sink_fault
from apply.known_versions import Version, aside_of, live_of, versions_of
from apply.queries import load
from apply.replay import end_exceptions
from apply.replay_behind import pipeline_of as in_place_of
from apply.replay_report import ReplayRefused
from apply.shadow import alone
from apply.shadow_tables import drop, tables_of
from apply.shadow_versions import pipeline_of
from apply.sink import Connection, connect
from schemas.settings import Settings

_SQL = load("shadow")


def drop_beside(settings: Settings, mapping: str) -> str:
    """Drop what stands beside: a table that was not swapped in, or the one that was replaced.

    Returns what was dropped, for a person. Raises ReplayRefused, SinkFault.
    """
    try:
        with connect(settings.postgres, "replay-beside") as connection:
            alone(connection, mapping)  # first: a swap decides which one stands beside
            return _drop(settings, connection, mapping)
    except psycopg.Error as error:
        raise sink_fault(error) from error


def _drop(settings: Settings, connection: Connection, mapping: str) -> str:
    versions = versions_of(connection, mapping)
    aside, live = aside_of(versions), live_of(versions)
    if aside is None or live is None:
        raise ReplayRefused(f"no table of {mapping} stands beside the live one")
    asked = {"version": aside.id}
    with connection.transaction():
        drop(connection, tables_of(connection, [aside.id]))
        pipelines = [pipeline_of(mapping, aside.version)]
        connection.execute(_SQL["forget_positions"], {"pipelines": pipelines})
        connection.execute(_SQL["forget_snapshots"], asked)
        if aside.state == "kept":
            _give_up(connection, mapping, aside, live)
        else:
            for name in ("forget_exceptions", "forget_ledger", "forget_version"):
                connection.execute(_SQL[name], asked)
        about = Jsonb({"mapping": mapping, "version": aside.version, "was": aside.state})
        by = settings.worker
        connection.execute(_SQL["action"], {"by": by, "action": "drop_beside", "about": about})
    if aside.state == "kept":
        return (
            f"the table of {mapping} version {aside.version}, which was replaced: no way back, and its "
            "number is not free again"
        )
    return f"the unfinished table of {mapping} version {aside.version}; its number is free again"


def _give_up(connection: Connection, mapping: str, aside: Version, live: Version) -> None:
    """A version that was live stays known, with what it made of each record, and is never live again.

    Open exceptions of what the live version has applied would be nobody's to solve, and where this one
    stood would say that it has taken over.
    """
    name = in_place_of(mapping, aside.version)
    asked = {
        "version": aside.id, "live": live.id, "name": name, "newer": aside.version > live.version,
    }  # fmt: skip
    note = f"the table of version {aside.version} was dropped, version {live.version} is live"
    said = Said(datetime.now(UTC), "replay", note)
    while found := connection.execute(_SQL["unspoken"], asked).fetchall():
        end_exceptions(connection, found, said)
    connection.execute(_SQL["forget_replays"], asked)
    connection.execute(_SQL["retire"], asked)

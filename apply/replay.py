"""Re-consumes the log for one mapping, beside live apply: in place, or only to tell what would change.

In place: the same guard, with the new version last in its order. Has position rows of its own, so
it resumes after any crash; fires no event, moves no mark. Ends where live stood when it began, or
further on if an older version has applied pages behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg

from apply.changes import Change
from apply.decisions import heal_coverage, hurt_coverage
from apply.decode import Decoder
from apply.dry_run import DryRun, KnownNumbers
from apply.exception_states import Event
from apply.exceptions import Said, move
from apply.faults import NotPrepared, sink_fault
from apply.functions.outside import Surroundings
from apply.functions.process import FunctionUnavailable
from apply.known_versions import live_of, objection, versions_of
from apply.log_bounds import LogBounds
from apply.mapping.compile import compile_mapping
from apply.mapping.outside import Outside
from apply.mapping.types import CompiledMapping
from apply.pace import Throttle
from apply.pacing import Pacing, Tell
from apply.pass_over import Stretch, reading
from apply.queries import load
from apply.replay_behind import EVERYTHING, Behind, joined, pipeline_of
from apply.replay_diff import by_hash, left_behind, read_up_to
from apply.replay_pass import ReplayPass, stretch
from apply.replay_report import Diff, ReplayRefused, ReplayReport
from apply.same_record import Where
from apply.scope import Scope
from apply.sink import Connection, connect
from apply.versions import by_stream, registered
from schemas import failpoints
from schemas.definitions.load import Definitions
from schemas.definitions.mapping import MappingSpec
from schemas.definitions.secrets import SecretUnavailable
from schemas.failpoints import Hit
from schemas.routing import route
from schemas.settings import Settings

_SQL = load("replay")
LAG_MAX_S = 10.0
_TENANTS_SHOWN = 20
_UNREGISTERED = 2**31 - 1


def run_replay(
    settings: Settings,
    definitions: Definitions,
    mapping: str,
    *,
    scope: Scope = EVERYTHING,
    progress: Tell = lambda _: None,
    hit: Hit = failpoints.none,
    pause_s: float = 0.0,
    lag_max_s: float = LAG_MAX_S,
) -> ReplayReport:
    """Replay one mapping in place to its end; call it again after a crash, and it goes on.

    `pause_s`: a rest in seconds after every batch; it becomes longer while live lags more than
    `lag_max_s`. Raises NotPrepared, ReplayRefused, SinkFault, apply.pass_over.PassFailed,
    schemas.log.reader.LogUnavailable.
    """
    spec = spec_of(definitions, mapping)
    report = ReplayReport(spec.name, spec.version, dry_run=False, scope=scope.text())
    only = scope.partition_id(spec.source, spec.stream)
    pipeline = pipeline_of(spec.name, spec.version, scope)
    pacing = Pacing(settings, progress, Throttle(lag_max_s, pause_s))
    with closing(Surroundings(definitions.folder)) as outside:
        try:
            with connect(settings.postgres, "replay") as connection:
                compiled = registered(connection, [spec], outside)[0]
                with connection.transaction():
                    stretches = _planned(settings, connection, compiled, scope, report)
            passes = ReplayPass(
                settings, compiled, report, pacing, pipeline=pipeline, hit=hit, only=only
            )
            try:
                passes.claim(one.partition for one in stretches)
                passes.go(stretches, "replay")
                behind = Behind(settings, passes, compiled, scope)
                while further := behind.what_is_left(stretches):
                    passes.go(further, "replay")
                    stretches = joined(stretches, further)
                replace_exceptions(passes, compiled, report)
                passes.store.release(list(passes.store.positions))
            finally:
                passes.close()
            if scope.since is None and scope.start is None:
                with connect(settings.postgres, "replay") as connection:
                    by_hash(connection)
                    read_up_to(connection, {one.partition: one.end for one in stretches})
                    report.diff = Diff()
                    left_behind(connection, compiled, report.diff, only)
        except psycopg.Error as error:
            raise sink_fault(error) from error
        finally:
            pacing.close()
    return report


def run_dry(
    settings: Settings,
    definitions: Definitions,
    mapping: str,
    *,
    scope: Scope = EVERYTHING,
    progress: Tell = lambda _: None,
    hit: Hit = failpoints.none,
    pause_s: float = 0.0,
    lag_max_s: float = LAG_MAX_S,
) -> ReplayReport:
    """What replaying one mapping would change; its version need not be registered.

    Needs to read, and to make temporary tables; leaves nothing. Raises as `run_replay` does.
    """
    spec = spec_of(definitions, mapping)
    report = ReplayReport(spec.name, spec.version, dry_run=True, scope=scope.text())
    pacing = Pacing(settings, progress, Throttle(lag_max_s, pause_s))
    with closing(Surroundings(definitions.folder)) as outside:
        try:
            with connect(settings.postgres, "replay-dry-run") as connection:
                compiled, live_version = _as_it_would_be(connection, spec, outside, report)
                stretches = _whole(settings, connection, spec, scope)
                rehearsal = DryRun(connection, compiled, report, live_version=live_version)
                only = scope.partition_id(spec.source, spec.stream)
                numbers = KnownNumbers(connection)
                decoder = Decoder(by_stream([compiled]), numbers.number, unmapped=False, only=only)
                total = sum(one.end - one.start for one in stretches)
                with reading(settings, decoder, stretches, hit=hit) as batches:
                    for batch in batches():
                        rehearsal.take(batch)
                        report.offsets += sum(part.end - part.start for part in batch.parts)
                        report.pages += sum(len(part.pages) for part in batch.parts)
                        pacing.batch_done(report, total, "dry run")
                read_up_to(connection, {one.partition: one.end for one in stretches})
                report.diff = rehearsal.compare(scope)
        except psycopg.Error as error:
            raise sink_fault(error) from error
        finally:
            pacing.close()
    return report


def spec_of(definitions: Definitions, mapping: str) -> MappingSpec:
    """The mapping of that name. Raises NotPrepared, naming those there are."""
    spec = definitions.mappings.get(mapping)
    if spec is None:
        known = ", ".join(sorted(definitions.mappings)) or "none"
        raise NotPrepared(f"there is no mapping {mapping!r}; known: {known}")
    return spec


def _as_it_would_be(
    connection: Connection, spec: MappingSpec, outside: Outside, report: ReplayReport
) -> tuple[CompiledMapping, int]:
    """The mapping, compiled under its number or one behind all others; and the live version's number.

    What stands against its version is noted: it is shown, and what would change is told all the same.
    """
    versions = versions_of(connection, spec.name)
    number = _UNREGISTERED
    for one in versions:
        if (one.version, one.hash) == (spec.version, spec.hash):
            number = one.id
    against = objection(spec, versions)
    report.against = None if against is None else str(against)
    live = live_of(versions)
    try:
        return compile_mapping(spec, number, outside), 0 if live is None else live.id
    except (ValueError, SecretUnavailable, FunctionUnavailable) as error:
        raise NotPrepared(f"mapping {spec.name}: {error}") from error


def _planned(
    settings: Settings,
    connection: Connection,
    compiled: CompiledMapping,
    scope: Scope,
    report: ReplayReport,
) -> list[Stretch]:
    """What is to be read: the rest of a replay that was interrupted, else the scope, noted as begun."""
    spec = compiled.spec
    live = connection.execute(_SQL["live"]).fetchall()
    behind = [p for p, _, _, owned, versions in live
              if owned and compiled.version_id not in versions]  # fmt: skip
    if behind:
        raise ReplayRefused(
            f"apply still runs without version {spec.version} of {spec.name}: "
            "start it again with these definitions, then replay"
        )
    name = pipeline_of(spec.name, spec.version, scope)
    own = {row[0]: row for row in connection.execute(_SQL["own"], {"pipeline": name})}
    report.resumed = any(row[2] < row[3] or row[4] for row in own.values())
    stretches = []
    for one in _whole(settings, connection, spec, scope):
        row = own.get(one.partition)
        if report.resumed and row is not None and row[1] == one.generation:
            stretches.append(replace(one, start=row[2], end=row[3]))
            continue
        stretches.append(one)
        connection.execute(
            _SQL["begin"],
            {
                "pipeline": name, "partition": one.partition, "generation": one.generation,
                "start": one.start, "end": one.end,
            },
        )  # fmt: skip
    return stretches


def _whole(
    settings: Settings, connection: Connection, spec: MappingSpec, scope: Scope
) -> list[Stretch]:
    """The scope's part of the log, up to where live stands. Raises ReplayRefused for a place that
    is not there."""
    live = {row[0]: row for row in connection.execute(_SQL["live"])}
    wanted = set(live)
    if (only := scope.partition_id(spec.source, spec.stream)) is not None:
        _refuse_unknown(connection, spec, only)
        wanted = {route(only, settings.partitions)}
    if scope.start is not None:
        wanted &= {scope.start[0]}
    if not live or not wanted <= live.keys():
        raise ReplayRefused("live apply has not been there yet: nothing to read again")
    stretches = []
    with LogBounds(settings) as bounds:
        since = {} if scope.since is None else bounds.at(scope.since, sorted(wanted))
        for partition in sorted(wanted):
            _, generation, at, _, _ = live[partition]
            low = min(bounds.of(partition)[0], at)
            start = low
            if scope.since is not None:
                start = max(low, min(since.get(partition, at), at))
            if scope.start is not None:
                start = scope.start[1]
                if not low <= start <= at:
                    raise ReplayRefused(
                        f"partition {partition} has offsets {low} to {at} that live has applied, "
                        f"not {start}"
                    )
            stretches.append(stretch(connection, partition, generation, start, at))
    return stretches


def _refuse_unknown(connection: Connection, spec: MappingSpec, partition_id: str) -> None:
    """A tenant that nothing was ever applied of is misspelt, more likely than not."""
    asked = {"source": spec.source, "stream": spec.stream}
    tenants: dict[str, str | None] = dict(connection.execute(_SQL["tenants"], asked).fetchall())
    if partition_id in tenants:
        return
    some = sorted(one for one in tenants.values() if one)
    known = ", ".join(some[:_TENANTS_SHOWN]) + (" …" if len(some) > _TENANTS_SHOWN else "")
    raise ReplayRefused(
        f"nothing of {partition_id} was applied yet; {spec.source}/{spec.stream} has the tenants: "
        f"{known or 'none'}"
    )


_BY, _NOTE = "replay", "replayed as version "


def end_exceptions(connection: Connection, found: Sequence[tuple[Any, ...]], said: Said) -> None:
    """Another version speaks for these records: place, scope, and whether coverage has an error less."""
    places = [Where(*row[:5]) for row in found]
    move(connection, Event.REPLAY, places, said)
    for where, (*_, scope, healed) in zip(places, found, strict=True):
        if healed:
            heal_coverage(connection, where, scope)


def replace_exceptions(passes: ReplayPass, compiled: CompiledMapping, report: ReplayReport) -> None:
    """Open exceptions of older versions end: this version has judged their records."""

    def some(connection: Connection, _held: list[int]) -> tuple[int, list[Change]]:
        now, number = datetime.now(UTC), compiled.version_id
        note = f"{_NOTE}{compiled.spec.version}"
        found = connection.execute(_SQL["replaced"], {"mapping_version": number}).fetchall()
        end_exceptions(connection, found, Said(now, _BY, note))
        report.replaced += len(found)
        return len(found), []

    while passes.until_well(lambda: passes.store.beside(some)):
        pass


def recall_exceptions(passes: ReplayPass, compiled: CompiledMapping) -> None:
    """What this version had refused before another one replaced it, which is taken back, is open again."""

    def some(connection: Connection, _held: list[int]) -> tuple[int, list[Change]]:
        asked = {"mapping_version": compiled.version_id, "by": _BY, "note": _NOTE}
        found = connection.execute(_SQL["recalled"], asked).fetchall()
        said = Said(datetime.now(UTC), _BY, f"version {compiled.spec.version} is live again")
        for event, repeated in ((Event.RECALL, False), (Event.RECALL_REPEATED, True)):
            places = [Where(*row[:5]) for row in found if row[5] is repeated]
            move(connection, event, places, said)
        for *place, _, scope, hurts in found:
            if hurts:
                hurt_coverage(connection, Where(*place), scope)
        return len(found), []

    while passes.until_well(lambda: passes.store.beside(some)):
        pass

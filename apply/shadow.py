"""A replay into tables beside the live ones, swapped in by one transaction, with a way back.

The table beside is always right as of its own position rows, so nothing is lost between catching up
and the swap: that holds live's position rows, reads on to exactly where they stand, and moves the
tables. After it the old table stands beside at that very place, and the way back is the same again.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any, NoReturn

import psycopg
import structlog
from psycopg.types.json import Jsonb

from apply.faults import sink_fault
from apply.functions.outside import Surroundings
from apply.known_versions import Version, aside_of, versions_of
from apply.log_bounds import LogBounds
from apply.mapping.compile import compile_mapping
from apply.mapping.outside import Outside
from apply.mapping.types import CompiledMapping
from apply.pace import Throttle
from apply.pacing import Pacing, Tell
from apply.pass_over import Stretch
from apply.queries import load
from apply.replay import LAG_MAX_S, recall_exceptions, replace_exceptions, spec_of
from apply.replay_children import compare_children
from apply.replay_diff import (
    WITHOUT_OBSERVATION,
    by_hash,
    compare,
    missing,
    read_up_to,
    sides,
    written_since,
)
from apply.replay_pass import ReplayPass, stretch
from apply.replay_report import Diff, ReplayRefused, ReplayReport
from apply.shadow_tables import (
    beside,
    carry,
    exchange,
    make,
    refuse_obstacles,
    tables_of,
)
from apply.shadow_versions import pipeline_of, refuse_wrong_way, standing
from apply.sink import Connection, connect
from apply.sql_text import target_sql
from schemas import failpoints
from schemas.definitions.fingerprint import canonical
from schemas.definitions.load import Definitions
from schemas.definitions.mapping import MappingSpec
from schemas.failpoints import Hit
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_SQL = load("shadow")
_NEAR = 200
"""Offsets behind live from which on the rest is read while live waits; a second or two."""
_LOCK_MS = 2_000
_OTHER_ENDS_MS = 5_000
_AGAIN_S = 1.0


def _in_place(mapping: str) -> str:
    return f"replay:{mapping}:"


def run_shadow(
    settings: Settings,
    definitions: Definitions,
    mapping: str,
    *,
    back: bool = False,
    swap: bool = True,
    accept_missing: bool = False,
    progress: Tell = lambda _: None,
    hit: Hit = failpoints.none,
    pause_s: float = 0.0,
    lag_max_s: float = LAG_MAX_S,
) -> ReplayReport:
    """Fill a table beside the live one with the mapping as it is now, catch up, swap.

    Call it again after a crash, and it goes on; after the swap it only ends what was left. `back`:
    the definitions are those of the version that was replaced, whose table is caught up and swapped
    in again. `swap` False: only build, catch up and compare. `accept_missing`: swap although living
    rows have no observation any more and would be gone. Raises what `run_replay` raises.
    """
    spec = spec_of(definitions, mapping)
    pacing = Pacing(settings, progress, Throttle(lag_max_s, pause_s))
    try:
        with (
            closing(Surroundings(definitions.folder)) as outside,
            connect(settings.postgres, "replay-beside") as connection,
        ):
            alone(connection, spec.name)
            one = _Shadow(settings, connection, spec, pacing, hit, outside)
            return one.run(back=back, swap=swap, accept_missing=accept_missing)
    except psycopg.Error as error:
        raise sink_fault(error) from error
    finally:
        pacing.close()


def alone(connection: Connection, mapping: str) -> None:
    """From here on nobody else replays beside live, while the connection lasts. Raises ReplayRefused."""
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_OTHER_ENDS_MS}")
            connection.execute(_SQL["lock"], {"mapping": mapping})
    except psycopg.errors.LockNotAvailable:
        why = f"another process replays {mapping} beside live: stop it first, or let it end"
        raise ReplayRefused(why) from None


class _Shadow:
    """One run, on the caller's thread and, for all but batches, the caller's connection."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        spec: MappingSpec,
        pacing: Pacing,
        hit: Hit,
        outside: Outside,
    ) -> None:
        self._settings, self._connection, self._spec = settings, connection, spec
        self._pacing, self._hit, self._outside = pacing, hit, outside
        self._tables: tuple[str, ...] = ()
        self._pipeline = pipeline_of(spec.name, spec.version)
        self.report = ReplayReport(
            spec.name, spec.version, dry_run=False, how="shadow", file=spec.file
        )

    def run(self, *, back: bool, swap: bool, accept_missing: bool) -> ReplayReport:
        versions = versions_of(self._connection, self._spec.name)
        own, live = standing(self._spec, versions, back=back)
        if own is not None and own.state == "live":
            self._finish(own.id)  # swapped before; what comes after may be left
            aside = aside_of(versions)
            refuse_wrong_way(own, aside, back=back)
            self.report.swapped = self.report.resumed = True
            self._tell_aside(aside)
            return self.report
        self.report.resumed = own is not None and own.state == "shadow"
        self.report.way = "--swap-back" if back else "--shadow"
        number = own.id if own is not None else self._prepare(live)
        self._tables = tables_of(self._connection, [number, live.id])
        self._hit("replay.after_prepare")
        compiled = self._compiled(number)
        passes = ReplayPass(
            self._settings, compiled, self.report, self._pacing, pipeline=self._pipeline,
            hit=self._hit, beside=True,
        )  # fmt: skip
        try:
            self._catch_up(passes, number)
            self.report.carried += carry(self._connection, self._tables, indexes=True)
            self._connection.execute(f"ANALYZE {target_sql(compiled.spec)}".encode())
            self._compare(passes, compiled, live.id)
            if not swap:
                passes.store.release(list(passes.store.positions))
                return self.report
            self._check_missing(accept_missing)
            self._hit("replay.before_swap")
            while not self._swap(passes, number, live, back=back):
                self._catch_up(passes, number)
            self._hit("replay.after_swap")
        finally:
            passes.close()
        self.report.swapped = True
        self._finish(number)
        self._tell_aside(live)
        return self.report

    def _tell_aside(self, aside: Version | None) -> None:
        if aside is not None:
            self.report.aside = aside.version
            self.report.back = self._spec.version < aside.version

    def _compiled(self, number: int) -> CompiledMapping:
        return compile_mapping(beside(self._spec), number, self._outside)

    def _prepare(self, live: Version) -> int:
        """Register the version and make its tables, with what live's rows are held to."""
        spec = self._spec
        with self._connection.transaction():
            row = self._connection.execute(
                _SQL["register"],
                {
                    "mapping": spec.name, "version": spec.version, "hash": spec.hash,
                    "definition": Jsonb(json.loads(json.dumps(canonical(spec)))),
                    "source": spec.source, "stream": spec.stream, "table": spec.table,
                },
            ).fetchone()  # fmt: skip
            assert row is not None
            tables = tables_of(self._connection, [row[0], live.id])
            refuse_obstacles(self._connection, spec, tables)
            make(self._connection, spec)
            self.report.carried += carry(self._connection, tables, indexes=False)
        return int(row[0])

    def _stretches(self, live: list[tuple[Any, ...]], number: int) -> list[Stretch]:
        """From where this stands to where live does; notes both. Begins partitions that are new."""
        connection, found = self._connection, []
        with connection.transaction(), LogBounds(self._settings) as bounds:
            asked = {"pipeline": self._pipeline}
            known = {row[0] for row in connection.execute(_SQL["positions"], asked)}
            for partition, generation, at in live:
                low = bounds.of(partition)[0]
                row = connection.execute(
                    _SQL["begin"],
                    {
                        "pipeline": self._pipeline, "partition": partition,
                        "generation": generation, "end": at,
                        "start": at if partition in known else min(low, at),
                    },
                ).fetchone()  # fmt: skip
                assert row is not None
                if row[1] != generation:
                    self._refuse(
                        f"partition {partition} of the log was accepted anew since it began"
                    )
                if row[2] < min(low, at):
                    self._refuse(
                        f"partition {partition} of the log begins at {low}, it is at {row[2]}"
                    )
                found.append(stretch(connection, partition, generation, row[2], at, number))
        return found

    def _refuse(self, why: str) -> NoReturn:
        raise ReplayRefused(
            f"the table of version {self._spec.version} beside can no longer be caught up: {why}. "
            f"`gapless replay {self._spec.name} --drop` it; a new one is built from what the log has"
        )

    def _catch_up(self, passes: ReplayPass, number: int) -> None:
        """Round by round, until live is near."""
        phase = "build"
        while True:
            live = self._connection.execute(_SQL["positions"], {"pipeline": "live"}).fetchall()
            if not live:
                raise ReplayRefused("live apply has not been there yet: nothing to read")
            stretches = self._stretches(live, number)
            passes.claim(one.partition for one in stretches)
            passes.go(stretches, phase)
            self._sweep_released(passes)
            phase = "catch up"
            if sum(one.end - one.start for one in stretches) <= _NEAR:
                return

    def _sweep_released(self, passes: ReplayPass) -> None:
        marks = passes.marks
        if marks is not None:
            passes.until_well(
                lambda: passes.store.beside(lambda at, held: (marks.released(at, held), []))
            )

    def _compare(self, passes: ReplayPass, compiled: CompiledMapping, live: int) -> None:
        """Both tables as they stand, for the person who asked, without what live is ahead."""
        connection = self._connection
        by_hash(connection)
        ends = {number: held.next_offset for number, held in passes.store.positions.items()}
        read_up_to(connection, ends)
        diff = self.report.diff = Diff()
        of = sides(connection, compiled, self._spec, guarded=False)
        if isinstance(of, str):
            diff.incomparable = of
        else:
            compare(connection, of, diff)
            compare_children(connection, of, self._spec, diff)
            missing(connection, of, diff, pages=None)
            written_since(connection, of, diff)
        asked = {"new": compiled.version_id, "old": live}
        diff.newly_quarantined = dict(
            connection.execute(_SQL["newly_quarantined"], asked).fetchall()
        )
        turned = {"new": live, "old": compiled.version_id}
        diff.healed = dict(connection.execute(_SQL["newly_quarantined"], turned).fetchall())

    def _check_missing(self, accepted: bool) -> None:
        diff = self.report.diff
        gone = 0 if diff is None else diff.removed.get(WITHOUT_OBSERVATION, 0)
        if gone and not accepted:
            raise ReplayRefused(
                f"{gone:,} living rows of {self._spec.table} have no observation in the log any "
                "more and would be gone. The new table is built and stays: look with --no-swap, then "
                "say --accept-missing, or --drop"
            )

    def _swap(self, passes: ReplayPass, number: int, live: Version, *, back: bool) -> bool:
        """One attempt; False if live was too far ahead, or somebody reads the table."""
        connection, spec = self._connection, self._spec
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
                held = connection.execute(
                    _SQL["hold_live"], {"in_place": _in_place(spec.name)}
                ).fetchall()
                at = [tuple(row[1:]) for row in held if row[0] == "live"]
                if not self._reach(passes, at, number):
                    return False
                now_live = connection.execute(_SQL["hold_version"], {"mapping": spec.name})
                if now_live.fetchall() != [(live.id,)]:
                    raise ReplayRefused(f"another version of {spec.name} went live meanwhile")
                refuse_obstacles(connection, spec, self._tables)
                self.report.carried += carry(connection, self._tables, indexes=True)
                views = exchange(connection, self._tables)
                self.report.carried += [f"view {one}" for one in views]
                self._settle(number, live, back=back)
                self._hit("replay.before_swap_commit")
        except psycopg.errors.LockNotAvailable:
            _log.warning("the table is in use: trying again", table=spec.table)
            time.sleep(_AGAIN_S)
            return False
        return True

    def _reach(self, passes: ReplayPass, live: list[tuple[Any, ...]], number: int) -> bool:
        """Read on to exactly where live stands, while it waits there."""
        own = {partition: held.next_offset for partition, held in passes.store.positions.items()}
        if any(partition not in own for partition, _, _ in live):
            return False
        if sum(at - own[partition] for partition, _, at in live) > 5 * _NEAR:
            return False
        rest = [
            stretch(self._connection, partition, generation, own[partition], at, number)
            for partition, generation, at in live
        ]
        passes.go(rest, "swap", rest=False)
        claims = {p: held.claim for p, held in passes.store.positions.items()}
        mine = self._connection.execute(_SQL["hold_own"], {"pipeline": self._pipeline}).fetchall()
        if any(claims.get(partition) != claim for partition, _, _, claim in mine):
            raise ReplayRefused("another process replays this mapping")
        return {tuple(row[:3]) for row in mine} == set(live)

    def _settle(self, number: int, live: Version, *, back: bool) -> None:
        """What else the swap says: which version is live, where both stand, that claims are void."""
        connection, spec = self._connection, self._spec
        in_place = f"{_in_place(spec.name)}{spec.version}"
        connection.execute(_SQL["states"], {"new": number, "old": live.id})
        connection.execute(_SQL["take_claims"], {"in_place": _in_place(spec.name)})
        connection.execute(_SQL["forget_positions"], {"pipelines": [self._pipeline, in_place]})
        old = pipeline_of(spec.name, live.version)
        connection.execute(_SQL["keep_positions"], {"pipelines": [old, in_place]})
        about = Jsonb({"mapping": spec.name, "version": spec.version, "replaced": live.version})
        action = "swap_back" if back else "swap"
        by = self._settings.worker
        connection.execute(_SQL["action"], {"by": by, "action": action, "about": about})

    def _finish(self, number: int) -> None:
        """The version that is live now speaks for itself, and for the exceptions of the older ones."""
        compiled = compile_mapping(self._spec, number, self._outside)
        passes = ReplayPass(
            self._settings, compiled, self.report, self._pacing, hit=self._hit,
            pipeline=f"{_in_place(self._spec.name)}{self._spec.version}",
        )  # fmt: skip
        try:
            recall_exceptions(passes, compiled)
            replace_exceptions(passes, compiled, self.report)
        finally:
            passes.close()

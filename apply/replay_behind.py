"""What a replay in place still has to read at its end: pages that only an older version has judged.

A worker with older definitions may take a partition over while a replay runs, and goes on behind its
end. From a replay's begin on no such worker claims anything anew (apply.versions.still_ours), so once
none owns a partition, what is left is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import psycopg

from apply.faults import sink_fault
from apply.log_bounds import LogBounds
from apply.mapping.types import CompiledMapping
from apply.pass_over import Stretch
from apply.queries import load
from apply.replay_pass import ReplayPass, stretch
from apply.replay_report import ReplayRefused
from apply.scope import Scope
from apply.sink import Connection
from schemas.settings import Settings

_SQL = load("replay")
EVERYTHING = Scope()


def pipeline_of(mapping: str, version: int, scope: Scope = EVERYTHING) -> str:
    """The name under which a replay in place keeps its positions."""
    return f"replay:{mapping}:{version}{scope.suffix()}"


class Behind:
    """Looks behind the end of one replay, on its thread and connection."""

    def __init__(
        self, settings: Settings, passes: ReplayPass, compiled: CompiledMapping, scope: Scope
    ) -> None:
        self._settings, self._passes, self._scope = settings, passes, scope
        self._spec, self._version = compiled.spec, compiled.version_id
        self._pipeline = pipeline_of(self._spec.name, self._spec.version, scope)

    def what_is_left(self, covered: Sequence[Stretch]) -> list[Stretch]:
        """More to read, noted as such and claimed; empty: no page is left to an older version.

        Raises ReplayRefused while a worker with an older version owns a partition; the replay then
        stays where it is, and goes on from there when it is called again.
        """
        found = self._passes.until_well(lambda: self._look(covered))
        self._passes.claim(one.partition for one in found)
        return found

    def _look(self, covered: Sequence[Stretch]) -> list[Stretch]:
        connection = self._passes.store.connection
        try:
            asked = {"mapping_version": self._version}
            judging = [row[0] for row in connection.execute(_SQL["judging"], asked)]
            # owners before pages: what one without a partition has written is visible by now
            self._refuse_older_owners(connection, judging)
            behind = connection.execute(_SQL["unjudged"], self._asked(covered, judging)).fetchall()
            return [self._further(connection, *row) for row in behind]
        except psycopg.Error as error:
            raise sink_fault(error) from error

    def _asked(self, covered: Sequence[Stretch], judging: list[int]) -> dict[str, object]:
        return {
            "partitions": [one.partition for one in covered],
            "generations": [one.generation for one in covered],
            "ends": [one.end for one in covered],
            "within": None if self._scope.start is None else self._scope.start[0],
            "source": self._spec.source, "stream": self._spec.stream,
            "only": self._scope.partition_id(self._spec.source, self._spec.stream),
            "judging": judging,
        }  # fmt: skip

    def _refuse_older_owners(self, connection: Connection, judging: list[int]) -> None:
        asked = {"judging": judging}
        found = connection.execute(_SQL["older_owners"], asked).fetchall()
        if not found:
            return
        workers = ", ".join(sorted({owner for _, owner in found}))
        where = ", ".join(str(partition) for partition, _ in found)
        raise ReplayRefused(
            f"apply runs without version {self._spec.version} of {self._spec.name} since this replay "
            f"began (worker {workers}, partition {where}), and what it applies is of an older one: "
            "start it again with these definitions, then run this command again; it goes on from here"
        )

    def _further(
        self,
        connection: Connection,
        partition: int,
        generation: int,
        held_generation: int | None,
        end: int | None,
        following: int,
    ) -> Stretch:
        if held_generation is not None and held_generation != generation:
            raise ReplayRefused(
                f"the log of partition {partition} began anew while it was read: run this command again"
            )
        if end is not None:
            self._extend(connection, partition, following)
            return stretch(connection, partition, generation, end, following)
        with LogBounds(self._settings) as bounds:
            start = min(bounds.of(partition)[0], following)
        values = {
            "pipeline": self._pipeline, "partition": partition, "generation": generation,
            "start": start, "end": following,
        }  # fmt: skip
        connection.execute(_SQL["begin"], values)
        return stretch(connection, partition, generation, start, following)

    def _extend(self, connection: Connection, partition: int, end: int) -> None:
        values = {
            "pipeline": self._pipeline, "partition": partition, "end": end,
            "claim": self._passes.store.positions[partition].claim,
        }  # fmt: skip
        if connection.execute(_SQL["extend"], values).fetchone() is None:
            raise ReplayRefused("another process replays this mapping")


def joined(covered: Sequence[Stretch], further: Sequence[Stretch]) -> list[Stretch]:
    """What is covered with these read, too: one stretch for each partition."""
    found = {one.partition: one for one in covered}
    for one in further:
        before = found.get(one.partition)
        found[one.partition] = one if before is None else replace(before, end=one.end)
    return list(found.values())

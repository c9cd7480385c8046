"""What definitions promise about each stream: schedule, horizons, and where a mapping stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas import keys
from schemas.definitions.cron import Occurrences
from schemas.definitions.load import Definitions
from schemas.definitions.problems import DefinitionError
from schemas.definitions.source import CursorSpec, IntervalSpec, StreamSpec
from schemas.definitions.tenants import current_tenants


@dataclass(frozen=True, slots=True)
class ExpectedRuns:
    """A stream's schedule. Times in microseconds; `start_us` is where its past begins."""

    source: str
    stream: str
    occurrences: Occurrences
    settle_us: int
    start_us: int | None = None
    deadline_us: int | None = None
    stages: tuple[str, ...] = ()

    def named(self, occurrence: int) -> str:
        return keys.run_id(keys.partition_id(self.source, self.stream), occurrence)


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    """Seconds; None where nothing is declared."""

    every_s: float
    settle_s: float
    upstream_retention_s: float | None
    token_lifetime_s: float | None
    snapshot_every_s: float | None
    runs: ExpectedRuns | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """All streams by (source, stream), the partition ids there should be, files of mappings.

    `listed` are the sources whose partition ids are all known; `unlisted` says of the others why
    their tenants cannot be read.
    """

    streams: Mapping[tuple[str, str], ExpectedStream] = field(default_factory=dict)
    partition_ids: tuple[str, ...] = ()
    mapping_files: Mapping[str, str] = field(default_factory=dict)
    listed: frozenset[str] = frozenset()
    unlisted: Mapping[str, str] = field(default_factory=dict)
    _ids: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ids", frozenset(self.partition_ids))

    @property
    def listings(self) -> dict[str, bool]:
        """By `source/stream` as partition ids begin: whether it has a snapshot."""
        return {
            keys.partition_id(*names): stream.snapshot_every_s is not None
            for names, stream in self.streams.items()
        }

    def left(self, partition_id: str) -> bool:
        """Whether nobody polls this partition id any more: its tenant or stream was removed."""
        source = keys.split_partition_id(partition_id)[0]
        return source in self.listed and partition_id not in self._ids


def expected(definitions: Definitions) -> Expected:
    """What the definitions say; streams with problems are not among them."""
    streams: dict[tuple[str, str], ExpectedStream] = {}
    ids: list[str] = []
    unlisted: dict[str, str] = {}
    for source in definitions.sources.values():
        try:
            tenants = current_tenants(source)
        except (DefinitionError, OSError) as error:
            tenants = ()
            unlisted[source.name] = _said(error)
        for stream in source:
            streams[(source.name, stream.name)] = _stream(stream)
            ids += [
                stream.partition_id(tenant.id if tenant is not None else None) for tenant in tenants
            ]
    files = {mapping.name: mapping.file for mapping in definitions.mappings.values()}
    listed = frozenset(definitions.sources) - frozenset(unlisted)
    return Expected(streams, tuple(ids), files, listed, unlisted)


def _said(error: Exception) -> str:
    """The place and the message; never a line of the list, which may hold a secret."""
    if isinstance(error, DefinitionError) and error.problems:
        first = error.problems[0]
        return f"{first.file}:{first.line}  {first.message}"
    return getattr(error, "strerror", None) or type(error).__name__


def _stream(stream: StreamSpec) -> ExpectedStream:
    changes, snapshot = stream.changes, stream.snapshot
    lifetimes = [
        plan.request.pages.token_lifetime_s
        for plan in stream.plans
        if plan.request.pages is not None and plan.request.pages.token_lifetime_s is not None
    ]
    if isinstance(changes, CursorSpec) and changes.lifetime_s is not None:
        lifetimes.append(changes.lifetime_s)
    settle_us = changes.settle_us if isinstance(changes, IntervalSpec) else 0
    occurrences = stream.schedule.occurrences
    every_s = stream.schedule.every_s if occurrences is None else occurrences.longest_us / 1e6
    if changes is None and stream.program is None and snapshot is not None:
        every_s = snapshot.every_s
    return ExpectedStream(
        every_s=every_s,
        settle_s=(settle_us or 0) / 1e6,
        upstream_retention_s=stream.upstream_retention_s,
        token_lifetime_s=min(lifetimes, default=None),
        snapshot_every_s=snapshot.every_s if snapshot is not None else None,
        runs=_runs(stream),
    )


def _runs(stream: StreamSpec) -> ExpectedRuns | None:
    changes, schedule = stream.changes, stream.schedule
    if schedule.occurrences is None:
        return None
    by_time = changes if isinstance(changes, IntervalSpec) else None
    return ExpectedRuns(
        source=stream.source,
        stream=stream.name,
        occurrences=schedule.occurrences,
        settle_us=(by_time.settle_us or 0) if by_time else 0,
        start_us=by_time.start_us if by_time else None,
        deadline_us=None if schedule.deadline_s is None else int(schedule.deadline_s * 1e6),
        stages=schedule.stages,
    )

"""What definitions promise about each stream: schedule, horizons, and where a mapping stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.definitions.load import Definitions
from schemas.definitions.problems import DefinitionError
from schemas.definitions.source import CursorSpec, IntervalSpec, SourceSpec, StreamSpec, Tenant
from schemas.definitions.tenants import current_tenants


@dataclass(frozen=True, slots=True)
class ExpectedStream:
    """Seconds; None where nothing is declared."""

    every_s: float
    settle_s: float
    upstream_retention_s: float | None
    token_lifetime_s: float | None
    snapshot_every_s: float | None


@dataclass(frozen=True, slots=True)
class Expected:
    """All streams by (source, stream), the partition ids there should be, files of mappings."""

    streams: Mapping[tuple[str, str], ExpectedStream] = field(default_factory=dict)
    partition_ids: tuple[str, ...] = ()
    mapping_files: Mapping[str, str] = field(default_factory=dict)


def expected(definitions: Definitions) -> Expected:
    """What the definitions say; streams with problems are not among them."""
    streams: dict[tuple[str, str], ExpectedStream] = {}
    ids: list[str] = []
    for source in definitions.sources.values():
        for stream in source:
            streams[(source.name, stream.name)] = _stream(stream)
            ids += [
                stream.partition_id(tenant.id if tenant is not None else None)
                for tenant in _tenants(source)
            ]
    files = {mapping.name: mapping.file for mapping in definitions.mappings.values()}
    return Expected(streams, tuple(ids), files)


def _tenants(source: SourceSpec) -> tuple[Tenant | None, ...]:
    """The tenants of now; none where their file cannot be read, which ingest says loudly."""
    try:
        return current_tenants(source)
    except (DefinitionError, OSError):
        return ()


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
    every_s = stream.schedule.every_s
    if changes is None and snapshot is not None:
        every_s = snapshot.every_s
    return ExpectedStream(
        every_s=every_s,
        settle_s=(settle_us or 0) / 1e6,
        upstream_retention_s=stream.upstream_retention_s,
        token_lifetime_s=min(lifetimes, default=None),
        snapshot_every_s=snapshot.every_s if snapshot is not None else None,
    )

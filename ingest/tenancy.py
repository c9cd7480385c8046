"""Whose data is read: the tenants of every source, as their list was last readable.

A list that cannot be read changes nothing: the last good one is used, and log and metric say so.
Knows no pollers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from ingest import metrics
from schemas.definitions.problems import DefinitionError
from schemas.definitions.source import SourceSpec, Tenant
from schemas.definitions.tenants import current_tenants

_log = structlog.get_logger(__name__)
Tenants = tuple[Tenant | None, ...]


class Tenancy:
    """The tenants of `sources`. `clock` gives seconds, rising. Belongs to one event loop."""

    def __init__(self, sources: Mapping[str, SourceSpec], clock: Callable[[], float]) -> None:
        self._sources, self._clock = sources, clock
        self._known: dict[str, Tenants] = {}
        self._due_s: dict[str, float] = {}
        self._failing: dict[str, str] = {}

    def of(self, source: SourceSpec) -> Tenants:
        """The tenants as they were last readable.

        Reads (blocking) what was not read yet, and raises DefinitionError or OSError where that
        cannot be read: nothing is known that could be used instead.
        """
        if source.name not in self._known:
            self._take(source, current_tenants(source))
        return self._known[source.name]

    async def begin(self) -> None:
        """Reads every list once, without holding the loop up. Raises as `of` does."""
        for source in self._sources.values():
            self._take(source, await asyncio.to_thread(current_tenants, source))

    @property
    def next_look_s(self) -> float | None:
        """Seconds until a list is due to be read again; None: no list ever changes."""
        if not self._due_s:
            return None
        return max(0.0, min(self._due_s.values()) - self._clock())

    async def look(self) -> frozenset[str]:
        """Reads again what is due; the sources whose tenants changed. Never raises for a list."""
        changed = set()
        for name, due_s in list(self._due_s.items()):
            if due_s > self._clock():
                continue
            source = self._sources[name]
            try:
                found = await asyncio.to_thread(current_tenants, source)
            except (DefinitionError, OSError, ValueError, RecursionError) as error:
                self._failed(source, error)
            else:
                if self._take(source, found):
                    changed.add(name)
        return frozenset(changed)

    def _take(self, source: SourceSpec, found: Tenants) -> bool:
        """Whether these are others than before."""
        before = self._known.get(source.name)
        self._known[source.name] = found
        self._next(source)
        if source.tenants is not None:
            metrics.TENANTS.labels(source.name).set(len(found))
            metrics.TENANTS_STALE.labels(source.name).set(0)
        if self._failing.pop(source.name, None) is not None:
            _log.info("tenants are readable again", source=source.name, tenants=len(found))
        if before is None or before == found:
            return False
        ids, earlier = _ids(found), _ids(before)
        _log.info(
            "tenants changed",
            source=source.name,
            added=sorted(ids - earlier)[:20],
            removed=sorted(earlier - ids)[:20],
            tenants=len(found),
        )
        return True

    def _failed(self, source: SourceSpec, error: Exception) -> None:
        self._next(source)
        metrics.TENANTS_STALE.labels(source.name).set(1)
        said = _said(error)
        if self._failing.get(source.name) != said:  # once, not at every look
            self._failing[source.name] = said
            _log.error(
                "tenants cannot be read; those known before are polled",
                source=source.name,
                error=said,
                tenants=len(self._known.get(source.name, ())),
            )

    def _next(self, source: SourceSpec) -> None:
        spec = source.tenants
        if spec is not None and (spec.file is not None or spec.command):
            self._due_s[source.name] = self._clock() + spec.every_s


def _ids(tenants: Tenants) -> set[str]:
    return {tenant.id for tenant in tenants if tenant is not None}


def _said(error: Exception) -> str:
    """The place and the message; never a line of the list, which may hold a secret."""
    if isinstance(error, DefinitionError) and error.problems:
        first = error.problems[0]
        return f"{first.file}:{first.line}:{first.column}  {first.message}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__

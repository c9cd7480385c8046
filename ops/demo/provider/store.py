"""All tenants of the provider with their collections, its settings and its clock."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

from .clock import Clock
from .collection import Budget, Collection
from .content import ID_FIELD, Content
from .settings import Settings

_TENANTS = ("north", "south", "harbour", "east", "west", "island", "valley", "coast")
_KEPT_BODIES_BYTES = 256 * 1024 * 1024


class Unknown(LookupError):
    """No such tenant or collection."""


def tenant_names(count: int) -> list[str]:
    """north, south, … and then tenant-08, tenant-09, …"""
    return [_TENANTS[n] if n < len(_TENANTS) else f"tenant-{n:02d}" for n in range(count)]


class Store:
    """The whole content of the provider; `seed` decides all that is invented."""

    def __init__(
        self, *, seed: int, tenants: int, record_bytes: int, clock: Clock, settings: Settings
    ) -> None:
        self.seed, self.clock, self.settings = seed, clock, settings
        self.tenants = tenant_names(tenants)
        budget = Budget(_KEPT_BODIES_BYTES)
        self._collections: dict[tuple[str, str], Collection] = {}
        for tenant in self.tenants:
            content = Content(seed, tenant, record_bytes)
            for name in ID_FIELD:
                self._collections[tenant, name] = Collection(
                    tenant, name, content, settings, clock, budget, seed
                )

    def collection(self, tenant: str, name: str) -> Collection:
        """Raises Unknown."""
        try:
            return self._collections[tenant, name]
        except KeyError:
            raise Unknown(f"no collection {name!r} of a tenant {tenant!r}") from None

    def select(self, tenant: str | None, name: str | None) -> Iterator[Collection]:
        """The collections of a tenant and a name; None stands for all."""
        for (of, called), collection in self._collections.items():
            if tenant in (None, of) and name in (None, called):
                yield collection

    def seed_records(self, tenant: str, name: str, count: int, from_us: int, to_us: int) -> None:
        self.collection(tenant, name).seed(count, from_us, to_us)
        # A million facts that live for ever would else be walked by every full garbage collection.
        gc.collect()
        gc.freeze()

    def change_settings(self, wanted: Mapping[str, Any]) -> None:
        """Raises BadSetting and then has changed nothing."""
        shown_us = self.settings.shown_us
        self.settings.change(wanted)
        if self.settings.shown_us != shown_us:
            for collection in self._collections.values():
                collection.forget_bodies()

    def facts(self) -> int:
        """How many facts the present instances hold."""
        return sum(len(collection.facts) for collection in self._collections.values())

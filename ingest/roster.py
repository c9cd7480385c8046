"""Which pollers a log partition has, where that changes while it is owned. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ingest.emission import Poller


class Roster(Protocol):
    """Where the pollers of a process come from when tenants come and go."""

    def again(self, partition: int, known: Mapping[str, Poller]) -> Mapping[str, Poller]:
        """The pollers of now; those of `known` that are still right are in it as they are."""

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Calls `on_change` whenever `again` would give others than before. Ends by cancellation,
        or when nothing can change."""


@dataclass(frozen=True, slots=True)
class Change:
    """What ends and what begins; a poller that is replaced does both."""

    ended: tuple[str, ...]
    begun: tuple[str, ...]


def change(before: Mapping[str, Poller], after: Mapping[str, Poller]) -> Change:
    """By identity: another poller of the same partition id has other questions to ask."""
    return Change(
        tuple(name for name, poller in before.items() if after.get(name) is not poller),
        tuple(name for name, poller in after.items() if before.get(name) is not poller),
    )

"""`gapless relay`: a lane for topics and one for each mapping that posts, until told to stop; removes
what was sent long ago.

A fault of the program in one lane ends the process; whoever watches it starts it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import structlog

from ops.relay.kafka import Topics
from ops.relay.lane import Lane, Way
from ops.relay.post import Receiver
from ops.relay.pruning import Pruning
from schemas import failpoints
from schemas.definitions.mapping import MappingSpec, PostSpec
from schemas.definitions.secrets import Secrets
from schemas.failpoints import Hit
from schemas.settings import Settings

_log = structlog.get_logger(__name__)


class Relay:
    """Publishes until told to stop. Several processes share the work; `posts` by mapping."""

    def __init__(
        self,
        settings: Settings,
        posts: Mapping[str, PostSpec] | None = None,
        *,
        hit: Hit = failpoints.none,
    ) -> None:
        give_up_s = settings.message_timeout_ms / 1000
        self._ways: list[Way] = [Topics(settings)]
        for mapping, spec in sorted((posts or {}).items()):
            secrets = Secrets(folder=settings.definitions)
            self._ways.append(Receiver(mapping, spec, secrets, give_up_s=give_up_s))
        # a batch takes at most a quarter more than `give_up_s`; silence beyond twice is no work
        self._lanes = [
            Lane(settings.postgres, way, hold_s=2 * give_up_s, hit=hit) for way in self._ways
        ]
        self._pruning = Pruning(settings.postgres, settings.outbox_keep_s, hold_s=2 * give_up_s)
        self._faults: list[BaseException] = []

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """`once`: publish what is eligible, one lane after the other, and raise what stands in the
        way: ReceiverAway or psycopg.Error. Else raises only faults of the program."""
        try:
            if once:
                for lane in self._lanes:
                    lane.run(stop, once=True)
                self._pruning.all(stop)
                return
            threads = [
                threading.Thread(
                    target=self._guarded, args=(lane.run, stop), name=f"relay {lane.name}"
                )
                for lane in self._lanes
            ]
            threads.append(
                threading.Thread(
                    target=self._guarded, args=(self._pruning.run, stop), name="relay pruning"
                )
            )
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)  # so that signals are heard
                    for lane in self._lanes:
                        lane.watch()
        finally:
            for way in self._ways:
                way.close()
        if self._faults:
            raise self._faults[0]

    def _guarded(self, run: Callable[[threading.Event], None], stop: threading.Event) -> None:
        try:
            run(stop)
        except BaseException as fault:
            self._faults.append(fault)
            stop.set()


def posts_of(mappings: Mapping[str, MappingSpec]) -> dict[str, PostSpec]:
    """Which mappings post their events, and where."""
    return {
        name: spec.events.post
        for name, spec in mappings.items()
        if spec.events is not None and spec.events.post is not None
    }

"""The pipeline as chaos and soak run it: servers of its own, a provider, workers, the judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ops.stack import Addresses, Stack
from tests.chaos.crew import Crew
from tests.chaos.faults import Fault
from tests.faults.scene import Scene, scene
from tests.stack import fresh_folder

# Few of so many rows go while nobody looks, so no sweep has to wait for an operator.
ACCOUNTS, EVENTS, PARTITIONS = 600, 100, 4
_DRAIN_S = 240.0
_AUDIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Lane:
    """The whole of a stack as one deployment."""

    kafka: str
    postgres: str
    prefix: str
    environment: dict[str, str]


@dataclass(slots=True)
class World:
    """Everything that may be disturbed."""

    stack: Stack
    scene: Scene
    crew: Crew
    rate: float

    def wait(self, seconds: float) -> None:
        """Let time pass while the crew is looked after. Raises Fault."""
        until = time.monotonic() + seconds
        while True:
            self.crew.tend()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def traffic(self, rate: float) -> None:
        """Writes per second at the provider, from now on."""
        self.rate = rate
        self.scene.provider.traffic(rate)

    def judge_live(self) -> None:
        """What holds at any moment. Raises Fault."""
        self._raise(self.scene.judge.live())

    def judge_final(self) -> None:
        """Calm down, drain, judge everything, audit; then the traffic goes on. Raises Fault."""
        self.scene.provider.faults()
        self.scene.provider.traffic(0)
        self.crew.calm()
        self._until("every fact of the provider has become a row", _DRAIN_S, self._drained)
        self._raise(self.scene.judge.final())
        self._raise(_lines("quarantined", self.scene.sink.rows("SELECT * FROM gapless.exception")))
        self._until("the audit is clean", _AUDIT_S, lambda: self._verb("audit --json"))
        self._raise(self.crew.too_large())
        self.scene.provider.traffic(self.rate)

    def _drained(self) -> str | None:
        if self.scene.judge.drained():
            return None
        missing = [
            line
            for watched in self.scene.judge.watched
            for line in self.scene.judge.differences(watched)
        ]
        return "\n".join(missing[:5]) or "counts differ"

    def _verb(self, verb: str) -> str | None:
        done = self.scene.workers.run(verb)
        return None if done.returncode == 0 else f"exit {done.returncode}\n{done.stdout[:4000]}"

    def _until(self, what: str, limit_s: float, missing: Callable[[], str | None]) -> None:
        deadline = time.monotonic() + limit_s
        while (why := missing()) is not None:
            if time.monotonic() > deadline:
                status = self.scene.workers.run("status")
                raise Fault(f"not within {limit_s:.0f} s: {what}\n{why}\n{status.stdout}")
            self.wait(0.5)

    def _raise(self, faults: list[str]) -> None:
        if faults:
            raise Fault("\n".join(faults[:20]))


def _lines(what: str, rows: list[dict[str, object]]) -> list[str]:
    return [f"{what}: {row}" for row in rows]


def broken_in(
    rate: float, tell: Callable[[str], None], body: Callable[[World], None]
) -> str | None:
    """Runs `body` on a fresh pipeline: None, or what was broken.

    The folder is removed at the end, but kept where a fault was found.
    """
    stack = Stack(fresh_folder(), tell=tell)
    outputs = stack.folder / "workers"
    broken = None
    try:
        lane = _lane(stack.start())
        outputs.mkdir()
        with scene(
            lane, outputs, accounts=ACCOUNTS, events=EVENTS, rate=rate, partitions=PARTITIONS
        ) as at:
            crew = Crew(at.workers)
            crew.begin()
            try:
                body(World(stack, at, crew, rate))
            except (Fault, AssertionError) as fault:
                broken = str(fault)
    finally:
        if broken is None:
            stack.remove()
        else:
            stack.stop()
            tell(f"the servers' data and the workers' outputs are kept in {stack.folder}")
    return broken


def _lane(addresses: Addresses) -> _Lane:
    """One deployment on these servers."""
    environment = {
        "GAPLESS_KAFKA": addresses.kafka,
        "GAPLESS_POSTGRES": addresses.postgres,
        "GAPLESS_PREFIX": "own.",
    }
    return _Lane(addresses.kafka, addresses.postgres, "own.", environment)

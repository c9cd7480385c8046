"""Clients that write to a foreign server while it is read, and the ledger of what they wrote."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Action = Callable[[random.Random], None]
_WORDS = ("amber", "birch", "cedar", "delta", "ember", "Kölner", "東京", "’quoted’", '"', "\\back")


@dataclass(frozen=True, slots=True)
class Written:
    """One state that a client was told of; times are RFC 3339 text of the server's clock.

    Foreign servers here show a write as soon as they have answered it.
    """

    id: str
    updated_at: str
    deleted: bool
    body: Any
    replaced_at: str | None = None

    @property
    def visible_at(self) -> str:
        return self.updated_at


class Ledger:
    """What was written, in the order of the answers, by tenant and collection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str], list[Written]] = defaultdict(list)

    def note(self, tenant: str, collection: str, state: Written) -> None:
        with self._lock:
            self._states[tenant, collection].append(state)

    def of(self, tenant: str, collection: str) -> list[Written]:
        """Every state, and when the next one of the same id replaced it."""
        with self._lock:
            states = list(self._states[tenant, collection])
        following: dict[str, str] = {}
        for number in reversed(range(len(states))):
            state = states[number]
            states[number] = dataclasses.replace(state, replaced_at=following.get(state.id))
            following[state.id] = state.updated_at
        return states

    def living(self, tenant: str, collection: str) -> dict[str, Written]:
        """The last state of what was not deleted, by id."""
        last = {state.id: state for state in self.of(tenant, collection)}
        return {name: state for name, state in last.items() if not state.deleted}

    def counts(self) -> dict[str, dict[str, int]]:
        """`tenant/collection` → live, facts."""
        with self._lock:
            names = list(self._states)
        return {
            f"{tenant}/{collection}": {
                "live": len(self.living(tenant, collection)),
                "facts": len(self.of(tenant, collection)),
            }
            for tenant, collection in names
        }

    def deleted(self, tenant: str, collection: str) -> set[str]:
        """The ids whose last state is a delete."""
        last = {state.id: state.deleted for state in self.of(tenant, collection)}
        return {name for name, deleted in last.items() if deleted}


class Writer:
    """A thread that takes one weighted action after the other until it is stopped."""

    def __init__(self, actions: Sequence[tuple[int, Action]], *, seed: int, every_s: float) -> None:
        self._actions, self._every_s = actions, every_s
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self.count = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        weights = [weight for weight, _ in self._actions]
        try:
            while not self._stop.wait(self._every_s * self._random.uniform(0.3, 1.7)):
                _, act = self._random.choices(self._actions, weights)[0]
                act(self._random)
                self.count += 1
        except BaseException as fault:
            self._fault = fault

    def stop(self) -> None:
        """Waits for the action in work. Raises what an action raised."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a writing client hangs"
        if self._fault is not None:
            raise self._fault


def text(chance: random.Random, words: int) -> str:
    """Some words, among them ones that are hard to carry."""
    return " ".join(chance.choices(_WORDS, k=words))


def rfc3339(moment_ms: int) -> str:
    """Milliseconds since the epoch as text."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC).replace(
        microsecond=moment_ms % 1000 * 1000
    )
    return moment.isoformat(timespec="milliseconds")

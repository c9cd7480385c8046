"""Real pollers of a source that is read by the fake tap, and what they emitted."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.emission import Emission, Poller, StreamState
from ingest.pollers import Pollers
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.records import PlanState
from schemas.settings import Settings

TAP = Path(__file__).parents[3] / "fake_tap.py"
DEADLINE_S = 30.0


def source(config: dict[str, Any], /, **plan: Any) -> str:
    """A source with one stream `numbers`; JSON is YAML too."""
    singer = {"command": [sys.executable, str(TAP)], "config": _plain(config), **plan}
    stream = {"plan": {"singer": singer}, "schedule": {"every": "1h"}, "deletes": "shown"}
    limits = {"body_max": "1MiB", "concurrency": 2}
    head = {"gapless": 1, "source": "counting", "limits": limits}
    return json.dumps({**head, "streams": {"numbers": stream}})


def _plain(value: Any) -> Any:
    """Braces of texts doubled: what stands in a definition is a template."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else value


@dataclass
class Tapped:
    """One poller, all that it emitted, and what the tap noted of its runs."""

    poller: Poller
    log: Path
    emissions: list[Emission] = field(default_factory=list)

    async def poll(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.poller.poll(self.emit)

    async def emit(self, emission: Emission) -> None:
        self.emissions.append(emission)

    @property
    def numbers(self) -> list[int]:
        """The ids of all records that were emitted, in order."""
        return [
            json.loads(record)["id"]
            for emission in self.emissions
            for page in emission.observations
            for record in page.records
            if record
        ]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [line for line in notes(self.log) if "from" in line]

    @property
    def state(self) -> StreamState:
        return self.emissions[-1].state

    @property
    def plan(self) -> PlanState:
        return self.state.plans["singer"]

    @property
    def done(self) -> int | None:
        """Where the stored STATE would go on; None while there is none."""
        return None if self.plan.state is None else int(json.loads(self.plan.state)["done"])

    @property
    def traces(self) -> Path:
        return self.log.parent / "traces"

    @property
    def blocked(self) -> str:
        return self.state.blocked.reason if self.state.blocked else ""

    def claims_too_much(self) -> list[str]:
        """States that stand before a record which they cover was emitted."""
        faults, seen = [], set[int]()
        for emission in self.emissions:
            for page in emission.observations:
                seen |= {json.loads(record)["id"] for record in page.records if record}
            kept = emission.state.plans["singer"].state
            claimed = 0 if kept is None else json.loads(kept).get("done", 0)
            if not set(range(claimed)) <= seen:
                faults.append(f"{claimed} claimed, {sorted(seen)} emitted")
        return faults


def notes(log: Path) -> list[dict[str, Any]]:
    """What taps wrote down of their beginnings and ends."""
    return [json.loads(line) for line in log.read_text().splitlines()]


@asynccontextmanager
async def tapping(folder: Path, config: dict[str, Any], **plan: Any) -> AsyncIterator[Tapped]:
    """The poller of a source whose tap counts; `plan`: more keys of `singer`."""
    log = folder / "runs"
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)
    full = {"records": 10, "log": str(log), "traces": str(traces), **config}
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / "s.yaml").write_text(source(full, **plan), encoding="utf-8")
    definitions = load_folder(folder).check()
    settings = Settings(partitions=1, record_max_bytes=20_000)
    pollers = Pollers(definitions, settings, none)
    try:
        poller = next(iter(pollers.of(0).values()))
        poller.restore(None)
        yield Tapped(poller, log)
    finally:
        await pollers.close()


def run(folder: Path, config: dict[str, Any], polls: int = 1, **plan: Any) -> Tapped:
    """So many polls, one after the other."""

    async def main() -> Tapped:
        async with tapping(folder, config, **plan) as tapped:
            for _ in range(polls):
                await tapped.poll()
            return tapped

    return asyncio.run(main())

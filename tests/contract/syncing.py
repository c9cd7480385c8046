"""Reads a stand-in with a shipped definition through ingest's own fetch side, and maps what came."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ingest
from apply.fold import fold
from apply.mapping.compile import compile_mapping
from apply.mapping.readable import readable_row
from apply.mapping.types import DELETED, Place, Row
from apply.outcomes import RecordFault
from ingest.emission import Emission, StreamState
from ingest.pollers import Pollers
from schemas.definitions.load import Definitions, load_folder
from schemas.failpoints import none
from schemas.records import Mark, Observation
from schemas.settings import Settings
from tests.contract.sources.server import Served, Upstream, serving

SHIPPED = Path(ingest.__file__).parent / "sources"
DEADLINE_S = 30.0
_PACE = re.compile(r"rate: \d+/[smh]")
_BASE_URL = re.compile(r"^base_url: (\{env: (\w+)\}|https://[a-z.]+)", re.MULTILINE)


@dataclass
class Read:
    """What became of the polls of one stream."""

    definitions: Definitions
    partition_id: str
    emissions: list[Emission] = field(default_factory=list)

    @property
    def state(self) -> StreamState:
        return self.emissions[-1].state

    @property
    def blocked(self) -> str:
        """Why it is blocked; empty if it is not."""
        return self.state.blocked.reason if self.state.blocked else ""

    def pages(self, plan: str) -> list[Observation]:
        return [one for e in self.emissions for one in e.observations if one.plan == plan]

    def marks(self, kind: str) -> list[Mark]:
        return [mark for e in self.emissions for mark in e.marks if mark.kind == kind]

    def found(self, plan: str) -> list[Any]:
        """The records that a plan fetched, decoded."""
        return [json.loads(raw) for page in self.pages(plan) for raw in page.records]

    def stored(self, mapping: str) -> Stored:
        """What the table would hold: every page mapped and folded, in the order of the log."""
        compiled = compile_mapping(self.definitions.mappings[mapping], 1)
        parts = self.partition_id.split("/")
        tenant = parts[2] if len(parts) > 2 else None
        rows, found = list[Row](), Stored()
        offset = 0
        began: int | None = None
        for emission in self.emissions:
            for page in emission.observations:
                listed = began if page.plan == "snapshot" else None
                mapped = compiled.map_page(page, Place(1, 0, offset, tenant, listed))
                rows += mapped.rows
                found.faults += mapped.faults
                found.ignored += sum(1 for byte in mapped.outcomes if byte) - len(mapped.faults)
                offset += 1
            for mark in emission.marks:
                began = offset if mark.kind == "snapshot_begin" else began
                offset += 1
        for row in fold(rows, compiled).winners:
            (found.gone if row[DELETED] else found.rows)[str(row[0])] = readable_row(compiled, row)
        return found


@dataclass
class Synced(Read):
    """As read from a stand-in."""

    served: Served = field(kw_only=True)


@dataclass
class Stored:
    """Rows by their key, those that are deleted apart; `ignored`: records the mapping leaves out."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[RecordFault] = field(default_factory=list)
    ignored: int = 0


def definition(source: str, url: str, changes: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A shipped definition that asks `url`, without its pace, and the environment it needs for that."""
    text = (SHIPPED / f"{source}.yaml").read_text("utf-8")
    found = _BASE_URL.search(text)
    assert found, f"{source} has no base_url that could be replaced"
    environment = {}
    if found[2]:
        environment[found[2]] = url
    else:
        text = text.replace(found[1], url)
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return _PACE.sub("rate: 1000/s", text), environment


def sync(
    folder: Path,
    partition_id: str,
    upstream: Upstream,
    setenv: Callable[[str, str], None],
    *,
    path: str = "",
    refuse: frozenset[int] = frozenset(),
    changes: Mapping[str, str] | None = None,
    between: Callable[[Synced], None] | None = None,
) -> Synced:
    """One poll of a partition id; with `between` another one behind it, which is due by then.

    `path` is what the stand-in's origin is asked below; `changes`: texts of the definition to
    replace. What `between` does to the server's clock, it does to the reader's.
    """

    async def main() -> Synced:
        async with serving(upstream, refuse) as served:
            written = _written(folder, partition_id, served.url + path, setenv, changes)
            synced = Synced(written, partition_id, served=served)
            again = None if between is None else lambda: between(synced)
            await _poll(synced, served.now_us, again)
            return synced

    return asyncio.run(main())


def read(
    folder: Path,
    partition_id: str,
    url: str,
    setenv: Callable[[str, str], None],
    changes: Mapping[str, str] | None = None,
) -> Read:
    """One poll of a partition id at a server that runs already."""
    found = Read(_written(folder, partition_id, url, setenv, changes), partition_id)
    asyncio.run(_poll(found, lambda: time.time_ns() // 1000, None))
    return found


def _written(
    folder: Path,
    partition_id: str,
    url: str,
    setenv: Callable[[str, str], None],
    changes: Mapping[str, str] | None,
) -> Definitions:
    """The shipped definition, changed, in a folder of its own."""
    source = partition_id.split("/")[0]
    text, environment = definition(source, url, changes or {})
    for name, value in environment.items():
        setenv(name, value)
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / f"{source}.yaml").write_text(text, "utf-8")
    return load_folder(folder).check()


async def _poll(found: Read, now_us: Callable[[], int], between: Callable[[], None] | None) -> None:
    async def keep(emission: Emission) -> None:
        found.emissions.append(emission)

    pollers = Pollers(found.definitions, Settings(partitions=1), none, now_us=now_us)
    try:
        async with asyncio.timeout(DEADLINE_S):
            poller = pollers.of(0)[found.partition_id]
            poller.restore(None)
            await poller.poll(keep)
            if between is not None:
                between()
                await poller.poll(keep)
    finally:
        await pollers.close()

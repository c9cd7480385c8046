"""One tenant of the simulated provider, read by ingest's own fetch side, and judged by the ledger.

Every poll is made by pollers of its own, restored from what was emitted last, so that each begins
as after a crash. Without Kafka: what is emitted counts as committed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ingest.emission import Emission, StreamState
from ingest.plans.ranges import to_us
from ingest.pollers import Pollers
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.records import BY_TIME, Mark, Observation
from schemas.settings import Settings
from tests.upstream import Fact, Provider

DEADLINE_S = 60.0
_HEAD = """\
gapless: 1
source: crm
base_url: URL
limits: {attempts: 3, timeout: 5s, wait_max: 2s, body_max: 1MiB}
streams:
  rows:
"""
WINDOW = (
    _HEAD
    + """\
    get: /t/TENANT/accounts
    params: {changed_from: "{start}", changed_to: "{end}", page_token: "{token}", limit: "{size}"}
    records: body.items
    pages: {next: body.next_page_token, size: 3, stable: true}
    plan:
      interval: {time: updated_at, format: rfc3339_ms, start: 2024-01-01, bounds: "[)",
                 settle: 1s, lookback: 10s, width: 100000d}
    schedule: {every: 30s}
"""
)
LINKED = (
    _HEAD
    + """\
    get: /t/TENANT/accounts/linked
    params: {since: "{start}", per_page: "{size}"}
    records: body
    pages: {next: header.link, size: 3}
    plan:
      interval: {time: updated_at, format: rfc3339_ms, start: 2024-01-01, bounds: "[)",
                 settle: 1s, lookback: 10s, order: asc, width: 100000d}
    schedule: {every: 30s}
"""
)
KEYSET = (
    _HEAD
    + """\
    get: /t/TENANT/accounts/after
    params: {after_time: "{after.time}", after_id: "{after.id}", until: "{until}", limit: "{size}"}
    records: body.items
    pages: {size: 3, end: empty, stable: true}
    plan:
      keyset: {time: updated_at, format: rfc3339_ms, start: 2024-01-01, settle: 1s, lookback: 10s}
    schedule: {every: 30s}
"""
)
FEED = (
    _HEAD
    + """\
    get: /t/TENANT/accounts/changes
    params: {since: "{cursor}", limit: "{size}"}
    records: body.results
    pages: {size: 3, end: empty, stable: true}
    deletes: shown
    errors: [{when: {status: 410}, do: source_gap}]
    plan:
      cursor:
        next: body.last_seq
        identity: {get: "/t/TENANT/accounts/info", value: body.instance, head: body.update_seq}
    schedule: {every: 30s}
"""
)
LISTING = (
    _HEAD
    + """\
    get: /t/TENANT/accounts/all
    params: {offset: "{offset}", limit: "{size}"}
    records: body.items
    pages: {size: 3, end: empty, total: body.total}
    plan:
      snapshot: {every: 30s}
"""
)


@dataclass
class Scene:
    """`ahead_s`: how far the provider's clock was moved; `local_ahead_s`: how far the reader's is off.

    `names`: of tenants that nobody has used yet.
    """

    provider: Provider
    tenant: str
    names: Iterator[str]
    folder: Path
    emissions: list[Emission] = field(default_factory=list)
    ahead_s: float = 0.0
    local_ahead_s: float = 0.0
    requests_before: int = 0

    def beside(self) -> Scene:
        """Another tenant of the same provider, to be polled by the same pollers."""
        return Scene(self.provider, next(self.names), self.names, self.folder, ahead_s=self.ahead_s)

    def put(self, **record: Any) -> dict[str, Any]:
        return self.provider.put(self.tenant, **record)

    def fill(self, count: int, ago_s: float = 3600.0) -> None:
        """So many records, a second between each and the next."""
        first = self.now_us() - int(ago_s * 1e6)
        orders = [{"updated_at": text(first + n * 1_000_000)} for n in range(count)]
        self.provider.put_together(orders, self.tenant)

    def move(self, seconds: float) -> None:
        """The provider's clock and the reader's."""
        self.provider.clock(jump_s=seconds)
        self.ahead_s += seconds

    def now_us(self) -> int:
        """The time of the provider, in whole milliseconds."""
        return (time.time_ns() // 1_000_000 + int(self.ahead_s * 1_000)) * 1_000

    def poll(
        self,
        definition: str,
        *changes: tuple[str, str],
        wait_s: float = 60.0,
        between: Callable[[int], None] | None = None,
        beside: Scene | None = None,
    ) -> None:
        """A poll after `wait_s` of the provider's time, with texts of the definition replaced.

        `between` is called behind every emission with how many there were in this poll; `beside`: a
        tenant that is polled at the same time.
        """
        self.move(wait_s)
        for old, new in changes:
            assert definition.count(old) == 1, f"{old!r} stands there {definition.count(old)} times"
            definition = definition.replace(old, new)
        definition = definition.replace("base_url: URL", self._head(beside))
        definition = definition.replace("TENANT", "{tenant.id}")
        (self.folder / "sources").mkdir(exist_ok=True)
        (self.folder / "sources" / "crm.yaml").write_text(definition, "utf-8")
        self.requests_before = max((one["number"] for one in self.provider.requests()), default=0)
        asyncio.run(self._polls(between, beside))

    def _head(self, beside: Scene | None) -> str:
        tenants = [self.tenant] if beside is None else [self.tenant, beside.tenant]
        listed = ", ".join(f"{{id: {tenant}}}" for tenant in tenants)
        return f"base_url: {self.provider.url}\ntenants: {{list: [{listed}]}}"

    async def _polls(self, between: Callable[[int], None] | None, beside: Scene | None) -> None:
        definitions = load_folder(self.folder).check()
        pollers = Pollers(definitions, Settings(partitions=1), none, now_us=self._local_us)
        try:
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as polls:
                polls.create_task(self._poll(pollers, between))
                if beside is not None:
                    polls.create_task(beside._poll(pollers, None))
        finally:
            await pollers.close()

    async def _poll(self, pollers: Pollers, between: Callable[[int], None] | None) -> None:
        made = [0]

        async def emit(emission: Emission) -> None:
            self.emissions.append(emission)
            made[0] += 1
            if between is not None:
                between(made[0])

        poller = pollers.of(0)[f"crm/rows/{self.tenant}"]
        poller.restore(self.state if self.emissions else None)
        await poller.poll(emit)

    def _local_us(self) -> int:
        return self.now_us() + int(self.local_ahead_s * 1_000_000)

    # What was emitted

    @property
    def state(self) -> StreamState:
        return self.emissions[-1].state

    @property
    def blocked(self) -> str:
        """Why it is blocked; empty if it is not."""
        return self.state.blocked.reason if self.state.blocked else ""

    @property
    def pages(self) -> list[Observation]:
        return [page for e in self.emissions for page in e.observations]

    @property
    def records(self) -> list[bytes]:
        return [record for page in self.pages for record in page.records]

    def marks(self, kind: str) -> list[Mark]:
        return [mark for e in self.emissions for mark in e.marks if mark.kind == kind]

    def asked(self) -> list[dict[str, Any]]:
        """The requests of the last poll, of this tenant."""
        asked = self.provider.requests(f"/t/{self.tenant}/")
        return [one for one in asked if one["number"] > self.requests_before]

    def claims(self) -> list[Mark]:
        """The marks of plans by time that say that a stretch was searched whole."""
        marks = self.marks("interval_complete") + self.marks("caught_up")
        return [mark for mark in marks if mark.plan in BY_TIME]

    # The judge

    def found(self) -> set[tuple[str, int]]:
        """Id and version of every record that was logged."""
        seen: set[tuple[str, int]] = set()
        for raw in self.records:
            try:
                record = json.loads(raw)
            except ValueError:
                continue
            if isinstance(record, dict) and not record.get("deleted"):
                seen.add((record["id"], record["version"]))
        return seen

    def live(self) -> list[Fact]:
        return list(self.provider.state(self.tenant).values())

    def claimed(self) -> list[tuple[int, int]]:
        """The stretches of time that were said to be searched whole."""
        return [
            (to_us(mark.start), to_us(mark.end))
            for mark in self.claims()
            if mark.start and mark.end
        ]

    def skipped(self) -> list[str]:
        """Live states within a claimed stretch that stand in no page; has to be empty always."""
        found, raw, claimed = self.found(), set(self.records), self.claimed()
        return [
            fact.id
            for fact in self.live()
            if any(start <= us(fact.updated_at) < end for start, end in claimed)
            and (
                fact.raw not in raw
                if fact.raw is not None
                else (fact.id, fact.version) not in found
            )
        ]

    def unclaimed(self) -> list[str]:
        """Live states that no claim reaches: they are still to come, or in a hole."""
        claimed = self.claimed()
        return [
            fact.id
            for fact in self.live()
            if not any(start <= us(fact.updated_at) < end for start, end in claimed)
        ]

    def whole(self) -> None:
        """All that is live was claimed and found, and nothing blocks."""
        assert self.blocked == ""
        assert self.unclaimed() == []
        assert self.skipped() == []

    def replayed(self) -> dict[str, int]:
        """Id and version of what a feed's pages leave alive, read in order."""
        alive: dict[str, int] = {}
        for raw in self.records:
            record = json.loads(raw)
            if record.get("deleted"):
                alive.pop(record["id"], None)
            else:
                alive[record["id"]] = record["version"]
        return alive

    def truth(self) -> dict[str, int]:
        """Id and version of what is live."""
        return {fact.id: fact.version for fact in self.live()}


def us(stamp: str) -> int:
    """RFC 3339 text as microseconds."""
    moment = datetime.fromisoformat(stamp)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def text(stamp_us: int) -> str:
    """Microseconds as RFC 3339 text."""
    second, rest = divmod(stamp_us, 1_000_000)
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
    return f"{shown}.{rest:06d}Z"

"""Tenants come and go while a service runs, with a real provider and a real log."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ingest.service import run
from schemas import codec
from schemas.definitions.load import load_folder
from schemas.log.reader import PartitionReader
from schemas.records import Observation, SourceCheckpoint
from schemas.routing import route
from schemas.settings import Settings
from tests.conftest import Lane
from tests.integration.ingest.conftest import small_settings, with_topics
from tests.upstream import Provider

SOURCE = """
gapless: 1
source: shop
base_url: {env: SHOP_URL}
tenants: {TENANTS, every: 100ms}
limits: {timeout: 5s, attempts: 2, wait_max: 1s, reserve: 2s}
streams:
  accounts:
    get: /t/{tenant.path}/accounts
    params: {changed_from: "{start}", changed_to: "{end}", page_token: "{token}", limit: "{size}"}
    records: body.items
    pages: {next: body.next_page_token, size: 50, stable: true}
    plan:
      interval: {time: updated_at, format: rfc3339_ms, start: 2026-01-01, bounds: "[)",
                 settle: 200ms, lookback: none, width: 400d}
    schedule: {every: 200ms}
"""
NORTH, SOUTH = "{id: n, path: north}", "{id: s, path: south}"
PARTITIONS = 2
WAIT_S = 60


@pytest.fixture
def settings(lane: Lane) -> Settings:
    return with_topics(small_settings(lane, partitions=PARTITIONS))


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with Provider.start(accounts=60, tenants=2, record_bytes=100) as found:
        monkeypatch.setenv("SHOP_URL", found.url)
        yield found


class Service:
    """The service in this process, and what its log says. `kind`: where its tenants stand."""

    def __init__(self, settings: Settings, folder: Path, kind: str) -> None:
        self._settings, self._folder, self._kind = settings, folder, kind

    def tenants(self, text: str) -> None:
        """Replaces the list as an operator should: in one moment."""
        self._write("tenants.yaml", text)
        told = {
            "list": f"list: {text}",
            "file": "file: tenants.yaml",
            "command": "command: [cat, tenants.yaml]",
        }
        self._write("sources/shop.yaml", SOURCE.replace("TENANTS", told[self._kind]))

    def _write(self, name: str, text: str) -> None:
        (self._folder / "next").write_text(text)
        os.replace(self._folder / "next", self._folder / name)

    def checkpoint(self, tenant: str) -> SourceCheckpoint | None:
        owner = f"shop/accounts/{tenant}"
        newest = None
        for found in self._log(self._settings.checkpoints, owner):
            if isinstance(found, SourceCheckpoint) and found.partition_id == owner:
                newest = found
        return newest

    def complete_before(self, tenant: str) -> str:
        found = self.checkpoint(tenant)
        plan = found.plans.get("interval") if found else None
        return plan.complete_before or "" if plan else ""

    def ids(self, tenant: str) -> set[str]:
        owner = f"shop/accounts/{tenant}"
        return {
            json.loads(record)["id"]
            for found in self._log(self._settings.observations, owner)
            if isinstance(found, Observation) and found.partition_id == owner
            for record in found.records
        }

    def _log(self, topic: str, owner: str) -> Iterator[object]:
        """Up to the end as it stands now: the service writes on, so no end of file would come."""
        with PartitionReader(self._settings, topic, route(owner, PARTITIONS)) as reader:
            for record in reader.read(reader.low(), reader.stable_end()):
                if record.value is not None:
                    yield codec.decode(record.value)

    async def becomes(self, condition: Callable[[], bool], what: str) -> None:
        """Waits on a thread: reading the log blocks, and the service runs on this loop."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - the log has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(f"not within {WAIT_S} s: {what}") from None


@asynccontextmanager
async def serving(
    settings: Settings, folder: Path, tenants: str, kind: str = "file"
) -> AsyncIterator[Service]:
    (folder / "sources").mkdir()
    service = Service(settings, folder, kind)
    service.tenants(tenants)
    running = asyncio.create_task(run(settings, load_folder(folder)))
    try:
        yield service
        assert not running.done(), "the service never stops for a list"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("kind", ["list", "file", "command"])
def test_tenants_come_and_go_without_a_restart(
    settings: Settings, tmp_path: Path, provider: Provider, kind: str
) -> None:
    async def main() -> None:
        async with serving(settings, tmp_path, f"[{NORTH}]", kind) as service:
            await service.becomes(lambda: service.complete_before("n") > "", "north to be polled")
            assert service.checkpoint("s") is None
            service.tenants(f"[{NORTH}, {SOUTH}]")
            await service.becomes(lambda: len(service.ids("s")) == 60, "south to begin")

            service.tenants(f"[{SOUTH}]")
            before = service.complete_before("s")
            await service.becomes(lambda: service.complete_before("s") > before, "south to go on")
            asked = provider.requests("/north/")
            stays = service.checkpoint("n")
            before = service.complete_before("s")
            await service.becomes(lambda: service.complete_before("s") > before, "one more poll")
            assert len(provider.requests("/north/")) - len(asked) <= 1, "north is polled no longer"
            assert stays is not None and service.checkpoint("n") is not None

            left_at = service.complete_before("n")
            service.tenants(f"[{NORTH}, {SOUTH}]")
            await service.becomes(lambda: service.complete_before("n") > left_at, "north again")
            assert service.ids("n") == {f.id for f in provider.ledger("north", "accounts")}

    asyncio.run(main())
    first = [one["target"] for one in provider.requests("/north/") if "2026-01-01" in one["target"]]
    assert len([target for target in first if "page_token" not in target]) == 1, (
        "it went on from its checkpoint and did not begin again"
    )


def test_a_broken_list_stops_nobody(settings: Settings, tmp_path: Path, provider: Provider) -> None:
    async def main() -> None:
        async with serving(settings, tmp_path, f"[{NORTH}]") as service:
            await service.becomes(lambda: service.complete_before("n") > "", "north to be polled")
            with capture_logs() as logs:
                service.tenants("[{id: n, path: ")
                await service.becomes(
                    lambda: any("tenants cannot be read" in one["event"] for one in logs), "a word"
                )
                before = service.complete_before("n")
                await service.becomes(lambda: service.complete_before("n") > before, "polls")
            service.tenants(f"[{SOUTH}]")
            await service.becomes(lambda: len(service.ids("s")) == 60, "the corrected list")

    asyncio.run(main())

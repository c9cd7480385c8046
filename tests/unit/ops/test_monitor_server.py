"""The monitor's own metrics: what it says of others, and of its own process."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from ops.monitor.server import build
from tests.unit.ops.test_monitor import Seen
from tests.unit.ops.test_status import status


def metrics() -> str:
    async def ask() -> str:
        watch: Any = Seen(status())
        async with TestClient(TestServer(build(watch, 5))) as client:
            answer = await client.get("/metrics")
            assert answer.status == 200
            return await answer.text()

    return asyncio.run(ask())


def test_its_own_memory_and_processor_time_are_among_them() -> None:
    found = {
        line.split()[0]: float(line.split()[1])
        for line in metrics().splitlines()
        if line.startswith("process_")
    }
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert found["process_cpu_seconds_total"] > 0
    assert "gapless_monitor_healthy 1.0" in metrics()

"""Runs the provider as a process: `python -m ops.demo.provider --port 0 --seed 1`.

Prints one line of JSON with its URL when it answers, and ends on SIGTERM, SIGINT or,
if asked, when its standard input ends (so that it never outlives the test that started it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys

from .clock import Clock
from .server import Provider, build, serve
from .settings import BadSetting, Settings
from .times import SECOND_US


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops.demo.provider", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the address it listens on")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--seed", type=int, default=1, help="decides all that is invented")
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--accounts", type=int, default=0, help="seeded for each tenant")
    parser.add_argument("--events", type=int, default=0, help="seeded for each tenant")
    parser.add_argument(
        "--history-s", type=float, default=86_400.0, help="over which seeded stamps are spread"
    )
    parser.add_argument(
        "--record-bytes", type=int, default=600, help="about the size of an account"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="writes per second")
    parser.add_argument("--speed", type=float, default=1.0, help="of the provider's clock")
    parser.add_argument("--clock-offset-s", type=float, default=0.0)
    parser.add_argument("--settings", default="{}", help="JSON, as POST /admin/settings takes")
    parser.add_argument("--render", action="store_true", help="all seeded bodies before it answers")
    parser.add_argument("--exit-with-stdin", action="store_true")
    return parser


def _provider(arguments: argparse.Namespace) -> Provider:
    settings = Settings()
    settings.change(json.loads(arguments.settings))
    provider = build(
        seed=arguments.seed,
        tenants=arguments.tenants,
        record_bytes=arguments.record_bytes,
        clock=Clock(arguments.clock_offset_s, arguments.speed),
        settings=settings,
    )
    store = provider.store
    to_us = store.clock.now_us()
    from_us = to_us - int(arguments.history_s * SECOND_US)
    for tenant in store.tenants:
        store.seed_records(tenant, "accounts", arguments.accounts, from_us, to_us)
        store.seed_records(tenant, "events", arguments.events, from_us, to_us)
    if arguments.render:
        for collection in store.select(None, None):
            collection.render()
    provider.traffic.change({"rate": arguments.rate})
    return provider


async def _run(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, ended.set)
    if arguments.exit_with_stdin:
        loop.add_reader(
            sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4_096) else ended.set()
        )
    runner, url = await serve(_provider(arguments), arguments.port, arguments.host)
    print(json.dumps({"url": url}), flush=True)
    await ended.wait()
    await runner.cleanup()


def main() -> int:
    try:
        asyncio.run(_run(_arguments().parse_args()))
    except (BadSetting, ValueError, OSError) as error:
        print(f"provider: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
